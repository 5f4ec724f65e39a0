"""Maximum likelihood for the classical laws; every fit says how it went on ``law.report``.

Fits compute in float64 on the CPU, whatever device the rankings are on; the law comes back on that device.
"""

from factorank.distributions.fitting.consensus import Consensus, consensus
from factorank.distributions.fitting.generalized_mallows import fit_generalized_mallows
from factorank.distributions.fitting.mallows import fit_mallows
from factorank.distributions.fitting.plackett_luce import fit_plackett_luce
from factorank.distributions.fitting.report import FitError, FitReport, FitWarning
from factorank.distributions.fitting.rim import fit_rim

__all__ = [
    "Consensus",
    "FitError",
    "FitReport",
    "FitWarning",
    "consensus",
    "fit_generalized_mallows",
    "fit_mallows",
    "fit_plackett_luce",
    "fit_rim",
]
