"""Laws of comparisons of two items, with and without ties, and their fits."""

from factorank.distributions.comparisons.battles import Battles, collect, outcome_codes
from factorank.distributions.comparisons.fitting import Covariance, Fitted, fit_battles
from factorank.distributions.comparisons.laws import BradleyTerry, ComparisonLaw, Davidson, RaoKupper

__all__ = [
    "Battles",
    "BradleyTerry",
    "ComparisonLaw",
    "Covariance",
    "Davidson",
    "Fitted",
    "RaoKupper",
    "collect",
    "fit_battles",
    "outcome_codes",
]
