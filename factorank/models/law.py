"""What the laws of both objectives share: shapes, checks, probabilities, estimates."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.types import _size

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.conditioning.rules import Effort, conditioning_rule
from factorank.distributions.parameters import permutation
from factorank.errors import FactorankError, ModelError
from factorank.models import orders
from factorank.models.chunks import Sampler, aligned, batch_of, check_possible, chunks, score
from factorank.models.conditions import Conditions, first_fixed
from factorank.models.drafting import Draft
from factorank.models.network import evaluating
from factorank.models.unmasking import Step, Unmasking
from factorank.permutations import checked_shape, is_permutation
from factorank.sampling.choosers import Chooser
from factorank.sampling.speculative import DraftReport

if TYPE_CHECKING:
    from factorank.models.model import PermutationModel


class PermutationLaw(PermutationDistribution):
    """The law of the orders that a model has learnt: a :class:`PermutationDistribution` like the classical
    ones.

    Made by :meth:`PermutationModel.distribution`. ``batch_shape`` is that of the context, which is encoded
    when the law is made. The NFE and the way of unmasking belong to the law, so that ``sample`` and
    ``log_prob`` speak of the same one. Dropout is off.

    ``support`` is wider than the permutations for inline codes, which can leave them, and for lists shorter
    than n, which end in -1. ``exact`` is False where the partition is random and ``log_prob`` is not offered.
    ``estimates`` names what has no closed form and is too large to enumerate: it is then the mean over
    ``DEFAULT_SAMPLES`` draws. Where the partition is random, entropies and divergences rest on
    ``log_prob_estimate``: the entropy is then too high on average, a divergence from the law too low.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_rsample = False
    error: ClassVar[type[FactorankError]] = ModelError
    largest_enumerated = 7
    draft: Draft | None = None
    beam_width: int = 1
    """How many codes the search for the mode keeps."""

    def __init__(
        self, model: "PermutationModel", conditions: Conditions, batch_shape: torch.Size, unmasking: Unmasking
    ) -> None:
        super().__init__(batch_shape, model.n)
        self.model, self.conditions, self.unmasking = model, conditions, unmasking
        self.nfe, self.unmask = unmasking.nfe, unmasking.unmask
        self._sampler = Sampler(self)

    def _walk(
        self,
        conditions: Conditions,
        samples: int,
        chooser: Chooser,
        generator: torch.Generator | None,
        score: bool = False,
    ) -> Iterator[Step]:
        """Reveal the codes of ``samples`` orders for each row, beginning with nothing revealed."""
        raise NotImplementedError

    def _score(self, conditions: Conditions, code: Tensor, generator: torch.Generator | None) -> Tensor:
        """The log-probability of codes ``(samples, rows, n)`` that agree with the conditions."""
        raise NotImplementedError

    def _mode(self, conditions: Conditions) -> Tensor:
        """Likely codes ``(rows, n)``."""
        raise NotImplementedError

    # What a law says of itself.

    @property
    def support(self) -> constraints.Constraint:  # type: ignore[override]
        """Permutations; for inline, which can leave them, all sequences of 0..n-1."""
        if self.model.code.factorized and self.conditions.present is None:
            return permutation
        least = 0 if self.conditions.present is None else -1
        return constraints.independent(constraints.integer_interval(least, self.n - 1), 1)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def estimates(self) -> frozenset[str]:
        exact = self.enumerable and self.model.code.factorized
        return frozenset() if exact else frozenset({"entropy", "marginals", "mean_ranks"})

    @property
    def enumerable(self) -> bool:
        return super().enumerable and self.conditions.present is None

    # Draws.

    @torch.no_grad()
    def sample_with_nfe(
        self, sample_shape: _size = (), *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """:meth:`sample`, and how many network evaluations each took: ``(*sample_shape, *batch)``."""
        shape = checked_shape(sample_shape, ModelError)
        nfe = torch.zeros((shape.numel(), self.conditions.rows), dtype=torch.int64, device=self.device)
        order = self._sampler.sample(shape.numel(), generator, nfe)
        whole = torch.Size((*shape, *self.batch_shape))
        return order.view(*whole, self.n), nfe.view(whole)

    @torch.no_grad()
    def sample_with_report(
        self, sample_shape: _size = (), *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, DraftReport]:
        """:meth:`sample` of a law with a draft, and the passes and rows that it took."""
        if self.draft is None:
            raise ModelError("this law has no draft: model.distribution(…, draft='self') has one")
        shape, report = checked_shape(sample_shape, ModelError), DraftReport()
        order = self._sampler.sample(shape.numel(), generator, report=report)
        return order.view(*shape, *self.batch_shape, self.n), report

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        return self._sampler.sample(shape.numel(), generator).view(*shape, *self.batch_shape, self.n)

    @torch.no_grad()
    def stratified(self, samples: int, *, generator: torch.Generator | None = None) -> Tensor:
        """Orders ``(samples, *batch, n)`` that are spread evenly: each follows the law, and together they
        give means with less noise than independent draws (see
        :class:`factorank.sampling.choosers.StratifiedDraw`).
        """
        self._check_samples(samples)
        return self._sampler.stratified(samples, generator).view(samples, *self.batch_shape, self.n)

    def _draws(self, samples: int, generator: torch.Generator | None) -> Tensor:
        return self.stratified(samples, generator=generator)

    def path(
        self, sample_shape: _size = (), *, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Watch samples being drawn: after each step the codes, -1 where hidden, and orders they stand for.

        A partly revealed code of a factorized kind always stands for a permutation: hidden positions are read
        as those of the reference order. Both are ``(*sample_shape, *batch, n)``; the first pair is the start.

        >>> import factorank as fr
        >>> model = fr.PermutationModel(3, "lehmer", width=8, depth=1, heads=2)
        >>> [order.tolist() for code, order in model.distribution(nfe=3).path()][0]
        [0, 1, 2]
        """
        return self._sampler.path(checked_shape(sample_shape, ModelError), generator)

    # Probabilities.

    def log_prob(self, order: Tensor) -> Tensor:
        """The log-probability, in nats, of each order ``(*sample, *batch, n)``; shapes broadcast.

        Exact, and offered where the partition is fixed by the law: left-to-right, right-to-left, confident,
        one block, or autoregressive. Inline laws also take sequences that are no permutations.
        """
        if not self.exact:
            raise ModelError(self.unmasking.no_log_prob)
        return self._log_prob(order)

    def log_prob_bound(
        self, order: Tensor, *, samples: int = 16, generator: torch.Generator | None = None
    ) -> Tensor:
        r"""An unbiased estimate of :math:`\mathbb{E}_S \log p_S(x) \le \log p(x)`, over random partitions S.

        Where ``log_prob`` is offered this is ``log_prob``.
        """
        if self.exact:
            return self._log_prob(order)
        return self._over_partitions(order, samples, generator).mean(0)

    def log_prob_estimate(
        self, order: Tensor, *, samples: int = 16, generator: torch.Generator | None = None
    ) -> Tensor:
        r"""The logarithm of a Monte-Carlo mean of :math:`p_S(x)` over random partitions S.

        Too low on average, by less and less as ``samples`` grows. Where ``log_prob`` is offered this is
        ``log_prob``.
        """
        if self.exact:
            return self._log_prob(order)
        return self._over_partitions(order, samples, generator).logsumexp(0) - math.log(samples)

    def nfe_of(self, order: Tensor) -> Tensor:
        """How many network evaluations it takes to draw each order: ``(*sample, *batch)``, int64.

        As many as the law's ``nfe``, or as there are free positions if those are fewer.
        """
        return torch.full(aligned(self, order)[2], self.n, device=order.device)

    def _log_prob_of_draws(self, drawn: Tensor, generator: torch.Generator | None) -> Tensor:
        # Under random partitions this is too low on average, and so the entropy too high.
        return self.log_prob_estimate(drawn, generator=generator)

    def leak(self, *, samples: int | None = None, generator: torch.Generator | None = None) -> Tensor:
        """The probability that an order is not a permutation, ``(*batch,)``: zero unless the code is inline.

        Exact by enumeration up to n = 7 where ``log_prob`` is exact; with ``samples`` a share of draws.
        """
        if self.model.code.factorized:
            return torch.zeros(self.batch_shape, device=self.device)
        if samples is not None:
            drawn = self.sample((samples,), generator=generator)
            return 1 - is_permutation(drawn).to(torch.get_default_dtype()).mean(0)
        return (1 - self._enumerated("leak")[1].exp().sum(0)).clamp(min=0)

    def mean_ranks(self, *, samples: int | None = None, generator: torch.Generator | None = None) -> Tensor:
        """The expected place of each item: ``(*batch, n)``; NaN after a list's end."""
        if not self.model.code.factorized:
            raise ModelError("mean_ranks needs permutations, which inline laws do not always give")
        ranks = super().mean_ranks(samples=samples, generator=generator)
        present = self.conditions.present
        return ranks if present is None else torch.where(present.view(ranks.shape), ranks, torch.nan)

    def _whole(self, drawn: Tensor) -> Tensor:
        """Orders of n items: what is past the end of a list stands at its own place."""
        if self.conditions.present is None:
            return drawn
        return torch.where(drawn < 0, torch.arange(self.n, device=drawn.device), drawn)

    @property
    @torch.no_grad()
    def mode(self) -> Tensor:
        """A likely order ``(*batch, n)``: the most likely value of each position as it is revealed.

        The most likely order at one NFE, in general a good guess. Under random partitions positions are
        revealed in the confident order; autoregressive laws search with a beam.
        """
        found = [torch.empty((0, self.n), dtype=torch.int64, device=self.device)]
        with evaluating(self.model):
            for conditions, _, _ in chunks(self, 1, at_once=self.beam_width):
                found.append(conditions.decode(self.model, self._mode(conditions)[None])[0])
        return torch.cat(found[1:] or found).view(*self.batch_shape, self.n)

    def expand(self, batch_shape: _size, _instance: Self | None = None) -> Self:
        new = super().expand(batch_shape, _instance)
        return self._conditional(new, lambda some: some.expand(self.batch_shape, new.batch_shape))

    def _taken(self, rows: Tensor) -> Self:
        index = rows.flatten().to(self.device)
        return self._conditional(super()._taken(rows), lambda some: some.at(index))

    def _conditional(self, new: Self, change: Callable[[Conditions], Conditions]) -> Self:
        """``new`` with the conditions of this law changed, and those of its draft."""
        new.conditions, new._sampler = change(self.conditions), Sampler(new)
        if self.draft is not None and self.draft.conditions is not None:
            new.draft = dataclasses.replace(self.draft, conditions=change(self.draft.conditions))
        return new

    def __repr__(self) -> str:
        shown = {"n": self.n, "code": self.model.code.name, **self.unmasking.shown}
        shown["batch_shape"] = tuple(self.batch_shape)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _conditioned(self, observed: Tensor, effort: Effort) -> PermutationDistribution | None:
        """The law given the order of the items ``(r,)``, if it has a closed form; see :meth:`condition`."""
        return None

    def _with_first_fixed(self, observed: Tensor) -> "PermutationLaw | None":
        """The law that reveals one position after the other, the first ones fixed by the observed order."""
        conditions = first_fixed(self.model, self.conditions, observed)
        if conditions is None:
            return None
        check_possible(self, observed, conditions.fixed)
        law = self.expand(self.batch_shape)
        law.conditions = conditions
        return law

    # Orders of any batch, in chunks.

    def numbers_per_draw(self) -> int:
        """How many numbers of one sample the widest tensor holds while it is drawn after the first."""
        return self.n * max(4 * self.model.width, 2 * self.n)

    def _log_prob(self, order: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return score(self, order, generator)

    def _over_partitions(self, order: Tensor, samples: int, generator: torch.Generator | None) -> Tensor:
        if self.unmasking.remask:
            raise ModelError(self.unmasking.no_log_prob)
        self._check_samples(samples)
        orders.check_length(order, self.n)
        return self._log_prob(order.expand(samples, *batch_of(self, order), self.n), generator)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if not self.model.code.factorized:
            raise ModelError("the support of an inline law is not listed: it can leave the permutations")
        return super().enumerate_support(expand)

    def _listed(self, what: str) -> Tensor:
        if self.conditions.present is not None:
            raise ModelError(f"{what} lists all orders of n items, but the lists here are shorter")
        return super()._listed(what)

    def _enumerated(self, what: str) -> tuple[Tensor, Tensor]:
        if not self.exact:
            raise ModelError(
                f"{what} lists all orders, which is offered where log_prob is exact;"
                " samples= gives an estimate"
            )
        return super()._enumerated(what)


@conditioning_rule(PermutationLaw)
def _by_closed_form(law: PermutationLaw, observed: Tensor, effort: Effort) -> PermutationDistribution | None:
    if law.conditions.present is not None:
        raise ModelError(
            "a law of lists shorter than n (inside vmap: unless model.padded = False) is not conditioned;"
            " model.distribution(context, observed=…) is"
        )
    return law._conditioned(observed, effort)
