"""Laws of comparisons of two items, with and without ties, and their fits."""

from factorank.distributions.comparisons.ascent import Prior
from factorank.distributions.comparisons.base import ComparisonLaw
from factorank.distributions.comparisons.battles import Battles, collect, outcome_codes
from factorank.distributions.comparisons.fitting import Covariance, Fitted, fit_battles
from factorank.distributions.comparisons.laws import BradleyTerry, Davidson, RaoKupper

__all__ = [
    "Battles",
    "BradleyTerry",
    "ComparisonLaw",
    "Covariance",
    "Davidson",
    "Fitted",
    "Prior",
    "RaoKupper",
    "collect",
    "fit_battles",
    "outcome_codes",
]
