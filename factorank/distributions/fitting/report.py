"""The report of a fit."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from factorank.distributions.fitting.errors import FitError


@dataclass(frozen=True)
class FitReport:
    """The facts of a fit, on ``law.report``.

    AIC is :math:`2p - 2\\ell` and BIC :math:`p \\log N - 2\\ell`, with N the number of rankings, or the sum
    of their weights, and p the continuous free parameters: dispersions, logits, insertion probabilities,
    weights of a mixture. A fitted reference order is discrete and counts as none, so both flatter laws that
    have one, a little, against those that have none.

    >>> print(FitReport("Mallows", 100, log_likelihood=-250.0, parameters=1, iterations=3, exact=True))
    Mallows fitted to 100 rankings
      log-likelihood     -250.000 nats (3.607 bits a ranking)
      free parameters    1, and a reference order that AIC and BIC do not count
      AIC, BIC           502.000, 504.605
      converged          yes, after 3 iterations
      reference order    proven best
    """

    family: str
    rankings: float
    """The number of rankings, or of comparisons, or the sum of their weights."""
    log_likelihood: float
    """In nats, of all rankings together; without any penalty."""
    parameters: int
    iterations: int = 0
    converged: bool = True
    exact: bool | None = None
    """Whether the reference order is proven to be the best of all; None where none was fitted."""
    standard_error: float | None = None
    """Of the log-likelihood, where it is a Monte-Carlo estimate; None where it is exact."""
    monte_carlo_error: float | None = None
    """The error of the first parameter that is due to the sampler of the fit; None where there was none."""
    history: tuple[float, ...] = field(default=(), repr=False)
    """The log-likelihood (with the penalty, where there is one) after each iteration."""
    starts: int = 1
    """From how many points the fit was begun."""
    restarts: tuple[float, ...] = field(default=(), repr=False)
    """The final log-likelihoods of those starts that were taken to the end, the best first."""
    warnings: tuple[str, ...] = ()
    parameter: str | None = None
    """The name of the parameters that follow: "phi", "logit", "overtakes", "score" or "coefficient"."""
    values: tuple[float, ...] = ()
    """A single one, or one for each item."""
    errors: tuple[float, ...] = ()
    """Standard errors of the values; NaN where there is none."""
    items: tuple[str, ...] = ()
    """The names of the items, where the votes had them."""
    disagreement: float | None = None
    """Of a Mallows law: the weight of the pairs that votes and centre order differently."""
    digits: tuple[float, ...] = field(default=(), repr=False)
    """Of a Mallows law: the weight of the votes that tell each digit; with the disagreement, all that the
    likelihood needs."""

    @property
    def aic(self) -> float:
        """Akaike's information criterion; smaller is better."""
        return 2 * self.parameters - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """Schwarz's information criterion; smaller is better."""
        return self.parameters * math.log(self.rankings) - 2 * self.log_likelihood

    @property
    def bits(self) -> float:
        """Bits a ranking: the log-likelihood, negated, per ranking, in base 2."""
        return -self.log_likelihood / self.rankings / math.log(2)

    def with_estimates(
        self, parameter: str, values: Iterable[float], errors: Iterable[float], items: Sequence[str]
    ) -> "FitReport":
        """The report with parameters, their standard errors and the names of the items."""
        numbers = tuple(map(float, values)), tuple(map(float, errors))
        return replace(
            self, parameter=parameter, values=numbers[0], errors=numbers[1], items=tuple(map(str, items))
        )

    def intervals(self, level: float = 0.95) -> tuple[tuple[float, float], ...]:
        """A confidence interval for each of ``values``, at this level.

        For φ of a Mallows law it is exact up to simulation where there are few voters who rank all items, and
        of the profile likelihood elsewhere: see :mod:`factorank.distributions.fitting.intervals`. For other
        parameters it is the value and its standard errors to both sides (Wald's). It is NaN where there is
        no standard error. Mixtures have none: :func:`factorank.votes.bootstrap` refits them.

        >>> import factorank as fr, torch
        >>> generator = torch.Generator().manual_seed(0)
        >>> votes = fr.Mallows(torch.arange(5), 0.5).sample((400,), generator=generator)
        >>> [(low, high)] = fr.Mallows.fit(votes).report.intervals()
        >>> low < 0.5 < high
        True
        """
        from factorank.distributions.fitting.intervals import report_intervals

        if not 0 < level < 1:
            raise FitError(f"{{parameter}} lies between 0 and 1, not at {level}", parameter="level")
        return report_intervals(self, level)

    def __str__(self) -> str:
        estimate = "" if self.standard_error is None else f" ± {self.standard_error:.3f}, estimated"
        count = f"{self.iterations} iteration{'s' * (self.iterations != 1)}"
        rounds = f", after {count}" if self.iterations else ""
        orders = "reference orders" if self.family.startswith("mixture") else "a reference order"
        order = "" if self.exact is None else f", and {orders} that AIC and BIC do not count"
        each = "comparison" if self.parameter == "score" else "ranking"
        lines = [
            f"{self.family} fitted to {self.rankings:.12g} {each}s",
            f"  log-likelihood     {self.log_likelihood:.3f}{estimate} nats ({self.bits:.3f} bits a {each})",
            f"  free parameters    {self.parameters}{order}",
            f"  AIC, BIC           {self.aic:.3f}, {self.bic:.3f}",
            f"  converged          {'yes' if self.converged else 'NO'}{rounds}",
        ]
        if self.exact is not None:
            proof = "proven best" if self.exact else "the best that a search came to, not proven"
            lines.append(f"  reference order    {proof}")
        if self.restarts:
            lines.append(f"  starts             {self.spread()}")
        if len(self.values) == 1 and self.parameter:
            low, high = self.intervals()[0]
            sampler = "" if self.monte_carlo_error is None else f"; sampler ± {self.monte_carlo_error:.2g}"
            shown = f"{self.values[0]:.4f} ± {self.errors[0]:.4f} (95%: {low:.4f} to {high:.4f}{sampler})"
            lines.append(f"  {self.parameter:<19}{shown}")
        elif self.values and self.parameter:
            lines += self._values()
        return "\n".join(lines + [f"  warning            {text}" for text in self.warnings])

    def spread(self) -> str:
        """The starts in words: how many, and how far the ends of those taken to the end lie apart."""
        ends = sorted(self.restarts, reverse=True)
        apart = ", ".join(f"-{ends[0] - value:.1f}" for value in ends[1:])
        return f"{self.starts}; the best ended at {ends[0]:.3f}, others lower: {apart or 'none'}"

    def _values(self) -> list[str]:
        names = self.items or tuple(map(str, range(len(self.values))))
        width = max(map(len, names))
        rows = zip(names, self.values, self.errors, strict=True)
        of = "feature" if self.parameter == "coefficient" else "item"
        lines = [f"  {self.parameter} of each {of}, ± one standard error"]
        return lines + [f"    {name:<{width}}  {value:8.4f} ± {error:.4f}" for name, value, error in rows]
