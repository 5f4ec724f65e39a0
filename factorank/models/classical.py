"""The paper's remarks as constructors: models that equal a classical law from the start, at any NFE.

The head's map is set to zero and its table of biases to the law's log-probabilities of each code position, so
that the network's tokens do not matter; training can go on from there.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from factorank.errors import ModelError

if TYPE_CHECKING:
    from factorank.distributions import RIM, Mallows
    from factorank.models.model import PermutationModel


def from_mallows(cls: "type[PermutationModel]", law: "Mallows", **network: Any) -> "PermutationModel":
    r"""A Lehmer model that equals a (weighted) Mallows law, at one NFE and at any other.

    Its logits are :math:`w_j v \log\phi` at position j. ``network`` takes the objective, width and so on of
    the constructor.

    >>> import factorank as fr
    >>> law = fr.Mallows(torch.tensor([2, 0, 1]), phi=0.5)
    >>> model = fr.PermutationModel.from_mallows(law, width=8, depth=1, heads=1)
    >>> order = torch.tensor([0, 2, 1])
    >>> bool(model.distribution(nfe=1).log_prob(order).isclose(law.log_prob(order)))
    True
    """
    _one_law(law)
    n = law.central.shape[-1]
    weights = torch.ones(n) if law.weights is None else law.weights
    steps = weights.double()[:, None] * torch.arange(n, device=weights.device)
    logits = torch.where(steps == 0, 0.0, steps * law.phi.double().log())  # 0 log 0 is 0: phi = 0 is allowed
    return _factorized(cls, "lehmer", logits, law.central, network)


def from_rim(cls: "type[PermutationModel]", law: "RIM", **network: Any) -> "PermutationModel":
    """An insertion model that equals a repeated insertion model, at one NFE and at any other."""
    _one_law(law)
    return _factorized(cls, "insertion", law.logits, law.reference, network)


def _one_law(law: "Mallows | RIM") -> None:
    if len(law.batch_shape):
        raise ModelError(f"a model is made from one law, not from a batch of shape {tuple(law.batch_shape)}")


def _factorized(
    cls: "type[PermutationModel]", code: str, logits: Tensor, reference: Tensor, network: dict[str, Any]
) -> "PermutationModel":
    if network.get("target") == "rank":
        raise ModelError("a model of a classical law encodes orders, not ranks", parameter="target")
    n = logits.shape[-1]
    identity = bool((reference == torch.arange(n, device=reference.device)).all())
    model = cls(n, code, reference=None if identity else reference.cpu(), **network)
    head = model.network.head
    with torch.no_grad():
        head.weight.zero_()
        # The head excludes values outside of the domain by itself; the table need not hold infinities there.
        head.bias.copy_(torch.where(head.allowed, logits.detach().to(head.bias), 0))
    return model.eval()
