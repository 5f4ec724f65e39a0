"""Classical laws over permutations, as torch distributions."""

from factorank.distributions.base import PermutationDistribution, permutation
from factorank.distributions.generalized_mallows import GeneralizedMallows
from factorank.distributions.grim import GRIM
from factorank.distributions.kl import expected_kendall
from factorank.distributions.mallows import Mallows
from factorank.distributions.plackett_luce import PlackettLuce
from factorank.distributions.rim import RIM
from factorank.distributions.uniform import Uniform

__all__ = [
    "GRIM",
    "RIM",
    "GeneralizedMallows",
    "Mallows",
    "PermutationDistribution",
    "PlackettLuce",
    "Uniform",
    "expected_kendall",
    "permutation",
]
