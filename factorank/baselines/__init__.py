"""Baselines: models and rankers to compare with. They train, sample and save as the library's models do."""

from factorank.arguments import guard
from factorank.assignment import best_assignment
from factorank.baselines.generalized_plackett_luce import GeneralizedPlackettLuce
from factorank.baselines.gumbel_sinkhorn import GumbelSinkhorn, sinkhorn
from factorank.baselines.riffle_diffusion import RiffleDiffusion
from factorank.baselines.riffle_shuffle import RiffleShuffle, denoising_schedule, total_variation

__all__ = [
    "GeneralizedPlackettLuce",
    "GumbelSinkhorn",
    "RiffleDiffusion",
    "RiffleShuffle",
    "best_assignment",
    "denoising_schedule",
    "sinkhorn",
    "total_variation",
]

guard(__name__, __all__)
