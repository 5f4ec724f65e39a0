"""Solving batches of puzzles with a model: the likeliest order of its law, or of several tries."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from factorank.assignment import best_assignment
from factorank.baselines.ordering import OrderingModel
from factorank.errors import FactorankError
from factorank.jigsaw.model import JigsawModel, pieces_of
from factorank.kernels.gpu.graphs import replayed
from factorank.models import PermutationModel
from factorank.models.autoregressive import AutoregressiveLaw
from factorank.models.network import evaluating
from factorank.permutations import random_permutations


@dataclass(frozen=True)
class Search:
    """How the law of a model is searched for the solution of a puzzle."""

    nfe: int | None = None
    """For masked models: in how many evaluations the solution is revealed. None: 1."""
    unmask: str | None = None
    """For masked models: which positions are revealed first. None: the most certain ones."""
    beam: int | None = None
    """For autoregressive models and riffle diffusion: how many beginnings of solutions are kept. None: 8, and
    for riffle diffusion 200."""
    assign: bool | None = None
    """For masked inline models at one evaluation, whose single best values can collide: take the likeliest
    permutation of all. None: wherever it is possible."""
    tries: int = 1
    """In how many random orders the pieces go to the model; the likeliest solution is kept. For our models
    with an exact likelihood."""

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise FactorankError(f"a puzzle is tried at least once, not {self.tries} times")


@torch.no_grad()
def solve_puzzles(model: JigsawModel, pieces: Tensor, search: Search | None = None) -> Tensor:
    """The model's solutions ``(batch, n)`` of puzzles, uint8 ``(batch, n, piece, piece, 3)``.

    They are read in the direction of the model; see :mod:`factorank.jigsaw.puzzles`.
    """
    search = search or Search()
    with precision_of(pieces.device):
        if isinstance(model, OrderingModel):
            if search.assign or search.tries > 1 or search.nfe is not None:
                raise FactorankError("assign, tries and nfe are for our models, not for baselines")
            return model.solve(pieces, beam=search.beam)
        best, best_log_prob = likeliest_order(model, pieces, search, score=search.tries > 1)
        generator = torch.Generator().manual_seed(0)
        for _ in range(search.tries - 1):
            shuffle = random_permutations(model.n, pieces.shape[:1], generator=generator).to(pieces.device)
            shuffled = pieces.gather(1, shuffle[..., None, None, None].expand_as(pieces))
            order, log_prob = likeliest_order(model, shuffled, search)
            if pieces_of(model).direction == "slot-of-piece":
                order = torch.empty_like(order).scatter_(1, shuffle, order)
            else:
                order = shuffle.gather(1, order)
            assert best_log_prob is not None
            assert log_prob is not None
            better = log_prob > best_log_prob
            best = torch.where(better[:, None], order, best)
            best_log_prob = torch.where(better, log_prob, best_log_prob)
        return best


def likeliest_order(
    model: PermutationModel, pieces: Tensor, search: Search, *, score: bool = True
) -> tuple[Tensor, Tensor | None]:
    """The likeliest orders ``(batch, n)`` that the search finds in one try.

    With ``score`` also their log-probabilities ``(batch,)``. Where values are assigned these are those of the
    independent values, not of the permutations.
    """
    if assigns(model, search):
        log_probs = value_log_probs(model, pieces)
        order = best_assignment(log_probs)
        return order, log_probs.gather(-1, order[..., None]).squeeze(-1).sum(-1)
    if model.objective == "masked":
        nfe = 1 if search.nfe is None else search.nfe
        how: dict[str, Any] = {"nfe": nfe, "unmask": search.unmask or "confident"}
        order = _replayed(model, ("mode", *how.values()), lambda p: model.distribution(p, **how).mode, pieces)
        return order, (model.distribution(pieces, **how).log_prob(order) if score else None)
    law = model.distribution(pieces, nfe=search.nfe, unmask=search.unmask)
    if search.beam is not None and isinstance(law, AutoregressiveLaw):
        orders, log_probs = law.beam(search.beam)
        return orders[:, 0], log_probs[:, 0]
    order = law.mode
    return order, (law.log_prob(order) if score else None)


def assigns(model: JigsawModel, search: Search) -> bool:
    """Whether the search assigns the values of a model to its positions."""
    able = isinstance(model, PermutationModel) and model.code.name == "inline" and model.objective == "masked"
    able = able and search.nfe in (None, 1)
    if search.assign and not able:
        raise FactorankError("assign is for masked inline models at one evaluation")
    return able if search.assign is None else search.assign


def value_log_probs(model: PermutationModel, pieces: Tensor) -> Tensor:
    """The log-probabilities ``(batch, n, n)``, position by value, of a masked model at one evaluation."""

    def evaluated(pieces: Tensor) -> Tensor:
        masked = torch.full((model.n,), -1, device=pieces.device)
        return model.logits(masked, pieces, check=False).log_softmax(-1)

    with evaluating(model):
        return _replayed(model, "values", evaluated, pieces)


def precision_of(device: torch.device) -> AbstractContextManager[Any]:
    """bfloat16 on CUDA, in which the models are trained there; float32 elsewhere."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def _replayed(
    model: PermutationModel, key: Any, function: Callable[[Tensor], Tensor], pieces: Tensor
) -> Tensor:
    """A function of the pieces, replayed on a GPU when puzzles of that shape come again."""
    return replayed(model, key, function, pieces, len(pieces) * model.n)
