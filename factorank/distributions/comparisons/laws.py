"""Laws of the outcome of a comparison of two items: Bradley and Terry's, and two that know ties."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints

from factorank.distributions.comparisons.base import ComparisonLaw, mean_of_pairs, tie_parameters
from factorank.distributions.comparisons.battles import TIE
from factorank.distributions.comparisons.links import DavidsonLink, Half, RaoKupperLink
from factorank.distributions.parameters import check_parameter
from factorank.errors import DistributionError


class BradleyTerry(ComparisonLaw):
    r"""Bradley and Terry's law: item a beats item b with probability :math:`\sigma(s_a - s_b)`.

    The law itself knows no ties. A fit takes a tie as half a win for each item.

    Bradley and Terry, "Rank analysis of incomplete block designs", 1952.

    >>> law = BradleyTerry([1.0, 0.0, -1.0])
    >>> law.log_probs([[0, 1], [2, 0]]).exp()
    tensor([[0.7311, 0.2689, 0.0000],
            [0.1192, 0.8808, 0.0000]])
    """

    link = Half
    family = "Bradley-Terry"

    def log_probs(self, pairs: Any, covariates: Any = None) -> Tensor:
        log = super().log_probs(pairs, covariates)
        return torch.cat([log[..., :TIE], torch.full_like(log[..., TIE:], -torch.inf)], -1)


class Davidson(ComparisonLaw):
    r"""Davidson's law of comparisons with ties.

    The first item wins, the second wins and a tie are in the proportion
    :math:`e^{s_a} : e^{s_b} : \nu \sqrt{e^{s_a} e^{s_b}}`.

    Args:
        scores: of the items, ``(n,)``.
        nu: the weight of ties, at least 0. Of two equal items :math:`\nu / (2 + \nu)` of the comparisons tie.
            Or one for each item, ``(n,)``, of which a pair has the geometric mean.
        effects: of covariates.

    Davidson, "On extending the Bradley-Terry model to accommodate ties in paired comparison experiments",
    1970.

    >>> Davidson([1.0, 1.0], nu=1.0).log_probs([0, 1]).exp()
    tensor([0.3333, 0.3333, 0.3333])
    """

    link = DavidsonLink
    family = "Davidson"

    def __init__(
        self,
        scores: Sequence[float] | Tensor,
        nu: float | Tensor = 1.0,
        effects: Sequence[float] | Tensor = (),
    ) -> None:
        super().__init__(scores, effects)
        self.nu = tie_parameters("Davidson", "nu", nu, self.scores)
        check_parameter("Davidson", "nu", self.nu, constraints.nonnegative)

    def tie(self, pairs: Any) -> Tensor:
        return mean_of_pairs(self.nu.log(), pairs)

    @staticmethod
    def _tie_options(tie: Tensor) -> dict[str, Tensor]:
        return {"nu": tie.exp()}


class RaoKupper(ComparisonLaw):
    r"""Rao and Kupper's law of comparisons with ties: a win takes a lead above a threshold.

    The first item wins with probability :math:`e^{s_a} / (e^{s_a} + \kappa e^{s_b})`, the second with
    :math:`e^{s_b} / (\kappa e^{s_a} + e^{s_b})`; the rest are ties.

    Args:
        scores: of the items, ``(n,)``.
        kappa: at least 1, where there are no ties. Or one for each item, ``(n,)``, of which a pair has the
            geometric mean.
        effects: of covariates.

    Rao and Kupper, "Ties in paired-comparison experiments: a generalization of the Bradley-Terry model",
    1967.

    >>> RaoKupper([0.0, 0.0], kappa=2.0).log_probs([0, 1]).exp()
    tensor([0.3333, 0.3333, 0.3333])
    """

    link = RaoKupperLink
    family = "Rao-Kupper"

    def __init__(
        self,
        scores: Sequence[float] | Tensor,
        kappa: float | Tensor = 2.0,
        effects: Sequence[float] | Tensor = (),
    ) -> None:
        super().__init__(scores, effects)
        self.kappa = tie_parameters("RaoKupper", "kappa", kappa, self.scores)
        if not bool((self.kappa >= 1).all()):
            raise DistributionError(f"RaoKupper takes kappa of 1 or more, not {float(self.kappa.min()):g}")

    def tie(self, pairs: Any) -> Tensor:
        return mean_of_pairs(self.kappa.log(), pairs)

    @staticmethod
    def _tie_options(tie: Tensor) -> dict[str, Tensor]:
        return {"kappa": tie.exp()}
