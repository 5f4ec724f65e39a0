"""What the laws of the outcome of a comparison of two items share: fits, probabilities, draws, errors."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from factorank.distributions.comparisons.ascent import Prior
from factorank.distributions.comparisons.battles import TIE, collect
from factorank.distributions.comparisons.fitting import Covariance, Fitted, fit_battles
from factorank.distributions.comparisons.links import Link
from factorank.distributions.fitting.checks import check_counts, check_strength
from factorank.distributions.fitting.report import FitReport
from factorank.distributions.parameters import as_reals, check_parameter, finite, finite_vector
from factorank.errors import DistributionError


class ComparisonLaw:
    """What the laws of comparisons share. Scores are in nats, larger is better; a constant changes nothing.

    ``pairs`` are items ``(*batch, 2)``. Outcomes ``(*batch,)`` are 0 (the first item wins), 1 (the second
    wins) and 2 (a tie). ``effects`` are the coefficients of covariates of the comparison, which are added to
    the difference of the scores in favour of the first item: a column of ones is the advantage of being
    named first, or of playing at home.
    """

    link: ClassVar[Link]
    family: ClassVar[str]
    report: FitReport | None = None
    """The report of the fit; None for a law that was not fitted."""
    fitted: Fitted | None = None
    """The fit itself: covariances and the bootstrap."""
    coefficients: Tensor | None = None
    """Of the features of the items, where scores were fitted as ``features @ coefficients``."""

    def __init__(self, scores: Sequence[float] | Tensor, effects: Sequence[float] | Tensor = ()) -> None:
        self.scores = as_reals(scores)
        self.effects = as_reals(effects, self.scores, self.scores.dtype).to(self.scores.device)
        if self.scores.ndim != 1 or self.effects.ndim != 1:
            raise DistributionError(
                f"{type(self).__name__} takes scores (n,) and effects (columns,), not shapes"
                f" {tuple(self.scores.shape)} and {tuple(self.effects.shape)}"
            )
        check_parameter(type(self).__name__, "scores", self.scores, finite_vector)
        check_parameter(type(self).__name__, "effects", self.effects, finite_vector)

    @classmethod
    def fit(
        cls,
        pairs: Any,
        outcomes: Any,
        weights: Any = None,
        *,
        items: int | None = None,
        covariates: Any = None,
        features: Any = None,
        groups: Any = None,
        item_ties: bool = False,
        penalty: float = 0.0,
        pseudo_count: float = 0.0,
        max_iterations: int = 100,
        tolerance: float = 1e-9,
    ) -> Self:
        r"""The law of maximum likelihood, its scores of mean zero, by Newton's method.

        Args:
            pairs: the items of each comparison, integers ``(rows, 2)``.
            outcomes: of each comparison. Integers: 0 if the first item wins, 1 if the second, 2 for a tie.
                Floating-point numbers: the score of the first item, 1, 0 or 0.5. Words: "model_a",
                "model_b", "tie".
            weights: of the comparisons, such as how often each took place.
            items: the number of items; one more than the largest in ``pairs`` unless given.
            covariates: of the comparisons, ``(rows, columns)``; see the class.
            features: of the items, ``(items, columns)``: the scores are then ``features @ coefficients``.
            groups: the group that a comparison belongs to, such as its judge. Comparisons of one group may
                depend on each other: the sandwich and the bootstrap go by groups.
            item_ties: fit a tie parameter for each item, of which a pair has the (geometric) mean.
            penalty: λ of :math:`\tfrac{λ}{2} \sum_j s_j^2` (or of the coefficients), which is taken off the
                log-likelihood: a normal prior of variance 1/λ. It gives a maximum where there is none.
            pseudo_count: so many wins, and as many losses, of each item against an imagined one of score
                zero are added to the comparisons: a prior, too.
            max_iterations, tolerance: of Newton's method; the tolerance is of the gradient, a comparison.

        Without a prior the maximum exists only if every item did not lose against every other one, at least
        through a chain of others. If not, the error names the items. With ties there are rare other cases
        without a maximum, which are refused as well.

        >>> import factorank as fr
        >>> law = fr.BradleyTerry.fit([[0, 1], [1, 2], [2, 0], [0, 2]], [0, 0, 0, 0])
        >>> law.scores[0] - law.scores[2]
        tensor(0.8392, dtype=torch.float64)
        """
        check_strength("penalty", penalty)
        check_strength("pseudo_count", pseudo_count)
        check_strength("tolerance", tolerance)
        check_counts(max_iterations=max_iterations)
        battles = collect(pairs, outcomes, weights, items=items, covariates=covariates, groups=groups)
        fitted = fit_battles(
            battles,
            cls.link,
            features=features,
            item_ties=item_ties,
            prior=Prior(penalty, pseudo_count),
            max_iterations=max_iterations,
            tolerance=tolerance,
        )
        return cls.from_fit(fitted)

    @property
    def n(self) -> int:
        """The number of items."""
        return len(self.scores)

    def log_probs(self, pairs: Any, covariates: Any = None) -> Tensor:
        """The log-probabilities ``(*batch, 3)`` of the outcomes: first wins, second wins, tie."""
        return self.link.log_probs(self._differences(pairs, covariates), self.tie(pairs))

    def log_prob(self, pairs: Any, outcomes: Any, covariates: Any = None) -> Tensor:
        """The log-probability of each outcome ``(*batch,)``, in nats, with gradients to the parameters."""
        log, codes = self.log_probs(pairs, covariates), torch.as_tensor(outcomes, device=self.scores.device)
        if codes.is_floating_point() or codes.dtype == torch.bool:
            raise DistributionError(f"outcomes are integers 0, 1, 2, not {codes.dtype}")
        if codes.numel() and not bool(((codes >= 0) & (codes <= TIE)).all()):
            raise DistributionError("outcomes are 0 (the first wins), 1 (the second) and 2 (a tie)")
        codes = codes.long().expand(log.shape[:-1])
        return log.gather(-1, codes[..., None])[..., 0]

    def sample(
        self,
        pairs: Any,
        sample_shape: Sequence[int] = (),
        *,
        covariates: Any = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw outcomes ``(*sample_shape, *batch)`` of comparisons of these pairs."""
        with torch.no_grad():
            probabilities = self.log_probs(pairs, covariates).double().exp()
            cumulative = probabilities.cumsum(-1)[..., :TIE]
            shape = (*sample_shape, *cumulative.shape[:-1], 1)
            uniform = torch.rand(shape, dtype=torch.float64, generator=generator, device=cumulative.device)
            return (uniform >= cumulative).sum(-1)

    def covariance(self, kind: Covariance = "information") -> Tensor:
        """The covariance ``(n, n)`` of the fitted scores, whose mean is zero."""
        return self.checked_fit().score_covariance(kind)

    def standard_errors(self, kind: Covariance = "information") -> Tensor:
        """The standard errors ``(n,)`` of the fitted scores, whose mean is zero."""
        return self.covariance(kind).diagonal().clamp(min=0).sqrt()

    def checked_fit(self) -> Fitted:
        """The fit, or an error that there was none."""
        if self.fitted is None:
            raise DistributionError(f"this {type(self).__name__} was not fitted: it has no standard errors")
        return self.fitted

    def tie(self, pairs: Any) -> Tensor:
        """The tie parameter of the link, of each pair ``(*batch,)`` or of all of them."""
        return torch.zeros((), dtype=self.scores.dtype, device=self.scores.device)

    def _differences(self, pairs: Any, covariates: Any) -> Tensor:
        items = torch.as_tensor(pairs, device=self.scores.device)
        if items.shape[-1:] != (2,) or items.is_floating_point() or items.dtype == torch.bool:
            raise DistributionError(
                f"pairs are integers (*batch, 2), not {items.dtype} of shape {tuple(items.shape)}"
            )
        if items.numel() and not bool(((items >= 0) & (items < self.n)).all()):
            raise DistributionError(f"items are 0..{self.n - 1}, but the pairs hold others")
        chosen = self.scores[items.long()]
        difference = chosen[..., 0] - chosen[..., 1]
        if (covariates is None) != (not len(self.effects)):
            raise DistributionError(
                f"the law has {len(self.effects)} effects of covariates: covariates are"
                f" (*batch, {len(self.effects)})" + ("" if len(self.effects) else ", so none can be given")
            )
        if covariates is None:
            return difference
        values = as_reals(covariates, self.scores, self.scores.dtype).to(self.scores.device)
        check_parameter(type(self).__name__, "covariates", values, finite)
        return difference + values @ self.effects

    @classmethod
    def from_fit(cls, fitted: Fitted, items: Sequence[str] = ()) -> Self:
        """The law at the maximum that a fit reached, with its report; ``items`` are their names."""
        own = fitted.design.scores if fitted.features is None else fitted.features.shape[1]
        k = fitted.battles.covariates.shape[1]
        law = cls(
            fitted.scores(),
            effects=fitted.parameters[own : own + k],
            **cls._tie_options(fitted.tie()),
        )
        law.fitted = fitted
        law.coefficients = None if fitted.features is None else fitted.parameters[:own]
        free = fitted.design.size - (fitted.features is None)
        report = FitReport(
            cls.family,
            rankings=fitted.battles.total,
            log_likelihood=fitted.log_likelihood,
            parameters=free,
            iterations=fitted.iterations,
            converged=fitted.converged,
        )
        law.report = report.with_estimates(
            "score", law.scores.tolist(), law.standard_errors().tolist(), items
        )
        return law

    @staticmethod
    def _tie_options(tie: Tensor) -> dict[str, Tensor]:
        return {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n} items)"


def tie_parameters(law: str, name: str, value: float | Tensor, scores: Tensor) -> Tensor:
    """Tie parameters as a tensor, one for all items or one for each, ``(n,)``."""
    result = as_reals(value, scores, scores.dtype).to(scores.device)
    if result.shape not in ((), scores.shape):
        raise DistributionError(
            f"{law} takes a number as {name}, or one for each of the {len(scores)} items, not shape"
            f" {tuple(result.shape)}"
        )
    check_parameter(law, name, result, finite)
    return result


def mean_of_pairs(values: Tensor, pairs: Any) -> Tensor:
    """The mean of two items' values ``(n,)``, ``(*batch,)``; a single value as it is."""
    return (
        values if values.ndim == 0 else values[torch.as_tensor(pairs, device=values.device).long()].mean(-1)
    )
