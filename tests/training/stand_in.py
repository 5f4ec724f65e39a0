"""A small model with the interface that ``train`` needs, and nothing else of ``PermutationModel``."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from factorank.permutations import random_permutations
from factorank.training import TrainResult

ORDERS = random_permutations(5, (60,), generator=torch.Generator().manual_seed(1))
QUICK: dict[str, Any] = {"steps": 12, "batch_size": 20, "device": "cpu"}


class StandIn(nn.Module):
    """Predicts each place from the others, some of which are masked at random; dropout on the way."""

    def __init__(self, n: int = 5, width: int = 12, dropout: float = 0.1, masked: bool = True) -> None:
        super().__init__()
        self.n, self.width, self.masked = n, width, masked
        self.embed = nn.Embedding(n + 1, width)
        self.mix = nn.Sequential(nn.Linear(n * width, 4 * width), nn.ReLU(), nn.Dropout(dropout))
        self.head = nn.Linear(4 * width, n * n)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def loss(self, order: Tensor, context: Any = None, *, generator: torch.Generator | None = None) -> Tensor:
        if self.training:
            self.calls += 1
        seen = order.long()
        if self.masked:
            hidden = torch.rand(order.shape, generator=generator, device=order.device) < 0.5
            seen = torch.where(hidden, self.n, seen)
        else:
            seen = torch.where(torch.arange(self.n, device=order.device) >= self.n // 2, self.n, seen)
        tokens = self.embed(seen)
        if context is not None:
            tokens = tokens + context[:, None, None]
        logits = self.head(self.mix(tokens.flatten(1))).unflatten(1, (self.n, self.n))
        return nn.functional.cross_entropy(logits.transpose(1, 2), order.long(), reduction="none").sum(1)

    def config(self) -> dict[str, Any]:
        return {"n": self.n, "width": self.width}

    def save_pretrained(self, path: str | Path) -> None:
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        save_file({k: v.contiguous() for k, v in self.state_dict().items()}, path / "model.safetensors")
        (path / "config.json").write_text(json.dumps(self.config()))


def make(seed: int = 0, **kwargs: Any) -> StandIn:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return StandIn(**kwargs)


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def lines(result: TrainResult) -> list[dict[str, Any]]:
    """The history of a run."""
    assert result.history is not None
    return [json.loads(line) for line in result.history.read_text().splitlines()]
