"""One training step: draw, loss, gradients, clipping, optimizer, average; run eagerly or as a CUDA graph.

``Step.run`` is what the loop calls. The body of a step is tensor operations on fixed addresses and nothing
that waits for the device, so that on CUDA the whole of it can be captured once and replayed. What changes
from step to step without being a tensor operation (learning rate, decay of the average, the epoch's order of
rows) is written into such tensors by ``prepare``.
"""

import importlib.util
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from factorank.errors import TrainingError
from factorank.kernels.gpu.graphs import recover
from factorank.training import sharded
from factorank.training.data import Shape, Source
from factorank.training.optimizers.adamw import Named, Rule, TorchUpdate, Update
from factorank.training.optimizers.average import Average
from factorank.training.optimizers.muon import Muon, hidden_matrices
from factorank.training.processes import World

EAGER_STEPS = 3
"""Steps run eagerly before a graph is captured: they make the optimizer's state and cuBLAS's workspaces."""


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
    """The state that a step changes, and the step."""

    def __init__(
        self,
        model: nn.Module,
        source: Source,
        shape: Shape,
        world: World,
        masks: torch.Generator,
        generators: Sequence[torch.Generator],
        *,
        optimizer: str,
        lr: float,
        betas: tuple[float, float],
        weight_decay: float,
        clip: float | None,
        ema: float | None,
        bf16: bool,
        compile: bool,
        capture: bool | str,
    ) -> None:
        device = world.device
        on_cuda = device.type == "cuda"
        if capture is True and (not on_cuda or world.size > 1):
            raise TrainingError(f"capture=True needs one CUDA device, not {world.size} × {device.type}")
        self.capturing = on_cuda and world.size == 1 and bool(capture)
        self._must_capture = capture is True
        self.world, self.source, self.masks, self.generators = world, source, masks, generators
        self.shape = shape
        self._draw_noise = getattr(model, "noise", None)
        self.model = world.to_train(model)
        self.objective = world.set_up(Objective(self.model, bf16, device, cache=not self.capturing))
        self.named = [
            (name, weight) for name, weight in self.model.named_parameters() if weight.requires_grad
        ]
        self.weights = [sharded.part(weight) for _, weight in self.named]
        """What this process holds of the weights."""
        self._lr_now = lr
        self.average = Average(self.weights, ema) if ema is not None else None
        hidden = hidden_matrices(self.model) if optimizer == "muon" else None
        rule = Rule(lr, betas, weight_decay, clip, self.average, hidden=hidden)
        self.update = make_update(
            self.named, device, rule, capturing=self.capturing, alone=type(world) is World
        )
        world.adopt(self.update)
        if compile:
            self.objective = torch.compile(self.objective, dynamic=False)
        self.loss_sum = torch.zeros((), device=device)
        self.grad_norm = torch.zeros((), device=device)
        self.count = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream = torch.cuda.Stream(device) if self.capturing else None
        self._eager_steps = 0

    def run(self, step: int, lr: float) -> None:
        """Do a step, counted from 0. On CUDA this returns before the device has done it."""
        self.source.prepare(step)
        if self.average is not None:
            self.average.prepare(step)
        if lr != self._lr_now:
            self._lr_now = lr
            self.update.set_lr(lr)
        if self.capturing and self._graph is None and self._eager_steps == EAGER_STEPS:
            self._capture()
        if self._graph is not None:
            self._graph.replay()
        elif self.capturing:
            self._eager_steps += 1
            self._on_side_stream()
        else:
            self._body()
        self.count += 1

    def read(self) -> tuple[float, float]:
        """The summed loss since the last :meth:`reset` and the last gradient norm; waits for the device."""
        return float(self.loss_sum), float(self.grad_norm)

    def reset(self) -> None:
        """Begin a new sum of losses."""
        self.loss_sum.zero_()
        self.count = 0

    def _body(self) -> None:
        self._forget_gradients()
        noise, parts = self._noise(), self.shape.parts
        for part in range(parts):
            order, context = self.source.batch(part)
            with self.world.without_sync(self.objective, part < parts - 1):
                loss = self.objective(order, context, self._random(noise, part))
                loss = loss / parts if parts > 1 else loss
                self.world.backward(loss, self.objective)
            self.loss_sum += loss.detach()
        self.update.apply(self.grad_norm)

    def _forget_gradients(self) -> None:
        for _, weight in self.named:
            weight.grad = None

    def _noise(self) -> Any:
        """The random numbers of the loss for all rows of the step, if the model draws them by row."""
        if self._draw_noise is None:
            return None
        rows, device = torch.Size([self.shape.rows]), self.world.device
        return self._draw_noise(rows, device=device, generator=self.masks)

    def _random(self, noise: Any, part: int) -> dict[str, Any]:
        """Where the loss of one pass takes its random numbers from: its rows of the noise, or a generator."""
        if noise is None:
            return {"generator": self.masks}
        if self.shape.rows == self.shape.batch:
            return {"noise": noise}
        first = self.shape.first(part)
        return {"noise": tree_map(lambda one: one[first : first + self.shape.batch], noise)}

    def _on_side_stream(self) -> None:
        """Run eagerly on the stream of the capture, so that what the libraries keep per stream is there."""
        assert self._stream is not None
        main = torch.cuda.current_stream(self.world.device)
        self._stream.wait_stream(main)
        with torch.cuda.stream(self._stream):
            self._body()
        main.wait_stream(self._stream)

    def _capture(self) -> None:
        """Record the body as a graph. Recording runs nothing: the step itself is the first replay."""
        self._forget_gradients()  # so that the gradients live in the graph's own memory
        self.source.static = True
        graph = torch.cuda.CUDAGraph()
        states = [generator.get_state() for generator in self.generators]
        main = torch.cuda.current_stream(self.world.device)
        for generator in self.generators:
            if generator not in torch.cuda.default_generators:  # torch registers its own
                graph.register_generator_state(generator)
        try:
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                self._body()
        except (RuntimeError, torch.AcceleratorError) as error:
            if self._must_capture or isinstance(error, torch.OutOfMemoryError):
                raise
            warnings.warn(
                f"the step runs eagerly because it cannot be captured: {error}", UserWarning, stacklevel=2
            )
            self.capturing = self.source.static = False
            recover(main, self.generators, states)
            self._forget_gradients()
        else:
            self.update.captured()
            self._graph = graph


def make_update(named: Named, device: torch.device, rule: Rule, *, capturing: bool, alone: bool) -> Update:
    """What changes the weights: for a process ``alone`` two launches where the step is captured and one call
    on a CPU; torch's optimizer elsewhere, which engines for several processes must have, and beside Muon."""
    if rule.hidden is not None:
        return Muon(named, device, rule, capturable=capturing)
    plain = all(weight.dtype == torch.float32 and weight.is_contiguous() for _, weight in named)
    own = alone and plain
    if own and capturing and importlib.util.find_spec("triton") is not None:
        from factorank.training.optimizers.fused import FusedUpdate

        return FusedUpdate(named, device, rule)
    return TorchUpdate(named, device, rule, capturable=capturing)
