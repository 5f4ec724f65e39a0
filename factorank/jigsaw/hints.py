"""Training with hints: the encoder of the pieces learns the slot of each piece."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from factorank.jigsaw.encoder import Encoded, Pieces
from factorank.models import PermutationModel


class HintedModel(PermutationModel):
    r"""A jigsaw model whose loss also trains the encoder to predict the slot s of each piece:

    .. math:: -\log p(X) - h \sum_i \log q(s_i \mid \text{pieces}).

    A value of a Lehmer code counts the later pieces with smaller slots. No token can predict it before the
    slots are known, so without hints both have to be learnt at once. With hints the slots are learnt first.
    The model is saved, loaded and sampled as any other.
    """

    hints: float = 1.0
    """The weight h."""

    def loss(self, order: Tensor, context: Any = None, **randomness: Any) -> Tensor:
        assert isinstance(self.context, Pieces)
        tokens, logits = self.context.read(context)
        losses = super().loss(order, Encoded(tokens), **randomness)
        if logits is None or not self.training:
            return losses
        slot = order if self.context.direction == "slot-of-piece" else order.argsort(-1)
        slot_losses = F.cross_entropy(logits.flatten(0, -2), slot.flatten().long(), reduction="none")
        return losses + self.hints * slot_losses.view(order.shape).sum(-1)
