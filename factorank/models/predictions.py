"""What a masked model predicts for the rows of a law, without computing the same twice."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from factorank.models.conditions import Conditions
from factorank.permutations import cannot_check

if TYPE_CHECKING:
    from factorank.models.model import PermutationModel


def first_logits(model: "PermutationModel", conditions: Conditions) -> Tensor:
    """What a masked model predicts, ``(rows, n, values)``, before anything is revealed.

    All samples of a row are alike then: one evaluation serves them, and is kept.
    """
    if conditions.first_logits is None:
        hidden = model.network.hidden(conditions.start(model), conditions.context, conditions.present)
        conditions.first_logits = model.network.head(hidden)
    return conditions.first_logits


def logits_at(
    model: "PermutationModel", conditions: Conditions, code: Tensor, positions: Tensor | None
) -> Tensor:
    """What a masked model predicts at positions ``(samples, rows, some)`` of codes, all if None.

    Samples of one context that agree so far are evaluated once on the CPU: of a law with few likely orders
    these are most.
    """
    back = None
    alone = conditions.rows == 1 and code.device.type == "cpu" and not torch.is_grad_enabled()
    if alone and len(code) > 1 and not cannot_check(code):
        asked = code if positions is None else torch.cat([code, positions.expand(len(code), 1, -1)], -1)
        asked, back = asked.unique(dim=0, return_inverse=True)
        code, positions = asked[..., : model.n], None if positions is None else asked[..., model.n :]
    hidden = model.network.hidden(code, conditions.context, conditions.present, positions)
    logits = model.network.head(hidden, positions)
    return logits if back is None else logits[back]
