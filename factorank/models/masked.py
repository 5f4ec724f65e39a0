"""The masked objective, and the laws of a masked model: positions revealed block by block."""

import torch
from torch import Tensor

from factorank.models.context import Known
from factorank.models.model import PermutationModel


def loss(
    model: PermutationModel,
    code: Tensor,
    present: Tensor | None,
    known: Known | None,
    shift: Tensor,
    scores: Tensor,
) -> Tensor:
    """An unbiased estimate of the any-order bound for each code ``(*batch, n)``; see ``PermutationModel.loss``.

    ``shift ()`` and ``scores (*batch, n)`` are uniform on [0, 1).
    """
    n, device = model.n, code.device
    rows = code.shape[:-1].numel()
    length = torch.full((), n, device=device) if present is None else present.sum(-1).reshape(-1)
    # Strata: one uniform shift of an even grid. Each count is uniform on 1..length, and together they are
    # spread as evenly as can be, which takes most of the variance out of the batch's mean.
    spread = torch.arange(rows, device=device) / max(rows, 1) + shift
    count = (spread.frac() * length).long().clamp(max=length - 1).clamp(min=0) + 1
    scores = scores.reshape(rows, n)
    if present is not None:
        scores = torch.where(present.reshape(-1, n), scores, 2.0)
    threshold = scores.sort(-1).values.gather(-1, count[:, None] - 1)
    masked = (scores <= threshold) & (scores < 2)
    weight = length / masked.sum(-1).clamp(min=1)

    masked, weight = masked.view(code.shape), weight.view(code.shape[:-1])
    hidden = model.hidden(torch.where(masked, model.mask_value, code), known, present)
    log_probs = model.head(hidden).log_softmax(-1)
    chosen = log_probs.gather(-1, code[..., None]).squeeze(-1)
    return -weight * torch.where(masked, chosen, 0).sum(-1)
