"""An optimizer of the user's own: any of torch's kind, with groups of weights as it likes."""

import numbers
from typing import Any

import torch
from torch import Tensor, nn

from factorank.errors import TrainingError
from factorank.training.optimizers.adamw import Named, TorchUpdate
from factorank.training.optimizers.average import Average
from factorank.training.settings import TrainSettings


class OwnUpdate(TorchUpdate):
    """Clipping, the user's optimizer, the average. The schedule scales the learning rate of each group."""

    def __init__(
        self, named: Named, settings: TrainSettings, average: Average | None, model: nn.Module
    ) -> None:
        self.named, self.settings, self.average = named, settings, average
        self.weights = [weight for _, weight in named]
        self.optimizer: Any
        self._bare = self.optimizer = _checked(settings.optimizer, model, self.weights)
        self._highest = [float(group["lr"]) for group in self._bare.param_groups]

    def set_lr(self, lr: float) -> None:
        for group, highest in zip(self._bare.param_groups, self._highest, strict=True):
            group["lr"] = highest * lr / self.settings.lr

    def state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = {}
        for name, weight in self.named:
            for key, value in self._bare.state.get(weight, {}).items():
                if isinstance(value, numbers.Real):
                    state[f"number:{key}/{name}"] = torch.tensor(float(value), dtype=torch.float64)
                elif isinstance(value, Tensor):
                    state[f"{key}/{name}"] = value
                elif value is not None:
                    kind = f"{type(self._bare).__name__} holds a {type(value).__name__} ({key})"
                    raise TrainingError(
                        f"{kind}, which a checkpoint cannot; train without out", parameter="out"
                    )
        return state

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        index = {id(w): i for i, w in enumerate(w for g in self._bare.param_groups for w in g["params"])}
        place = {name: index[id(weight)] for name, weight in self.named if id(weight) in index}
        state: dict[int, dict[str, Any]] = {}
        for path, value in tensors.items():
            key, name = path.split("/", 1)
            plain = float(value) if key.startswith("number:") else value
            if isinstance(plain, float) and plain.is_integer():
                plain = int(plain)
            state.setdefault(place[name], {})[key.removeprefix("number:")] = plain
        self._bare.load_state_dict({"state": state, "param_groups": self._bare.state_dict()["param_groups"]})


def _checked(optimizer: Any, model: nn.Module, weights: list[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer, made if a function makes it; one that changes other tensors than weights is refused."""
    chosen = optimizer if isinstance(optimizer, torch.optim.Optimizer) else optimizer(model)
    if not isinstance(chosen, torch.optim.Optimizer) or isinstance(chosen, torch.optim.LBFGS):
        what = "needs a closure" if isinstance(chosen, torch.optim.LBFGS) else "is none"
        raise TrainingError(
            f"{{parameter}} is a torch.optim.Optimizer, or a function of the model that makes one; a"
            f" {type(chosen).__name__} {what}",
            parameter="optimizer",
        )
    trained = {id(weight) for weight in weights}
    others = sum(id(weight) not in trained for group in chosen.param_groups for weight in group["params"])
    if others:
        raise TrainingError(
            f"{others} of the tensors that the optimizer changes are not weights of the model",
            parameter="optimizer",
        )
    return chosen
