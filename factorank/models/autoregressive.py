"""The autoregressive objective, and the law of an autoregressive model: one position after the other."""

import torch
from torch import Tensor

from factorank.models.context import Known
from factorank.models.model import PermutationModel


def loss(model: PermutationModel, code: Tensor, present: Tensor | None, known: Known | None) -> Tensor:
    """The exact ``-log p`` of each code ``(*batch, n)``."""
    chosen = log_probs(model, code, model.memory(known, present))
    return -(chosen if present is None else torch.where(present, chosen, 0)).sum(-1)


def log_probs(model: PermutationModel, code: Tensor, memory: Known | None) -> Tensor:
    """The log-probability of every value ``(*rows, n)`` of the codes, given those before it."""
    logits = model.head(model.causal_hidden(code, memory))
    return logits.log_softmax(-1).gather(-1, code[..., None]).squeeze(-1)
