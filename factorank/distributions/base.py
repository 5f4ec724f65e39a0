"""What every law over permutations shares: shapes, checks, enumeration and Monte Carlo."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.distributions.constraints import Constraint
from torch.types import _size

from factorank.distributions.conditioning.rules import MAX_DRAWS, MAX_STATES, Effort, condition
from factorank.distributions.derived import Batched, derived
from factorank.distributions.drawing import Estimate, count_places, mean_estimate
from factorank.distributions.parameters import check_orders, check_parameter, permutation, show
from factorank.lexicographic import permutation_at
from factorank.permutations import checked_shape, inverse

if TYPE_CHECKING:
    from factorank.distributions.fitting.report import FitReport

LARGEST_ENUMERATED = 8
"""The largest n for which a classical law lists all n! permutations (8! = 40,320)."""
DEFAULT_SAMPLES = 1024
"""Draws of an estimate where their number is not given."""


class PermutationDistribution(Batched):
    r"""A probability law over the orders ``(n,)`` of n items.

    It is a :class:`torch.distributions.Distribution`: it has batch shapes, ``expand``, ``sample`` with any
    sample shape and ``log_prob`` with gradients to the parameters, and works in ``MixtureSameFamily``. Orders
    are int64, best item first. ``mean_ranks``, ``marginals`` and ``condition`` are added to torch's methods.

    Results are exact. A classical law refuses where nothing exact is feasible; methods that take ``samples=``
    then give a Monte-Carlo estimate. A learned law (:class:`factorank.models.PermutationLaw`) estimates what
    ``estimates`` names without being asked. :meth:`estimate` gives an estimate with its standard error.

    A law of your own defines ``arg_constraints`` (for each of its tensors ``(*batch, *own)``, by name),
    ``_log_prob`` and ``_sample``. Everything else then works: by enumeration up to n = 8, by a formula where
    the law overrides ``_entropy``, ``_marginals``, ``_mean_ranks`` or ``mode``, and ``condition`` by a rule
    (:func:`factorank.distributions.conditioning.rules.conditioning_rule`), by enumeration or by rejection. A
    law with fewer or more orders overrides ``_listed``.
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    support = permutation
    has_enumerate_support = True
    largest_enumerated: int = LARGEST_ENUMERATED
    """The largest n for which all orders are listed."""
    exact: bool = True
    """Whether ``log_prob`` is the log-probability of what ``sample`` draws; approximations say no."""
    effective_sample_size: Tensor | None = None
    """How many draws an approximation by weighted or accepted draws is worth; None for other laws."""
    report: "FitReport | None" = None
    """The report of the fit; None for a law that was not fitted."""

    def __init__(self, batch_shape: _size, n: int, validate_args: bool | None = None) -> None:
        batch_shape = checked_shape(batch_shape, self.error)
        super().__init__(batch_shape, torch.Size((n,)), validate_args=False)
        # On by default: torch.compile turns torch's own default off for the whole process.
        self._validate_args = True if validate_args is None else validate_args
        if self._validate_args:
            for name, constraint in self.arg_constraints.items():
                if name in self.__dict__ and self.__dict__[name] is not None:
                    check_parameter(type(self).__name__, name, self.__dict__[name], constraint)

    # What a law defines.

    def _log_prob(self, order: Tensor) -> Tensor:
        """Log-probability of checked int64 orders, whose shape broadcasts with ``(*batch, n)``."""
        raise NotImplementedError

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        """Draw int64 ``(*shape, *batch, n)``; called without gradients."""
        raise NotImplementedError

    def _parameters(self) -> dict[str, Any]:
        """What the representation shows, by name."""
        return {
            name: self.__dict__[name] for name in self.arg_constraints if self.__dict__.get(name) is not None
        }

    @property
    def estimates(self) -> frozenset[str]:
        """Which of "entropy", "marginals" and "mean_ranks" are estimated where ``samples`` is not given."""
        return frozenset()

    @property
    def enumerable(self) -> bool:
        """Whether the law can list all orders with their probabilities."""
        return self.exact and self.n <= self.largest_enumerated

    @property
    def device(self) -> torch.device:
        """Where the parameters are, and the samples will be."""
        kinds = (Tensor, PermutationDistribution)
        return next(value.device for value in vars(self).values() if isinstance(value, kinds))

    # What every law has.

    @property
    def n(self) -> int:
        """The number of items."""
        return self._event_shape[0]

    def sample(self, sample_shape: _size = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw orders ``(*sample_shape, *batch, n)``, int64, from ``generator`` or torch's own."""
        with torch.no_grad():
            return self._sample(checked_shape(sample_shape, self.error), generator)

    def log_prob(self, order: Tensor) -> Tensor:
        """The log-probability, in nats, of each order ``(*sample, *batch, n)``: ``(*sample, *batch)``.

        Shapes broadcast. With validation on (the default) rows that are no permutations are refused; on a GPU
        that costs one synchronisation.
        """
        if self._validate_args:
            self._validate_sample(order)
        return self._log_prob(order.to(torch.int64))

    def entropy(self, *, samples: int | None = None, generator: torch.Generator | None = None) -> Tensor:
        """The entropy in nats, ``(*batch,)``.

        Exact, by a formula or by enumeration; where neither is feasible refused, or estimated if
        ``estimates`` says so. With ``samples`` it is the mean of that many draws of ``-log_prob``, an
        unbiased estimate.
        """
        if samples is not None or "entropy" in self.estimates:
            return self.estimate("entropy", samples=samples, generator=generator).value
        return self._entropy() if self.n > 1 else -self._certain()

    def marginals(self, *, samples: int | None = None, generator: torch.Generator | None = None) -> Tensor:
        """The probability that an item stands at a place: ``(*batch, item, place)``.

        Rows and columns sum to one. Exact, refused or estimated like the entropy; with ``samples`` it is the
        share of that many draws, an unbiased estimate.
        """
        if samples is not None or "marginals" in self.estimates:
            return self.estimate("marginals", samples=samples, generator=generator).value
        if self.n > 1:
            return self._marginals()
        return self._certain().exp()[..., None, None].expand(*self.batch_shape, self.n, self.n)

    def mean_ranks(self, *, samples: int | None = None, generator: torch.Generator | None = None) -> Tensor:
        """The expected place of each item, 0 the best: ``(*batch, n)``; exact or estimated like marginals."""
        if samples is not None or "mean_ranks" in self.estimates:
            return self.estimate("mean_ranks", samples=samples, generator=generator).value
        return self._mean_ranks()

    def estimate(
        self,
        what: str,
        *,
        samples: int | None = None,
        other: "PermutationDistribution | None" = None,
        generator: torch.Generator | None = None,
    ) -> Estimate:
        """A Monte-Carlo estimate of "entropy", "marginals", "mean_ranks" or, with an ``other`` law,
        "kl_divergence" (of that from this one), with its standard error.

        >>> import factorank as fr
        >>> law, generator = fr.Uniform(4), torch.Generator().manual_seed(0)
        >>> ranks = law.estimate("mean_ranks", samples=10_000, generator=generator)
        >>> bool(((ranks.value - law.mean_ranks()).abs() < 4 * ranks.error).all())
        True
        """
        if other is not None and what != "kl_divergence":
            raise self.error(f"{{parameter}} is for 'kl_divergence', not for {what!r}", parameter="other")
        count = DEFAULT_SAMPLES if samples is None else samples
        drawn = self._draws(count, generator)
        if what == "entropy":
            return mean_estimate(-self._log_prob_of_draws(drawn, generator))
        if what == "mean_ranks":
            return mean_estimate(inverse(self._whole(drawn), check=False).to(torch.get_default_dtype()))
        if what == "kl_divergence" and other is not None:
            log_ratio = self._log_prob_of_draws(drawn, generator) - other.log_prob(drawn)
            return mean_estimate(log_ratio)
        if what != "marginals":
            raise self.error(
                "what is estimated is 'entropy', 'marginals' or 'mean_ranks', or with other= 'kl_divergence',"
                f" not {what!r}"
            )
        shares = count_places(self._whole(drawn), torch.ones((), device=drawn.device)) / count
        return Estimate(shares, (shares * (1 - shares) / count).sqrt(), count)

    @property
    def mode(self) -> Tensor:
        """A most likely order, ``(*batch, n)``."""
        orders, log_probs = self._enumerated("the mode")
        return orders[log_probs.argmax(0)]

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All n! orders, for n up to 8, in lexicographic order: ``(n!, *batch, n)`` or ``(n!, *ones, n)``."""
        orders = self._listed("enumerate_support")
        orders = orders.view(len(orders), *(1 for _ in self.batch_shape), self.n)
        return orders.expand(len(orders), *self.batch_shape, self.n) if expand else orders

    def condition(
        self,
        observed: Sequence[int] | Tensor,
        *,
        max_states: int = MAX_STATES,
        samples: int = MAX_DRAWS,
        generator: torch.Generator | None = None,
    ) -> "PermutationDistribution":
        """The law restricted to the orders that have the observed items in this relative order, renormalised.

        Observing no or one item returns the law itself. The result is exact where that is feasible: uniform
        and Plackett-Luce laws at any size; Mallows, generalized Mallows and RIM by dynamic programming over
        the places of the observed items; other laws by enumeration up to n = 8; a mixture through its
        components. Beyond, laws that insert items one by one are approximated by AMP, and all others are
        conditioned by rejection. Such a result is not ``exact``; an observation that is too rare to be
        estimated is refused.

        Args:
            observed: the items, best first.
            max_states: the largest table of the dynamic programme, or list of orders, that is still computed.
            samples: the largest number of draws that rejection makes to estimate the probability of the
                observation.
            generator: of the draws of an estimate; without one they have a fixed seed.

        >>> import factorank as fr
        >>> law = fr.PlackettLuce(torch.tensor([2.0, 1.0, 0.0])).condition([2, 0])
        >>> law.enumerate_support().tolist(), law.log_prob(law.mode).exp()
        ([[1, 2, 0], [2, 0, 1], [2, 1, 0]], tensor(0.5521))
        """
        return condition(self, observed, Effort(max_states, samples, generator))

    def tilt(
        self,
        reward: Callable[[Tensor], Tensor],
        strength: float = 1.0,
        *,
        samples: int | None = None,
        generator: torch.Generator | None = None,
    ) -> "PermutationDistribution":
        r"""The law :math:`p(x)\, e^{s\, r(x)}` with a reward r and a strength s, normalised.

        ``reward`` gives a number for each of the orders ``(*sample, *batch, n)``. The result is exact where
        all orders can be listed. Else it draws by resampling from this law: it is not ``exact`` and has the
        error of ``log_normaliser`` and the effective sample size of ``samples`` draws, 4,096 unless
        given; a reward that leaves fewer than 16 of them is refused. What no draw meets has no part in it.

        >>> import factorank as fr
        >>> first = lambda order: (order[..., 0] == 2).float()
        >>> fr.Uniform(3).tilt(first, strength=2.0).marginals()[2, 0]
        tensor(0.7870)
        """
        return derived("tilted", self, reward, strength, samples, generator)

    # Defaults: enumeration.

    def _entropy(self) -> Tensor:
        _, log_probs = self._enumerated("entropy")
        return -torch.where(log_probs == -math.inf, 0, log_probs.exp() * log_probs.clamp(min=_LEAST)).sum(0)

    def _marginals(self) -> Tensor:
        orders, log_probs = self._enumerated("marginals")
        stands = torch.nn.functional.one_hot(inverse(orders, check=False), self.n)  # (orders, item, place)
        return torch.einsum("k...,kij->...ij", log_probs.exp(), stands.to(log_probs.dtype))

    def _mean_ranks(self) -> Tensor:
        marginals = self.marginals()
        return marginals @ torch.arange(self.n, dtype=marginals.dtype, device=marginals.device)

    def _certain(self) -> Tensor:
        """The log-probability of the only order of no or one item, which is zero: ``(*batch,)``."""
        return self._log_prob(torch.arange(self.n, device=self.device))

    def _listed(self, what: str) -> Tensor:
        """All orders ``(n!, n)`` in lexicographic order, for ``what``."""
        if self.n > self.largest_enumerated:
            raise self.error(
                f"{what} of {type(self).__name__} lists all orders, which is offered for"
                f" n <= {self.largest_enumerated}, not n = {self.n}{_HINT.get(what, '')}"
            )
        return permutation_at(torch.arange(math.factorial(self.n), device=self.device), self.n)

    def _enumerated(self, what: str) -> tuple[Tensor, Tensor]:
        """All orders ``(n!, n)`` and their log-probabilities ``(n!, *batch)``."""
        orders = self._listed(what)
        rows = orders.view(len(orders), *(1 for _ in self.batch_shape), self.n)
        return orders, self._log_prob(rows).expand(len(orders), *self.batch_shape)

    # Estimates.

    def _draws(self, samples: int, generator: torch.Generator | None) -> Tensor:
        """Orders ``(samples, *batch, n)`` for an estimate."""
        self._check_samples(samples)
        return self.sample((samples,), generator=generator)

    def _log_prob_of_draws(self, drawn: Tensor, generator: torch.Generator | None) -> Tensor:
        return self._log_prob(drawn)

    def _whole(self, drawn: Tensor) -> Tensor:
        """Draws as orders of all n items."""
        return drawn

    def _check_samples(self, samples: int) -> None:
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
            raise self.error(
                f"an estimate takes at least 1 sample, a whole number, not {samples!r}", parameter="samples"
            )

    # Checks.

    def _validate_sample(self, value: Tensor) -> None:
        check_orders(type(self).__name__, value, self.n, self.batch_shape)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={show(value)}" for name, value in self._parameters().items())
        return f"{type(self).__name__}({shown})"


_LEAST = torch.finfo(torch.float32).min
_HINT = dict.fromkeys(("entropy", "marginals"), "; samples= gives an estimate")
