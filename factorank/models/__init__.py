"""Learnable laws over permutations: a code, a transformer, and the masked or the autoregressive objective."""

from factorank.models.context import ItemContext, TokenContext, register_context
from factorank.models.law import PermutationLaw
from factorank.models.model import PermutationModel

__all__ = [
    "ItemContext",
    "PermutationLaw",
    "PermutationModel",
    "TokenContext",
    "register_context",
]
