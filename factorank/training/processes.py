"""The processes of a run: one, or several by Lightning Fabric (DDP, FSDP; torchrun and SLURM are noticed)."""

import atexit
import contextlib
import copy
import logging
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from factorank.errors import TrainingError
from factorank.training import sharded
from factorank.training.optimizers.adamw import Update

STRATEGIES = (None, "ddp", "fsdp")


class World:
    """One process on one device. Everything that several processes must agree on is asked here."""

    rank = 0
    size = 1

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def to_train(self, model: nn.Module) -> nn.Module:
        """The model whose weights are trained: the one given, or a copy that may be taken apart."""
        return model

    def set_up(self, module: nn.Module) -> Any:
        """The module to train with."""
        return module

    def adopt(self, update: Update) -> None:
        """Take over the optimizer of the module's weights."""

    def close(self) -> None:
        """Leave things as they were before the run."""

    def backward(self, loss: Tensor, module: Any) -> None:
        """Compute gradients; they are averaged over the processes."""
        loss.backward()

    def without_sync(self, module: Any, enabled: bool) -> AbstractContextManager[Any]:
        """Inside the block gradients stay local (all passes but the last of an accumulated step)."""
        return contextlib.nullcontext()

    def most(self, values: Sequence[float]) -> list[float]:
        """The largest of each value over the processes."""
        return list(values)

    def total(self, values: Sequence[float]) -> list[float]:
        """The sum of each value over the processes."""
        return list(values)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensor of every process, by rank; they have one shape and dtype."""
        return [tensor]


class FabricWorld(World):
    """Several processes: Fabric starts them, or joins those that a launcher has started."""

    def __init__(self, device: torch.device, devices: int | None, num_nodes: int, strategy: Any) -> None:
        fabric_class = _fabric_class()
        if strategy not in STRATEGIES:
            raise TrainingError(f"strategy is one of {', '.join(map(repr, STRATEGIES))}, not {strategy!r}")
        if _launched():  # the launcher has fixed the numbers
            local = int(os.environ.get("LOCAL_WORLD_SIZE", 0))
            if local:
                devices, num_nodes = local, int(os.environ["WORLD_SIZE"]) // local
        try:
            self.fabric = fabric_class(
                accelerator=device.type,
                devices=devices or 1,
                num_nodes=num_nodes,
                strategy=self.strategy((devices or 1) * num_nodes),
            )
            self.fabric.launch()
        except (ValueError, TypeError) as error:
            raise TrainingError(f"Lightning Fabric refuses the devices: {error}") from error
        atexit.unregister(_leave)
        atexit.register(_leave)
        super().__init__(self.fabric.device)
        self.rank, self.size = self.fabric.global_rank, self.fabric.world_size

    def strategy(self, processes: int) -> Any:
        """Fabric's."""
        return "ddp"

    def set_up(self, module: nn.Module) -> Any:
        return self.fabric.setup_module(module)

    def adopt(self, update: Update) -> None:
        update.optimizer = self.fabric.setup_optimizers(update.optimizer)

    def backward(self, loss: Tensor, module: Any) -> None:
        self.fabric.backward(loss, model=module)

    def without_sync(self, module: Any, enabled: bool) -> AbstractContextManager[Any]:
        return self.fabric.no_backward_sync(module, enabled=enabled and self.size > 1)

    def most(self, values: Sequence[float]) -> list[float]:
        return self._reduced(values, "MAX")

    def total(self, values: Sequence[float]) -> list[float]:
        return self._reduced(values, "SUM")

    def gather(self, tensor: Tensor) -> list[Tensor]:
        if self.size == 1:
            return [tensor]
        here = tensor.to(self.device)
        gathered = [torch.empty_like(here) for _ in range(self.size)]
        torch.distributed.all_gather(gathered, here)
        return [one.to(tensor.device) for one in gathered]

    def _reduced(self, values: Sequence[float], how: str) -> list[float]:
        if self.size == 1:
            return list(values)
        reduced = torch.tensor(values, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(reduced, op=getattr(torch.distributed.ReduceOp, how))
        return reduced.tolist()


class ShardedWorld(FabricWorld):
    """Several processes, each with a part of the weights, of the optimizer's state and of the average."""

    def strategy(self, processes: int) -> Any:
        return sharded.strategy(processes)

    def to_train(self, model: nn.Module) -> nn.Module:
        return copy.deepcopy(model)


def checked_device(device: torch.device | str | None) -> torch.device:
    """The device that is asked for, if it is there; CUDA's where there is one, if none is."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise TrainingError(f"device is 'cpu', 'cuda' or 'cuda:0', 'cuda:1', …, not {device!r}") from None
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise TrainingError(
            f"device={str(device)!r}, but torch sees {torch.cuda.device_count()} CUDA devices here;"
            " 'cpu' works everywhere"
        )
    return found


def world(device: torch.device, devices: int | None, num_nodes: int, strategy: Any) -> World:
    """The world that the arguments and the environment ask for.

    One device and no launcher is plain torch: Fabric is then not even imported.
    """
    if (devices or 1) == 1 and num_nodes == 1 and strategy is None and not _launched():
        return World(device)
    kind = ShardedWorld if strategy == "fsdp" else FabricWorld
    return kind(device, devices, num_nodes, strategy)


def _launched() -> bool:
    """Whether torchrun or SLURM has started several processes of which this is one."""
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 and "RANK" in os.environ:
        return True
    slurm = int(os.environ.get("SLURM_NTASKS", 1)) > 1 and "SLURM_PROCID" in os.environ
    return slurm and os.environ.get("SLURM_JOB_NAME") not in ("bash", "interactive")


def _leave() -> None:
    """Close the connections while the interpreter still stands: gloo's threads can abort a process later."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _fabric_class() -> Any:
    try:
        from lightning_fabric import Fabric
    except ImportError:
        try:
            from lightning.fabric import Fabric
        except ImportError as error:
            raise TrainingError(
                "several processes need lightning-fabric: pip install lightning-fabric"
            ) from error
    for name in ("lightning_fabric", "lightning.fabric"):  # their start-up notes; the library does not print
        logging.getLogger(name).setLevel(logging.WARNING)
    return Fabric
