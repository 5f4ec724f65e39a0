"""One training step: draw, loss, gradients, clipping, optimizer, average; run eagerly or as a CUDA graph.

The loop calls ``Step.run``. The body of a step is tensor operations on fixed addresses that never wait for
the device, so that on CUDA the whole body can be captured once and replayed. What changes from step to step
on the host (learning rate, decay of the average, the epoch's order of rows) is written into such tensors
before the body runs.
"""

from typing import Any

import torch
from torch import Tensor, nn

from factorank.errors import TrainingError, warn
from factorank.kernels import dispatch
from factorank.kernels.gpu.graphs import StepGraph
from factorank.training.batches import Shape, take
from factorank.training.data import Batches
from factorank.training.optimizers import make_update
from factorank.training.optimizers.adamw import trained_weights
from factorank.training.optimizers.average import Average
from factorank.training.processes import World
from factorank.training.settings import TrainSettings


class Objective(nn.Module):
    """The mean loss of a batch, in nats: a module, so that DDP sees a forward pass and torch compiles it."""

    def __init__(self, model: Any, bf16: bool, device: torch.device, *, cache: bool = True) -> None:
        super().__init__()
        self.model = model
        self.bf16, self.device_type, self.cache = bf16, device.type, cache

    def forward(self, order: Tensor, context: Any, random: dict[str, Any]) -> Tensor:
        with torch.autocast(self.device_type, torch.bfloat16, enabled=self.bf16, cache_enabled=self.cache):
            loss = self.model.loss(order, context, **random)
        return loss.float().mean()


class Step:
    """The state that a step changes, and the step; the model is on the world's device."""

    def __init__(
        self,
        model: nn.Module,
        source: Batches,
        shape: Shape,
        streams: dict[str, torch.Generator],
        world: World,
        settings: TrainSettings,
    ) -> None:
        device = world.device
        able = dispatch.captures_step(device, world.size) and not source.varies
        able = able and isinstance(settings.optimizer, str)
        if settings.capture is True and not able:
            why = (
                f"needs one CUDA device, not {world.size} × {device.type}, and batches and optimizer of ours"
            )
            raise TrainingError(f"{{parameter=True}} {why}", parameter="capture")
        graph = StepGraph(device, streams.values()) if able and settings.capture else None
        self.model, self.source, self.shape, self.streams = model, source, shape, streams
        self.world, self.settings = world, settings
        self._draw_noise = None if source.varies else getattr(model, "noise", None)
        bf16 = settings.precision == "bf16"
        self.objective = world.set_up(Objective(model, bf16, device, cache=graph is None))
        self.named = trained_weights(model)
        self.weights: list[Tensor] = [weight for _, weight in self.named]
        self.average = None if settings.ema is None else Average(self.weights, settings.ema)
        self.update = make_update(
            model, device, settings, self.average, captured=graph is not None, alone=world.alone
        )
        world.adopt(self.update)
        if settings.compile:
            self.objective = torch.compile(self.objective, dynamic=False)
        self.loss_sum = torch.zeros((), device=device)
        self.grad_norm = torch.zeros((), device=device)
        self.count = 0
        """Steps in the sum of losses."""
        self._lr_now = settings.lr
        self._graph = graph

    def run(self, step: int, lr: float) -> None:
        """Do a step, counted from 0. On CUDA this returns before the device has done it."""
        self.source.prepare(step)
        if self.average is not None:
            self.average.prepare(step)
        if lr != self._lr_now:
            self._lr_now = lr
            self.update.set_lr(lr)
        if self._graph is not None and self._graph.due:
            self._capture(self._graph)
        if self._graph is None:
            self._body()
        else:
            self._graph.run(self._body)
        self.count += 1

    def read(self) -> tuple[float, float]:
        """The summed loss since the last :meth:`reset` and the last gradient norm; waits for the device."""
        return float(self.loss_sum), float(self.grad_norm)

    def reset(self) -> None:
        """Begin a new sum of losses."""
        self.loss_sum.zero_()
        self.count = 0

    def _body(self) -> None:
        self._drop_gradients()
        shape, masks, noise = self.shape, self.streams["masks"], None
        if self._draw_noise is not None:  # random numbers for all rows of the step, by row
            noise = self._draw_noise(torch.Size([shape.rows]), device=self.world.device, generator=masks)
        for part in range(shape.parts):
            order, context = self.source.batch(part)
            rows = slice(shape.first(part), shape.first(part) + shape.batch)
            random = {"generator": masks} if noise is None else {"noise": take(noise, rows)}
            with self.world.without_sync(self.objective, part < shape.parts - 1):
                loss = self.objective(order, context, random)
                loss = loss / shape.parts if shape.parts > 1 else loss
                self.world.backward(loss, self.objective)
            self.loss_sum += loss.detach()
        self.update.apply(self.grad_norm)

    def _drop_gradients(self) -> None:
        for _, weight in self.named:
            weight.grad = None

    def _capture(self, graph: StepGraph) -> None:
        self._drop_gradients()  # so that the gradients live in the graph's own memory
        self.source.static = True
        try:
            graph.record(self._body)
        except (RuntimeError, torch.AcceleratorError) as error:
            if self.settings.capture is True or isinstance(error, torch.OutOfMemoryError):
                raise
            text = f"the step runs eagerly because it cannot be captured: {error}"
            warn(text)
            self._graph, self.source.static = None, False
            self._drop_gradients()
        else:
            self.update.captured()
