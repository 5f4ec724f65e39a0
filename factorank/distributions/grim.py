"""The generalized repeated insertion model: insertion probabilities that depend on what was inserted."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints

from factorank.codes import code
from factorank.distributions.base import PermutationDistribution
from factorank.distributions.drawing import draw_index
from factorank.distributions.parameters import as_orders, permutation, relative_to
from factorank.errors import DistributionError


class GRIM(PermutationDistribution):
    r"""The generalized repeated insertion model.

    As in the RIM, the items of ``reference`` are inserted one after the other, item ``reference[i]`` at slot
    :math:`V_i` of the list of those before it; but the probabilities may depend on all slots before:
    :math:`P(X) = \prod_i P(V_i \mid V_0, …, V_{i-1})`. Every law over orders can be written so.

    Args:
        conditional: called as ``conditional(slots)`` with the slots so far, int64 ``(*rows, i)``, once for
            each i from 1 to n - 1 (item 0 has only one slot). ``rows`` is the sample shape followed by the
            batch shape. It returns the logits of :math:`V_i`, ``(*rows, i + 1)`` or what broadcasts to it;
            they need not be normalised, and minus infinity forbids a slot. A module will do: gradients reach
            its parameters.
        reference: the order in which items are inserted, ``(*batch, n)``; it gives the batch shape.

    Entropy, marginals and mode are exact by enumeration up to n = 8; ``samples=`` gives estimates beyond.

    Lu and Boutilier, "Effective sampling and learning for Mallows models with pairwise-preference data",
    2014.

    >>> def repeat_the_last_slot(slots):
    ...     i = slots.shape[-1]
    ...     return 2.0 * torch.nn.functional.one_hot(slots[..., -1], i + 1)
    >>> law = GRIM(repeat_the_last_slot, reference=torch.arange(3))
    >>> law.log_prob(torch.tensor([[2, 1, 0], [0, 1, 2]])).exp()
    tensor([0.6932, 0.0127])
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {"reference": permutation}
    code_name = "insertion"
    reference: Tensor

    def __init__(
        self,
        conditional: Callable[[Tensor], Tensor],
        reference: Sequence[int] | Tensor,
        *,
        validate_args: bool | None = None,
    ) -> None:
        if not callable(conditional):
            raise DistributionError(
                "GRIM takes as conditional a callable that gives the logits of the next slot,"
                f" not a {type(conditional).__name__}"
            )
        self.conditional = conditional
        self.reference = as_orders(reference, "GRIM")
        super().__init__(self.reference.shape[:-1], self.reference.shape[-1], validate_args)

    def _parameters(self) -> dict[str, Any]:
        name = getattr(self.conditional, "__name__", type(self.conditional).__name__)
        return {"conditional": f"<{name}>", "reference": self.reference}

    def _taken(self, rows: Tensor) -> "GRIM":
        new = super()._taken(rows)
        new.conditional = _Rows(self.conditional, self.batch_shape, rows.to(self.device))
        return new

    def next_slot(self, slots: Tensor) -> Tensor:
        """Normalised log-probabilities ``(*rows, i + 1)`` of the slot after ``slots``, ``(*rows, i)``."""
        i = slots.shape[-1]
        if i == 0:
            return torch.zeros((*slots.shape[:-1], 1), device=slots.device)
        logits = self.conditional(slots)
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            got = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
            raise DistributionError(f"the conditional of GRIM returns floating logits, not {got}")
        expected = (*slots.shape[:-1], i + 1)
        try:
            logits = logits.expand(expected)
        except RuntimeError:
            raise DistributionError(
                f"the conditional of GRIM returns logits {expected} for slots {tuple(slots.shape)},"
                f" not {tuple(logits.shape)}"
            ) from None
        if self._validate_args and not torch.compiler.is_compiling():
            usable = (logits < math.inf).all(-1) & (logits > -math.inf).any(-1)
            if not torch._is_all_true(usable):
                row = tuple((~usable).nonzero()[0].tolist())
                raise DistributionError(
                    "the conditional of GRIM returns logits below infinity, some of them finite,"
                    f" but for slots {slots[row].tolist()} they are {logits[row].tolist()}"
                )
        return logits.log_softmax(-1)

    def _log_prob(self, order: Tensor) -> Tensor:
        slots = code("insertion").encode(relative_to(self.reference, order), check=False)
        total = torch.zeros(slots.shape[:-1], device=slots.device)
        for i in range(1, self.n):
            total = total + self.next_slot(slots[..., :i]).gather(-1, slots[..., i : i + 1]).squeeze(-1)
        return total.expand(torch.broadcast_shapes(total.shape, self.batch_shape))

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        slots = torch.zeros((*shape, *self.batch_shape, self.n), dtype=torch.int64, device=self.device)
        for i in range(1, self.n):
            slots[..., i] = draw_index(self.next_slot(slots[..., :i]), generator)
        relative = code("insertion").decode(slots, check=False)
        return self.reference.expand(relative.shape).gather(-1, relative)


class _Rows:
    """The conditional of some rows of a batch: it is asked for all rows, as it knows no fewer."""

    def __init__(self, conditional: Callable[[Tensor], Tensor], batch: torch.Size, rows: Tensor) -> None:
        self.conditional, self.batch, self.rows = conditional, batch, rows
        self.__name__ = getattr(conditional, "__name__", type(conditional).__name__)

    def __call__(self, slots: Tensor) -> Tensor:
        asked = slots[(..., *(None for _ in self.batch), slice(None))]
        asked = asked.expand(*slots.shape[:-1], *self.batch, slots.shape[-1])
        every = self.conditional(asked)
        every = every.expand(*asked.shape[:-1], every.shape[-1]).flatten(slots.ndim - 1, -2)
        index = self.rows.expand(slots.shape[:-1])[..., None, None]
        return every.take_along_dim(index, -2).squeeze(-2)
