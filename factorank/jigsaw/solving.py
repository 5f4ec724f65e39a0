"""Solving batches of puzzles with a model: the likeliest order of its law."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from factorank.assignment import best_assignment
from factorank.baselines.ordering import OrderingModel
from factorank.errors import FactorankError
from factorank.jigsaw.model import JigsawModel
from factorank.kernels.gpu.graphs import replayed
from factorank.models import PermutationLaw, PermutationModel
from factorank.models.network import evaluating


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


@torch.no_grad()
def solve_puzzles(model: JigsawModel, pieces: Tensor, search: Search | None = None) -> Tensor:
    """The model's solutions ``(batch, n)`` of puzzles, uint8 ``(batch, n, piece, piece, 3)``.

    They are read in the direction of the model; see :mod:`factorank.jigsaw.puzzles`. On a GPU the work is
    replayed when puzzles of that shape come again.
    """
    search = search or Search()
    with precision_of(pieces.device):
        if isinstance(model, OrderingModel):
            if search.assign or search.nfe is not None:
                raise FactorankError("assign and nfe are for our models, not for baselines")
            return model.solve(pieces, beam=search.beam)
        if assigns(model, search):
            return best_assignment(value_log_probs(model, pieces))
        if model.objective == "autoregressive":
            return law_of(model, pieces, search).mode
        return replayed(model, search, lambda p: law_of(model, p, search).mode, pieces, len(pieces) * model.n)


def law_of(model: PermutationModel, pieces: Tensor, search: Search) -> PermutationLaw:
    """The law that is searched."""
    if model.objective == "autoregressive":
        return model.distribution(pieces, nfe=search.nfe, unmask=search.unmask, beam=search.beam)
    nfe = 1 if search.nfe is None else search.nfe
    return model.distribution(pieces, nfe=nfe, unmask=search.unmask or "confident")


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
        return replayed(model, "values", evaluated, pieces, len(pieces) * model.n)


def precision_of(device: torch.device) -> AbstractContextManager[Any]:
    """bfloat16 on CUDA, in which the models are trained there; float32 elsewhere."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
