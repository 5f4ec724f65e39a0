"""The processes of a run: one, or several by Lightning Fabric, which joins those of torchrun and SLURM."""

import atexit
import logging
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from factorank.errors import TrainingError
from factorank.training.optimizers import Update
from factorank.training.settings import TrainSettings


class World:
    """The processes of a run, each with one device. What they must agree on goes through here."""

    def __init__(self, device: torch.device, fabric: Any = None) -> None:
        self.device = device if fabric is None else fabric.device
        self.rank: int = 0 if fabric is None else fabric.global_rank
        self.size: int = 1 if fabric is None else fabric.world_size
        self._fabric = fabric

    @property
    def alone(self) -> bool:
        """Whether the run has no other process, so that no engine wraps its module and optimizer."""
        return self._fabric is None

    def set_up(self, module: nn.Module) -> Any:
        """The module to train with."""
        return module if self.alone else self._fabric.setup_module(module)

    def adopt(self, update: Update) -> None:
        """Take over the optimizer of the module's weights."""
        if not self.alone:
            update.optimizer = self._fabric.setup_optimizers(update.optimizer)

    def backward(self, loss: Tensor, module: Any) -> None:
        """Compute gradients; they are averaged over the processes."""
        if self.alone:
            loss.backward()
        else:
            self._fabric.backward(loss, model=module)

    def without_sync(self, module: Any, enabled: bool) -> AbstractContextManager[Any]:
        """Inside the block gradients stay local (all passes but the last of an accumulated step)."""
        if self.size == 1:
            return nullcontext()
        return self._fabric.no_backward_sync(module, enabled=enabled)

    def most(self, values: Sequence[float]) -> list[float]:
        """The largest of each value over the processes."""
        return self._reduced(values, "MAX")

    def total(self, values: Sequence[float]) -> list[float]:
        """The sum of each value over the processes."""
        return self._reduced(values, "SUM")

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensor of every process, by rank; they have one shape and dtype."""
        if self.size == 1:
            return [tensor]
        here = tensor.to(self.device)
        gathered = [torch.empty_like(here) for _ in range(self.size)]
        torch.distributed.all_gather(gathered, here)
        return [each.to(tensor.device) for each in gathered]

    def _reduced(self, values: Sequence[float], how: str) -> list[float]:
        if self.size == 1:
            return list(values)
        reduced = torch.tensor(values, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(reduced, op=getattr(torch.distributed.ReduceOp, how))
        return reduced.tolist()


def world_of(device: torch.device, settings: TrainSettings) -> World:
    """The processes that settings and environment call for; a single one does without Fabric."""
    one_process = (settings.devices or 1) == 1 and settings.num_nodes == 1 and settings.strategy is None
    return World(device, None if one_process and not _launched() else _launch(device, settings))


def checked_device(device: torch.device | str | None) -> torch.device:
    """The device of that name, if it is there; by default a CUDA device where there is one."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        allowed = "'cpu', 'cuda' or 'cuda:0', 'cuda:1', …"
        raise TrainingError(f"{{parameter}} is {allowed}, not {device!r}", parameter="device") from None
    if chosen.type != "cuda":
        return chosen
    if (chosen.index or 0) >= torch.cuda.device_count():
        sees = f"torch sees {torch.cuda.device_count()} CUDA devices here; 'cpu' works everywhere"
        raise TrainingError(f"{{parameter={str(device)!r}}}, but {sees}", parameter="device")
    return torch.device("cuda", torch.cuda.current_device()) if chosen.index is None else chosen


def is_first_process() -> bool:
    """Whether this process writes: the first of those that train together, or the only one."""
    together = torch.distributed.is_available() and torch.distributed.is_initialized()
    return not together or torch.distributed.get_rank() == 0


def _launched() -> bool:
    """Whether torchrun or SLURM has started several processes of which this is one."""
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 and "RANK" in os.environ:
        return True
    slurm = int(os.environ.get("SLURM_NTASKS", 1)) > 1 and "SLURM_PROCID" in os.environ
    return slurm and os.environ.get("SLURM_JOB_NAME") not in ("bash", "interactive")


def _launch(device: torch.device, settings: TrainSettings) -> Any:
    """Lightning Fabric, with its processes started, or joined where a launcher has started them."""
    try:
        from lightning_fabric import Fabric
    except ImportError:
        try:
            from lightning.fabric import Fabric
        except ImportError as error:
            raise TrainingError("several processes need Fabric: pip install lightning-fabric") from error
    for name in ("lightning_fabric", "lightning.fabric"):  # their start-up notes; the library does not print
        logging.getLogger(name).setLevel(logging.WARNING)
    devices, nodes = settings.devices or 1, settings.num_nodes
    if _launched() and (local := int(os.environ.get("LOCAL_WORLD_SIZE", 0))):  # these numbers are fixed
        devices, nodes = local, int(os.environ["WORLD_SIZE"]) // local
    try:
        fabric = Fabric(accelerator=device.type, devices=devices, num_nodes=nodes, strategy="ddp")
        fabric.launch()
    except (ValueError, TypeError) as error:
        raise TrainingError(f"Lightning Fabric refuses the devices: {error}", parameter="devices") from error
    atexit.unregister(_leave)
    atexit.register(_leave)
    return fabric


def _leave() -> None:
    """Close the connections while the interpreter still stands: gloo's threads can abort a process later."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
