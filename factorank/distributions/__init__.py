"""Classical laws over permutations, as torch distributions.

Importing the package registers how every law is conditioned.
"""

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.comparisons import BradleyTerry, ComparisonLaw, Davidson, RaoKupper
from factorank.distributions.conditioning.amp import AMP
from factorank.distributions.conditioning.approximate import AMPConditioned
from factorank.distributions.conditioning.conditioned import (
    Conditioned,
    ConditionedByEnumeration,
    ConditionedUniform,
)
from factorank.distributions.conditioning.factorized import ConditionedFactorized
from factorank.distributions.conditioning.mixture import ConditionedMixture
from factorank.distributions.conditioning.plackett_luce import ConditionedPlackettLuce
from factorank.distributions.conditioning.rejection import ConditionedByRejection
from factorank.distributions.conditioning.rules import ImpossibleObservation, RareObservation
from factorank.distributions.davidson_luce import DavidsonLuce
from factorank.distributions.fitting.consensus import Consensus, consensus
from factorank.distributions.fitting.errors import FitError, FitWarning
from factorank.distributions.fitting.report import FitReport
from factorank.distributions.generalized_mallows import GeneralizedMallows
from factorank.distributions.grim import GRIM
from factorank.distributions.kl import expected_kendall
from factorank.distributions.mallows import Mallows
from factorank.distributions.mixture import Mixture
from factorank.distributions.parameters import permutation
from factorank.distributions.partial_orders import PartialOrders
from factorank.distributions.plackett_luce import PlackettLuce
from factorank.distributions.random_grades import RandomGrades
from factorank.distributions.rim import RIM
from factorank.distributions.thurstone import Thurstone
from factorank.distributions.tilting import Tilted
from factorank.distributions.uniform import Uniform

__all__ = [
    "AMP",
    "GRIM",
    "RIM",
    "AMPConditioned",
    "BradleyTerry",
    "ComparisonLaw",
    "Conditioned",
    "ConditionedByEnumeration",
    "ConditionedByRejection",
    "ConditionedFactorized",
    "ConditionedMixture",
    "ConditionedPlackettLuce",
    "ConditionedUniform",
    "Consensus",
    "Davidson",
    "DavidsonLuce",
    "FitError",
    "FitReport",
    "FitWarning",
    "GeneralizedMallows",
    "ImpossibleObservation",
    "Mallows",
    "Mixture",
    "PartialOrders",
    "PermutationDistribution",
    "PlackettLuce",
    "RandomGrades",
    "RaoKupper",
    "RareObservation",
    "Thurstone",
    "Tilted",
    "Uniform",
    "consensus",
    "expected_kendall",
    "permutation",
]
