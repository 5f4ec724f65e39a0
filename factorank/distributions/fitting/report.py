"""The report of a fit, and its errors and warnings."""

import math
from dataclasses import dataclass, field

from factorank.errors import FactorankError


class FitWarning(UserWarning):
    """The data do not determine the law; the message names the items or voters that are the cause."""


class FitError(FactorankError):
    """The data or the settings of a fit make no sense."""


@dataclass(frozen=True)
class FitReport:
    """The facts of a fit, on ``law.report``.

    AIC is :math:`2p - 2\\ell` and BIC :math:`p \\log N - 2\\ell`, with p the continuous free parameters
    (dispersions, logits, insertion probabilities, weights of a mixture; a reference order counts as none) and
    N the number of rankings, or the sum of their weights.

    >>> print(FitReport("Mallows", 100, log_likelihood=-250.0, parameters=1, iterations=3, exact=True))
    Mallows fitted to 100 rankings
      log-likelihood     -250.000 nats (3.607 bits a ranking)
      free parameters    1
      AIC, BIC           502.000, 504.605
      converged          yes, after 3 iterations
      consensus          exact
    """

    family: str
    rankings: float
    """The number of rankings, or the sum of their weights."""
    log_likelihood: float
    """In nats, of all rankings together; without any penalty."""
    parameters: int
    iterations: int = 0
    converged: bool = True
    exact: bool | None = None
    """Whether the consensus is proven to be the best of all orders; None where there is none."""
    standard_error: float | None = None
    """Of the log-likelihood, where it is a Monte-Carlo estimate; None where it is exact."""
    effective_sample_size: float | None = None
    """Smallest over the voters, as a share of the samples, where the fit drew samples."""
    history: tuple[float, ...] = field(default=(), repr=False)
    """The log-likelihood (with the penalty, where there is one) after each iteration."""
    restarts: tuple[float, ...] = field(default=(), repr=False)
    """The final log-likelihood of every restart."""
    warnings: tuple[str, ...] = ()

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

    def __str__(self) -> str:
        estimate = "" if self.standard_error is None else f" ± {self.standard_error:.3f}, estimated"
        count = f"{self.iterations} iteration{'s' * (self.iterations != 1)}"
        rounds = f", after {count}" if self.iterations else ""
        lines = [
            f"{self.family} fitted to {self.rankings:g} rankings",
            f"  log-likelihood     {self.log_likelihood:.3f}{estimate} nats ({self.bits:.3f} bits a ranking)",
            f"  free parameters    {self.parameters}",
            f"  AIC, BIC           {self.aic:.3f}, {self.bic:.3f}",
            f"  converged          {'yes' if self.converged else 'NO'}{rounds}",
        ]
        if self.exact is not None:
            proof = "exact" if self.exact else "local optimum, not proven best"
            lines.append(f"  consensus          {proof}")
        if self.effective_sample_size is not None:
            lines.append(f"  effective samples  at least {self.effective_sample_size:.0%} of those drawn")
        if self.restarts:
            lines.append(f"  restarts           {', '.join(f'{value:.3f}' for value in self.restarts)}")
        return "\n".join(lines + [f"  warning            {text}" for text in self.warnings])
