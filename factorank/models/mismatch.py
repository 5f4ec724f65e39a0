"""Whether the tokens of a context stand at the positions of the code that they belong to."""

import warnings
from typing import TYPE_CHECKING

import torch

from factorank.models.context import may_be_items

if TYPE_CHECKING:
    from factorank.models.model import PermutationModel


def warn_of_mismatch(model: "PermutationModel", stacklevel: int) -> None:
    """Say once for each model, before it is trained, that tokens may stand at the wrong positions."""
    if model.warned or torch.compiler.is_compiling():
        return
    model.warned = True
    if (advice := mismatch(model)) is not None:
        warnings.warn(advice, UserWarning, stacklevel=stacklevel + 1)


def mismatch(model: "PermutationModel") -> str | None:
    """Why the tokens of the context may stand at the wrong positions of the code; None if they do not."""
    of_items = (model.code.positions == "items") == (model.target == "order")
    if of_items or not may_be_items(model.context):
        return None
    if model.target_given:
        if model.target == "order" or not getattr(model.context, "exchangeable", False):
            return None
        return (
            f"token i of the {type(model.context).__name__}, which is exchangeable and so that of item i,"
            f" goes to position i of the {model.code.name} code, which is place i with target='rank': the"
            " default target='order' learns more"
        )
    better = "target='rank' or code='insertion'" if model.code.factorized else "code='insertion'"
    return (
        f"token i of the {type(model.context).__name__} goes to position i of the {model.code.name} code,"
        f" which is place i of the order; if it is the token of item i, {better} learns more;"
        " target='order' says that it is not"
    )
