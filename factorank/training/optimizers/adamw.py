"""What a step does with the gradients: clip their norm, AdamW, move the average of the weights.

:class:`TorchUpdate` does it with torch's optimizer, on any device and in any number of processes. On one GPU
:mod:`~factorank.training.optimizers.fused` does the same in two launches.
:mod:`~factorank.training.optimizers.muon` changes some of the weights in another way.
"""

from typing import Any

import torch
from torch import Tensor, nn

from factorank.training.optimizers.average import Average
from factorank.training.settings import TrainSettings

Named = list[tuple[str, nn.Parameter]]
EPS = 1e-8
"""Added to the root of the second moment."""


class TorchUpdate:
    """AdamW, with decay on matrices only: not on biases, gains and single vectors."""

    def __init__(
        self,
        named: Named,
        device: torch.device,
        settings: TrainSettings,
        average: Average | None,
        *,
        capturable: bool = False,
    ) -> None:
        self.named, self.settings, self.average = named, settings, average
        self.weights = [weight for _, weight in named]
        on_cuda = device.type == "cuda"
        self._lr: float | Tensor = torch.tensor(settings.lr, device=device) if on_cuda else settings.lr
        groups = [
            {"params": [w for w in self.weights if decays(w)], "weight_decay": settings.weight_decay},
            {"params": [w for w in self.weights if not decays(w)], "weight_decay": 0.0},
        ]
        self.optimizer: Any  # Fabric wraps it for several processes
        self._bare: torch.optim.Optimizer
        self._bare = self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]] or groups[:1],
            lr=self._lr,
            betas=settings.betas,
            eps=EPS,
            fused=device.type in ("cpu", "cuda") or None,
            capturable=capturable,
        )

    def set_lr(self, lr: float) -> None:
        if isinstance(self._lr, Tensor):
            self._lr.fill_(lr)
        else:
            self._lr = lr
            for group in self._bare.param_groups:
                group["lr"] = lr

    def apply(self, norm: Tensor) -> None:
        """Change the weights, and write the norm of the gradients to ``norm``. Tensor operations only."""
        total = torch.nn.utils.get_total_norm([w.grad for w in self.weights if w.grad is not None])
        if self.settings.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.weights, self.settings.clip, total)
        norm.copy_(total)
        self.change()
        if self.average is not None:
            self.average.update()

    def change(self) -> None:
        """Move the weights by their clipped gradients."""
        self.optimizer.step()

    def captured(self) -> None:
        """Called after :meth:`apply` has been recorded in a graph, before it is replayed."""

    def state(self) -> dict[str, Tensor]:
        """AdamW's moments and counts, and Muon's momenta, by name of the weight."""
        states = ((name, self._bare.state.get(weight, {})) for name, weight in self.named)
        return {f"{key}/{name}": value for name, state in states for key, value in state.items()}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        index = {id(w): i for i, w in enumerate(w for g in self._bare.param_groups for w in g["params"])}
        place = {name: index[id(weight)] for name, weight in self.named if id(weight) in index}
        state: dict[int, dict[str, Tensor]] = {}
        for path, value in tensors.items():
            key, name = path.split("/", 1)
            state.setdefault(place[name], {})[key] = value
        groups = self._bare.state_dict()["param_groups"]
        self._bare.load_state_dict({"state": state, "param_groups": groups})
        for group in self._bare.param_groups:  # load_state_dict copies a tensor learning rate
            group["lr"] = self._lr


def decays(weight: Tensor) -> bool:
    """Whether weight decay pulls at a weight."""
    return weight.ndim >= 2


def trained_weights(model: nn.Module) -> Named:
    """The weights that a run trains, by name."""
    return [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
