"""The likelihood of rankings with ties under Davidson and Luce's law, and its maximum.

A ranking is a sequence of choices, each of a set of tied items from the items that are left. The sums over
all sets of k items are elementary symmetric polynomials; the items left are those of a suffix of the ranking,
so that running sums from its end give the polynomials of all its choices at once.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.fitting.newton import Ascent, ascend


@dataclass(frozen=True)
class TiedChoices:
    """Rankings ``(rows, m)`` by place: ``items``, -1 where there is none, and ``sizes``, the number of tied
    items where a choice begins and 0 elsewhere."""

    items: Tensor
    sizes: Tensor
    weights: Tensor

    @property
    def tie_sizes(self) -> tuple[int, ...]:
        """The numbers of tied items, above one, that occur."""
        return tuple(int(size) for size in self.sizes.unique() if size > 1)

    def always_tied(self) -> bool:
        """Whether no item was ever chosen alone while another was there."""
        left = (self.items >= 0).flip(-1).cumsum(-1).flip(-1)
        return not bool(((self.sizes == 1) & (left > 1)).any())

    def beats(self, n: int) -> np.ndarray:
        """Who was chosen, perhaps in a tie, while another item was there: bool ``(n, n)``."""
        edges = np.zeros((n, n), dtype=bool)
        for row, sizes in zip(self.items.tolist(), self.sizes.tolist(), strict=True):
            left = [item for item in row if item >= 0]
            for place, size in enumerate(sizes):
                if size:
                    edges[np.ix_(left[place : place + size], left[place:])] = True
        return edges


def tied_choices(ranks: np.ndarray, weights: np.ndarray, *, below: bool = False) -> TiedChoices:
    """The choices in places ``(rows, n)``; -1 is an item left out, which with ``below`` comes after the rest.

    >>> choices = tied_choices(np.array([[1, 0, 0, -1]]), np.ones(1))
    >>> choices.items, choices.sizes
    (tensor([[1, 2, 0]]), tensor([[2, 0, 1]]))
    """
    n = ranks.shape[1]
    keys = np.where(ranks < 0, np.iinfo(np.int64).max, ranks)
    items = np.argsort(keys, axis=1, kind="stable")
    levels = np.take_along_axis(keys, items, 1)
    listed = levels < np.iinfo(np.int64).max
    begins = listed.copy()
    begins[:, 1:] &= levels[:, 1:] != levels[:, :-1]
    sizes = np.zeros_like(items)
    row, place = np.nonzero(begins)
    ends = np.where(np.append(row[1:], -1) == row, np.append(place[1:], 0), listed.sum(1)[row])
    sizes[row, place] = ends - place
    used = n if below else max(int(listed.sum(1).max(initial=0)), 1)
    items = items if below else np.where(listed, items, -1)
    return TiedChoices(*map(torch.from_numpy, (items[:, :used].copy(), sizes[:, :used].copy(), weights)))


def tied_log_prob(choices: TiedChoices, logits: Tensor, log_ties: Tensor) -> Tensor:
    """The log-probability ``(rows,)`` of each ranking; ``log_ties[k]`` belongs to ties of k + 1 items, minus
    infinity where they do not occur, and ``log_ties[0]`` is 0. Logits lie within some hundred nats."""
    items, sizes = choices.items, choices.sizes
    there, begins = items >= 0, sizes > 0
    largest = logits.detach().max()
    scores = torch.where(there, logits[items.clamp(min=0)] - largest, 0.0)
    total = torch.zeros_like(scores)
    for size, log_tie in enumerate(log_ties, start=1):
        if size == 1 or bool(log_tie > -torch.inf):
            worth = torch.where(there, (scores / size).exp(), 0.0)
            total = total + log_tie.exp() * _symmetric(worth, size)
    # The mean score of the tied items, by sums from the start of the row.
    sums = torch.nn.functional.pad(scores.cumsum(-1), (1, 0))
    places = torch.arange(items.shape[-1], device=items.device)
    ends = (places + sizes).clamp(max=items.shape[-1])
    mean = (sums.gather(-1, ends) - sums[..., :-1]) / sizes.clamp(min=1)
    known = sizes <= len(log_ties)
    chosen = mean + torch.where(known, log_ties[sizes.clamp(1, len(log_ties)) - 1], -torch.inf)
    return torch.where(begins, chosen - torch.where(begins, total, 1.0).log(), 0.0).sum(-1)


def climb_tied(
    choices: TiedChoices,
    n: int,
    penalty: float,
    max_iterations: int,
    tolerance: float,
    features: np.ndarray | None = None,
) -> tuple[Ascent, np.ndarray]:
    """The maximum, and minus the Hessian there, of the logits (or coefficients) and the logarithms of the
    prevalences of the ties that occur."""
    sizes = choices.tie_sizes
    table = None if features is None else torch.from_numpy(features)
    own = n if table is None else table.shape[1]

    def likelihood(parameters: Tensor) -> Tensor:
        logits = parameters[:own] if table is None else table @ parameters[:own]
        log_ties = all_log_ties(sizes, parameters[own:])
        return (choices.weights * tied_log_prob(choices, logits, log_ties)).sum()

    def penalised(parameters: Tensor) -> tuple[Tensor, Tensor]:
        plain = likelihood(parameters)
        return plain - penalty / 2 * parameters[:own].square().sum(), plain

    point: list[Tensor] = []  # the parameters evaluated last, and the gradient with its graph

    def value(parameters: np.ndarray) -> tuple[float, float, np.ndarray, np.ndarray]:
        at = torch.from_numpy(parameters.copy()).requires_grad_()
        objective, plain = penalised(at)
        (gradient,) = torch.autograd.grad(objective, at, create_graph=True)
        point[:] = [at, gradient]
        return float(objective.detach()), float(plain.detach()), gradient.detach().numpy(), scale

    def times(vector: np.ndarray) -> np.ndarray:
        at, gradient = point
        (product,) = torch.autograd.grad(gradient, at, torch.from_numpy(vector), retain_graph=True)
        return -product.numpy()

    scale = np.ones(own + len(sizes))
    total = max(float((choices.weights * (choices.sizes > 0).sum(-1)).sum()), 1e-300)
    end = ascend(
        value, times, np.zeros_like(scale), tolerance * total / n, max_iterations, rough=1e-6 * total / n
    )
    value(end.parameters)
    return end, np.stack([times(column) for column in np.eye(len(scale))])


def all_log_ties(sizes: tuple[int, ...], log_ties: Tensor) -> Tensor:
    """The logarithms of the prevalences of all ties up to the largest, from those of the sizes given."""
    whole = log_ties.new_full((max(sizes, default=1),), -torch.inf)
    whole[0] = 0.0
    return whole.index_put((torch.tensor([size - 1 for size in sizes], dtype=torch.long),), log_ties)


def _symmetric(worth: Tensor, size: int) -> Tensor:
    """The elementary symmetric polynomial of degree ``size`` of every suffix: ``(rows, m)``."""
    after = torch.ones_like(worth)  # of the suffix after each place
    for _ in range(size):
        here = (worth * after).flip(-1).cumsum(-1).flip(-1)
        after = torch.nn.functional.pad(here[..., 1:], (0, 1))
    return here
