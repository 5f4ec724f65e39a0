"""What a step does with the gradients: clip their norm, AdamW, move the average of the weights.

:class:`TorchUpdate` does it with torch's optimizer, on any device and in any number of processes; on one GPU
``fused_update`` does the same in two launches.
"""

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from factorank.training.ema import Average

Named = list[tuple[str, nn.Parameter]]


class Update(Protocol):
    """Changes the weights by their gradients."""

    optimizer: Any
    """What an engine for several processes must know of, or None."""

    def set_lr(self, lr: float) -> None: ...

    def apply(self, norm: Tensor) -> None:
        """Do so; the norm of the gradients is written to ``norm``. Tensor operations only."""

    def captured(self) -> None:
        """Called after :meth:`apply` has been recorded in a graph, before it is replayed."""

    def state(self) -> dict[str, Tensor]:
        """AdamW's moments and counts by name of the weight."""

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take what :meth:`state` gave."""


class TorchUpdate:
    """AdamW, with decay on matrices only: not on biases, gains and single vectors."""

    def __init__(
        self,
        named: Named,
        device: torch.device,
        *,
        lr: float,
        betas: tuple[float, float],
        weight_decay: float,
        clip: float | None,
        average: Average | None,
        capturable: bool,
    ) -> None:
        self.named, self.clip, self.average = named, clip, average
        self.weights = [weight for _, weight in named]
        self._lr: float | Tensor = torch.tensor(lr, device=device) if device.type == "cuda" else lr
        groups = [
            {"params": [weight for weight in self.weights if decays(weight)], "weight_decay": weight_decay},
            {"params": [weight for weight in self.weights if not decays(weight)], "weight_decay": 0.0},
        ]
        self._bare = self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=self._lr,
            betas=betas,
            fused=device.type in ("cpu", "cuda") or None,
            capturable=capturable,
        )

    def set_lr(self, lr: float) -> None:
        if isinstance(self._lr, Tensor):
            self._lr.fill_(lr)
        else:
            for group in self._bare.param_groups:
                group["lr"] = lr

    def apply(self, norm: Tensor) -> None:
        total = torch.nn.utils.get_total_norm([w.grad for w in self.weights if w.grad is not None])
        if self.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.weights, self.clip, total)
        norm.copy_(total)
        self.optimizer.step()
        if self.average is not None:
            self.average.update()

    def captured(self) -> None:
        pass

    def state(self) -> dict[str, Tensor]:
        state = self._bare.state
        return {
            f"{key}/{name}": value
            for name, weight in self.named
            for key, value in state.get(weight, {}).items()
        }

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        index = {id(w): i for i, w in enumerate(w for g in self._bare.param_groups for w in g["params"])}
        place = {name: index[id(weight)] for name, weight in self.named}
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
