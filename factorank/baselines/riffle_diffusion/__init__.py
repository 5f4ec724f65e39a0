"""SymmetricDiffusers: a diffusion whose noise is the riffle shuffle and whose reverse steps are choices.

``shuffle`` has the law of the noise and the schedule, ``generalized_plackett_luce`` the law of a reverse step
and its beam search, ``diffusion`` the model.
"""

from factorank.baselines.riffle_diffusion.diffusion import RiffleDiffusion
from factorank.baselines.riffle_diffusion.generalized_plackett_luce import GeneralizedPlackettLuce
from factorank.baselines.riffle_diffusion.shuffle import RiffleShuffle, denoising_schedule, total_variation

__all__ = [
    "GeneralizedPlackettLuce",
    "RiffleDiffusion",
    "RiffleShuffle",
    "denoising_schedule",
    "total_variation",
]
