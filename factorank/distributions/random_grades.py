"""The law of the order of items that have independent random grades."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.parameters import as_reals, finite_vector
from factorank.errors import DistributionError


class RandomGrades(PermutationDistribution):
    r"""Every item has a random grade, independently; the order sorts the items by grade, the lowest first.

    Items of equal grade keep their order among 0..n-1, as in a stable sort. With :math:`p_j(g)` the
    probability that item j has grade g, an order X has the probability of all grades that lead to it,

    .. math:: P(X) = \sum_{g_0 \preceq g_1 \preceq \ldots} \prod_i p_{X_i}(g_i),

    where :math:`\preceq` is < if :math:`X_i > X_{i+1}` and ≤ if not. The sum is exact: it is taken from the
    first place to the last, in n · grades steps. This is a random utility model (Thurstone, "A law of
    comparative judgment", 1927) on a finite scale.

    Args:
        logits: of the grades of each item, ``(*batch, n, grades)``, finite.

    >>> law = RandomGrades(torch.tensor([[0.0, 0.0], [0.0, 0.0]]))  # two coins
    >>> law.log_prob(torch.tensor([[0, 1], [1, 0]])).exp()
    tensor([0.7500, 0.2500])
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "logits": constraints.independent(finite_vector.base_constraint, 2)
    }
    logits: Tensor

    def __init__(self, logits: Sequence[Any] | Tensor, *, validate_args: bool | None = None) -> None:
        self.logits = as_reals(logits)
        if self.logits.ndim < 2 or self.logits.shape[-1] < 1:
            raise DistributionError(
                f"RandomGrades takes logits (*batch, n, grades), not {tuple(self.logits.shape)}"
            )
        super().__init__(self.logits.shape[:-2], self.logits.shape[-2], validate_args)

    @property
    def sorted_by_likely_grades(self) -> Tensor:
        """The items sorted by their most likely grades, ``(*batch, n)``: a likely order at any n.

        It has the largest expected number of items whose grade is guessed right.
        """
        return self.logits.argmax(-1).argsort(dim=-1, stable=True)

    def _log_prob(self, order: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(order.shape[:-1], self.batch_shape)
        order = order.expand(*shape, self.n)
        probs = self.logits.double().softmax(-1).expand(*shape, *self.logits.shape[-2:])
        listed = probs.gather(-2, order[..., None].expand_as(probs)).unbind(-2)
        later = (order[..., 1:] > order[..., :-1])[..., None]  # than the item before: grades may be equal
        total = torch.zeros(shape, dtype=torch.float64, device=order.device)
        below = torch.ones((), dtype=torch.float64, device=order.device)
        for place, grade in enumerate(listed):
            # below: that the items so far are in order with grades that leave this one to the next item.
            reached = below * grade
            norm = reached.sum(-1, keepdim=True)
            total = total + norm.squeeze(-1).log()
            # Too few grades for so many steps down: the order is impossible.
            below = (reached / torch.where(norm > 0, norm, 1.0)).cumsum(-1)
            if place < self.n - 1:
                strictly = torch.nn.functional.pad(below[..., :-1], (1, 0))
                below = torch.where(later[..., place, :], below, strictly)
        return total.to(self.logits.dtype)

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        cumulative = self.logits.double().softmax(-1).cumsum(-1)
        cumulative = (cumulative / cumulative[..., -1:]).contiguous()
        draws = (*self.batch_shape, self.n, shape.numel())
        uniform = torch.rand(draws, dtype=torch.float64, device=self.device, generator=generator)
        drawn = torch.searchsorted(cumulative, uniform, right=True).movedim(-1, 0)
        return drawn.view(*shape, *self.batch_shape, self.n).argsort(dim=-1, stable=True)
