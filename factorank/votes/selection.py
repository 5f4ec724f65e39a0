"""A network that picks the items of a ranking one after the other.

The model is autoregressive in the inline code, where a position holds the item itself, with two
simplifications that suit votes. Items that have been picked cannot be picked again, so that the law never
leaves the permutations. And the next item depends on *which* items have been picked and on the last of them,
not on the order of the others: a few thousand voters are too few to learn more. It extends contextual
repeated selection (Seshadri, Ragain and Ugander, "Learning rich rankings", 2020) by a hidden layer.
"""

import os
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorank.errors import ModelError
from factorank.models.network import evaluating
from factorank.models.saving import read_module, rebuilt, write_module
from factorank.votes.selection_law import SelectionLaw

KIND, VERSION = "factorank-selection", 1
"""What the configuration of a saved model calls it."""


class SelectionModel(nn.Module):
    r"""The law of the next item: :math:`P(x_k = j) \propto \exp f_j(\{x_0, …, x_{k-1}\}, x_{k-1})`.

    :math:`f` is a linear function of the picked items, their number and the last of them, plus a network of
    two hidden layers of the same input.

    Args:
        n: the number of items.
        width: of the hidden layers.
        dropout: of the hidden layers, while training; the picked items are hidden from the network with a
            third of this probability.
        from_end: picks the last place first, so that the law is exact about the bottom of the rankings.

    >>> import factorank as fr
    >>> model = SelectionModel(4, width=16)
    >>> model.loss(fr.random_permutations(4, (32,))).shape  # train on the mean of these
    torch.Size([32])
    >>> law = model.distribution()
    >>> fr.is_permutation(law.sample((100,))).all()
    tensor(True)
    """

    def __init__(self, n: int, width: int = 128, dropout: float = 0.3, from_end: bool = False) -> None:
        super().__init__()
        for name, value in (("n", n), ("width", width)):
            if value < 1:
                raise ModelError(f"{{parameter}} is at least 1, not {value}", parameter=name)
        if not 0 <= dropout < 1:
            fault = f"{{parameter}} is a share, a number from 0 to below 1, not {dropout!r}"
            raise ModelError(fault, parameter="dropout")
        self.n, self.width, self.dropout, self.from_end = n, width, dropout, from_end
        self.picked = nn.Linear(n, width, bias=False)
        self.last = nn.Embedding(n + 1, width)
        self.number = nn.Embedding(n, width)
        self.hidden = nn.Linear(width, width)
        self.scores = nn.Linear(width, n)
        self.picked_scores = nn.Linear(n, n, bias=False)
        self.last_scores = nn.Embedding(n + 1, n)
        self.number_scores = nn.Embedding(n, n)
        for layer in (self.picked, self.last, self.number):
            nn.init.normal_(layer.weight, std=(2 * n) ** -0.5)
        # Uniform at first.
        nn.init.zeros_(self.scores.bias)
        for layer in (self.scores, self.picked_scores, self.last_scores, self.number_scores):
            nn.init.zeros_(layer.weight)

    def choices(self, picked: Tensor, last: Tensor) -> Tensor:
        """The log-probability of each item to be the next, ``(*batch, n)``.

        ``picked (*batch, n)`` says which items have been picked, ``last (*batch,)`` which one was the last, n
        if there is none.
        """
        number = picked.sum(-1).clamp(max=self.n - 1)
        inputs = F.dropout(picked.to(self.picked.weight.dtype), self.dropout / 3, self.training)
        hidden = F.gelu(self.picked(inputs) + self.last(last) + self.number(number))
        hidden = F.gelu(self.hidden(F.dropout(hidden, self.dropout, self.training)))
        scores = self.scores(F.dropout(hidden, self.dropout, self.training))
        scores = scores + self.picked_scores(inputs) + self.last_scores(last) + self.number_scores(number)
        return scores.masked_fill(picked, -torch.inf).log_softmax(-1)

    def loss(self, order: Tensor, context: Any = None, *, generator: torch.Generator | None = None) -> Tensor:
        """The exact ``-log p`` of each order ``(*batch, n)`` in nats, ``(*batch,)``; there is no context."""
        picks = order.to(torch.int64).flip(-1) if self.from_end else order.to(torch.int64)
        there = F.one_hot(picks, self.n)
        picked = (there.cumsum(-2) - there).bool()
        last = F.pad(picks[..., :-1], (1, 0), value=self.n)
        return -self.choices(picked, last).gather(-1, picks[..., None]).squeeze(-1).sum(-1)

    def forward(self, *arguments: Any, **options: Any) -> Tensor:
        """The same as :meth:`loss`: wrappers that hook into ``forward``, such as DDP, train through it."""
        return self.loss(*arguments, **options)

    def distribution(self) -> SelectionLaw:
        """The law that the model has learnt; dropout is off."""
        return SelectionLaw(self._evaluated, self.n, self.from_end, self.last.weight.device)

    def _evaluated(self, picked: Tensor, last: Tensor) -> Tensor:
        with evaluating(self):
            return self.choices(picked, last)

    def config(self) -> dict[str, Any]:
        """What rebuilds the model, without its weights, as JSON can hold it."""
        return {"n": self.n, "width": self.width, "dropout": self.dropout, "from_end": self.from_end}

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write ``model.safetensors`` and ``config.json`` into a folder, both or neither."""
        write_module(self, folder, KIND, VERSION, self.config())

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str]) -> "SelectionModel":
        """Load what :meth:`save_pretrained` wrote, in eval mode."""
        config, weights = read_module(Path(folder), KIND, VERSION, ("n", "width"), "a selection model")
        return rebuilt(lambda: cls(**config), weights, Path(folder))

    def extra_repr(self) -> str:
        return f"n={self.n}, width={self.width}, from_end={self.from_end}"
