"""What a step does with the gradients: clip their norm, AdamW, move the average of the weights.

:class:`TorchUpdate` does it with torch's optimizer, on any device and in any number of processes; on one GPU
``fused_update`` does the same in two launches, in one process on a CPU ``cpu_update`` in one call. ``muon``
changes some of the weights in another way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from factorank.training.optimizers.average import Average
from factorank.training.sharded import spread, whole

Named = list[tuple[str, nn.Parameter]]


@dataclass(frozen=True)
class Rule:
    """How weights are changed."""

    lr: float
    betas: tuple[float, float]
    weight_decay: float
    clip: float | None
    """The largest norm of the gradients."""
    average: Average | None
    eps: float = 1e-8
    hidden: dict[nn.Parameter, int] | None = None
    """The weights that Muon changes, and how many matrices are stacked in each; None: AdamW changes all."""


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
        """AdamW's moments and counts, and Muon's momenta, by name of the weight."""

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take what :meth:`state` gave."""


class TorchUpdate:
    """AdamW, with decay on matrices only: not on biases, gains and single vectors."""

    def __init__(self, named: Named, device: torch.device, rule: Rule, *, capturable: bool) -> None:
        self.named, self.clip, self.average = named, rule.clip, rule.average
        self.weights = [weight for _, weight in named]
        self._lr: float | Tensor = torch.tensor(rule.lr, device=device) if device.type == "cuda" else rule.lr
        groups = [
            {"params": [one for one in self.weights if decays(one)], "weight_decay": rule.weight_decay},
            {"params": [one for one in self.weights if not decays(one)], "weight_decay": 0.0},
        ]
        self._bare = self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]] or groups[:1],
            lr=self._lr,
            betas=rule.betas,
            eps=rule.eps,
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
        total = torch.nn.utils.get_total_norm([w.grad for w in self.weights if w.grad is not None])
        if self.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.weights, self.clip, total)
        norm.copy_(whole(total, total))
        self.change()
        if self.average is not None:
            self.average.update()

    def change(self) -> None:
        """Move the weights by their clipped gradients."""
        self.optimizer.step()

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
        weights = dict(self.named)
        place = {name: index[id(weight)] for name, weight in self.named if id(weight) in index}
        state: dict[int, dict[str, Tensor]] = {}
        for path, value in tensors.items():
            key, name = path.split("/", 1)
            state.setdefault(place[name], {})[key] = spread(value, weights[name])
        groups = self._bare.state_dict()["param_groups"]
        self._bare.load_state_dict({"state": state, "param_groups": groups})
        for group in self._bare.param_groups:  # load_state_dict copies a tensor learning rate
            group["lr"] = self._lr


class OwnUpdate:
    """What the updates without torch's optimizer share: moments of float32 weights, and their state."""

    optimizer = None

    def __init__(self, named: Named, rule: Rule) -> None:
        self.named, self.rule, self.average = named, rule, rule.average
        self.moments = [(torch.zeros_like(weight), torch.zeros_like(weight)) for _, weight in named]

    def counts(self) -> Sequence[Tensor]:
        """How often each weight was changed."""
        raise NotImplementedError

    def captured(self) -> None:
        pass

    def state(self) -> dict[str, Tensor]:
        made: dict[str, Tensor] = {}
        parts = zip(self.named, self.counts(), self.moments, strict=True)
        for (name, _), count, (first, second) in parts:
            made |= {f"step/{name}": count, f"exp_avg/{name}": first, f"exp_avg_sq/{name}": second}
        return made

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        own = self.state()
        for path, value in tensors.items():
            own[path].copy_(value)


def decays(weight: Tensor) -> bool:
    """Whether weight decay pulls at a weight."""
    return weight.ndim >= 2
