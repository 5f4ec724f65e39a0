"""Leaderboard: scores from battles, and what they say for certain about ranks."""

from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from factorank.distributions.comparisons import (
    BradleyTerry,
    ComparisonLaw,
    Covariance,
    Davidson,
    Prior,
    RaoKupper,
)
from factorank.distributions.comparisons.battles import collect
from factorank.distributions.comparisons.fitting import Fitted, fit_battles
from factorank.distributions.fitting.errors import FitError, FitWarning
from factorank.distributions.thurstone import Thurstone
from factorank.errors import warn
from factorank.leaderboard.battles import battle_table
from factorank.leaderboard.ranks import (
    RankSets,
    battles_to_separate,
    certain_edges,
    marginal_rank_sets,
    simultaneous_rank_sets,
    tiers,
)
from factorank.leaderboard.scores import ScoreTable, score_table

Ties = Literal["davidson", "rao-kupper", "half"]
LAWS: dict[str, type[ComparisonLaw]] = {"davidson": Davidson, "rao-kupper": RaoKupper, "half": BradleyTerry}
DRAWS = 4000
"""Draws of the errors of the scores, from which critical values are taken."""
LEAST_REFITS = 100
WEAK_PRIOR = 0.1
"""The penalty that is used where the battles alone do not determine the scores."""


class Leaderboard:
    """Items ranked by battles, with the uncertainty of scores and of ranks.

    Made by :meth:`fit`. Items are listed best first in :attr:`table`; everywhere else they have the numbers
    of their names in :attr:`items`.

    >>> battles = {
    ...     "model_a": ["x", "x", "y", "y", "z", "x"] * 20,
    ...     "model_b": ["y", "z", "z", "x", "x", "y"] * 20,
    ...     "winner": ["model_a", "model_a", "model_a", "tie", "tie", "model_b"] * 20,
    ... }
    >>> board = Leaderboard.fit(battles)
    >>> board
    Leaderboard(3 items, 120 battles, Davidson)
    >>> board.table["item"], board.table["rank_low"], board.table["rank_high"]
    (['y', 'x', 'z'], [1, 1, 3], [2, 2, 3])
    """

    def __init__(
        self,
        items: tuple[str, ...],
        scores: Tensor,
        covariance: Tensor,
        level: float,
        comparisons: ComparisonLaw | None = None,
        *,
        refits: Tensor | None = None,
        seed: int = 0,
    ) -> None:
        self.items = items
        """The names of the items."""
        self.scores = scores
        """The scores ``(n,)`` of the items, of mean zero: in nats, or in the unit of a table of scores."""
        self.comparisons = comparisons
        """The fitted law of the outcome of a battle; None if there were none."""
        self.covariance = covariance
        """Of the scores, ``(n, n)``."""
        self.level = level
        """Of the intervals and of the confidence sets."""
        self._refits, self._seed = refits, seed

    @classmethod
    def fit(
        cls,
        battles: Any,
        ties: Ties = "davidson",
        *,
        level: float = 0.95,
        covariance: Covariance | None = None,
        bootstrap: int | None = None,
        prior: float | None = None,
        generator: torch.Generator | None = None,
    ) -> "Leaderboard":
        """Fit the law of comparisons and the uncertainty of its scores.

        Args:
            battles: a table with the columns ``model_a``, ``model_b``, ``winner`` ("model_a", "model_b",
                "tie", or the name of the winner) and, if there are such, ``count`` and ``judge``: a dict of
                columns, a pandas or polars frame, a structured numpy array or one of these three columns.
            ties: the law of ties, "davidson" or "rao-kupper"; "half" counts a tie as half a win for each.
            level: of intervals and confidence sets.
            covariance: by the "information", or the "sandwich", which holds also where the law is wrong and
                goes by judges where there are several. The default is the sandwich where there are judges or
                ties count half, and the information elsewhere.
            bootstrap: take the errors from this many refits to battles (or judges) drawn with replacement,
                instead of a normal law with the covariance.
            prior: the precision of a normal prior on the scores. By default there is none, unless the
                battles alone do not determine the scores: then a :class:`FitWarning` says why, and a weak
                prior (0.1) is used.
            generator: of the draws; without one they have a fixed seed.
        """
        if ties not in LAWS:
            raise FitError(f"ties are one of {', '.join(map(repr, LAWS))}, not {ties!r}", parameter="ties")
        _check(level, bootstrap)
        table = battle_table(battles)
        generator = generator or torch.Generator().manual_seed(0)
        collected = collect(
            table.pairs, table.outcomes, table.counts, items=len(table.items), groups=table.judges
        )
        fitted = _fitted(collected, LAWS[ties], prior, table.items)
        robust = ties == "half" or table.judges is not None
        kind: Covariance = covariance or ("sandwich" if robust else "information")
        refits = None if bootstrap is None else fitted.refits(bootstrap, generator)
        spread = fitted.score_covariance(kind) if refits is None else refits.T.cov()
        law = LAWS[ties].from_fit(fitted, table.items)
        return cls(table.items, law.scores, spread, level, law, refits=refits, seed=_seed(generator))

    @classmethod
    def from_scores(
        cls,
        table: Any,
        *,
        level: float = 0.95,
        bootstrap: int | None = None,
        generator: torch.Generator | None = None,
    ) -> "Leaderboard":
        """A leaderboard by the mean over tasks, such as benchmarks; its uncertainty is that of the tasks.

        Args:
            table: columns ``item``, ``task``, ``score``, or one row an item and one column a task.
            level, bootstrap, generator: as for :meth:`fit`; the bootstrap draws tasks with replacement.

        >>> scores = {"item": ["x", "y"], "a": [0.9, 0.7], "b": [0.8, 0.75], "c": [0.85, 0.8]}
        >>> Leaderboard.from_scores(scores).table["item"]
        ['x', 'y']
        """
        _check(level, bootstrap)
        scores = table if isinstance(table, ScoreTable) else score_table(table)
        generator = generator or torch.Generator().manual_seed(0)
        refits = None if bootstrap is None else scores.refits(bootstrap, generator)
        spread = scores.covariance() if refits is None else refits.T.cov()
        return cls(scores.items, scores.mean(), spread, level, refits=refits, seed=_seed(generator))

    @property
    def order(self) -> Tensor:
        """The items by falling score."""
        return self.scores.argsort(descending=True, stable=True)

    @cached_property
    def errors(self) -> Tensor:
        """Draws ``(draws, n)`` of the error of the scores: refits less their mean, or normal ones."""
        if self._refits is not None:
            return self._refits - self._refits.mean(0)
        return _normal(self.covariance, DRAWS, torch.Generator().manual_seed(self._seed))

    @cached_property
    def law(self) -> Thurstone:
        """The law of the order of the true scores, given how well they are known."""
        return Thurstone(self.scores, self.covariance)

    @cached_property
    def rank_sets(self) -> RankSets:
        """For each item a set that holds its rank with the probability of the level."""
        return marginal_rank_sets(self.scores, self.errors, self.level)

    @cached_property
    def simultaneous_rank_sets(self) -> RankSets:
        """Sets that hold the ranks of all items together with the probability of the level."""
        return simultaneous_rank_sets(self.scores, self.errors, self.level)

    @cached_property
    def tiers(self) -> Tensor:
        """The tier of each item ``(n,)``, from 1: nobody in it is certainly below its first."""
        return tiers(self.order, self.simultaneous_rank_sets.above)

    def certain(self) -> list[tuple[str, str]]:
        """The partial order of what is certain: pairs (better, worse), without those that follow."""
        edges = certain_edges(self.simultaneous_rank_sets.above)
        return [(self.items[a], self.items[b]) for a, b in edges]

    def battles_to_separate(self, better: str, worse: str) -> int | None:
        """How many further battles of two items against each other would put them into different tiers, if
        their scores stay as they are: 0 if it is certain already who is above, None if the scores are equal.
        """
        if self.comparisons is None:
            raise FitError("this leaderboard was made from scores: there are no battles to add")
        return self._to_separate(*(self._number(name) for name in (better, worse)))

    def _to_separate(self, a: int, b: int) -> int | None:
        assert self.comparisons is not None
        assert self.simultaneous_rank_sets.critical is not None
        above, difference = self.simultaneous_rank_sets.above, float(self.scores[a] - self.scores[b])
        if difference == 0 or bool(above[a, b] | above[b, a]):
            return None if difference == 0 else 0
        c = self.covariance
        variance = float(c[a, a] + c[b, b] - 2 * c[a, b])
        link, tie = self.comparisons.link, self.comparisons.tie([a, b])
        at = link.derivatives(self.scores[a] - self.scores[b], tie)
        information = float((at.log.exp() * at.d.square())[: 3 if link.tie_parameter else 2].sum())
        return battles_to_separate(difference, variance, information, self.simultaneous_rank_sets.critical)

    @cached_property
    def table(self) -> dict[str, list[Any]]:
        """The leaderboard, best item first, as a dict of columns.

        ``item``; ``score`` with the interval ``low`` to ``high``; the confidence set of the rank, by itself
        (``rank_low``, ``rank_high``) and together with all others (``rank_low_simultaneous``,
        ``rank_high_simultaneous``), counted from 1; the probability ``p_best`` of being the best; ``tier``;
        ``expected_rank``; from battles also how many ``battles`` the item took part in, and how many
        ``more_battles`` against the next item would separate the two (None for the last).
        """
        order, scores = self.order, self.scores
        z = float(torch.special.ndtri(torch.tensor((1 + self.level) / 2, dtype=torch.float64)))
        error = z * self.covariance.diagonal().clamp(min=0).sqrt()
        own, joint = self.rank_sets, self.simultaneous_rank_sets
        columns = {
            "score": scores,
            "low": scores - error,
            "high": scores + error,
            "rank_low": own.low,
            "rank_high": own.high,
            "rank_low_simultaneous": joint.low,
            "rank_high_simultaneous": joint.high,
            "p_best": self.law.marginals()[:, 0],
            "tier": self.tiers,
            "expected_rank": 1 + self.law.mean_ranks(),
        }
        if self.comparisons is not None:
            columns["battles"] = self.comparisons.checked_fit().battles_of_items()
        result: dict[str, list[Any]] = {"item": [self.items[item] for item in order.tolist()]}
        result |= {name: column[order].tolist() for name, column in columns.items()}
        if self.comparisons is not None:
            result["more_battles"] = [self._to_separate(a, b) for a, b in pairwise(order.tolist())] + [None]
        return result

    def __repr__(self) -> str:
        if self.comparisons is None:
            return f"Leaderboard({len(self.items)} items, by scores)"
        battles = self.comparisons.checked_fit().battles.total
        return f"Leaderboard({len(self.items)} items, {battles:,.12g} battles, {self.comparisons.family})"

    def _number(self, name: str) -> int:
        if name not in self.items:
            raise FitError(f"there is no item {name!r} on this leaderboard")
        return self.items.index(name)


def _fitted(battles: Any, law: type[ComparisonLaw], prior: float | None, items: tuple[str, ...]) -> Fitted:
    """The fit, with a weak prior and a warning where the battles alone determine nothing."""
    if prior is not None:
        return fit_battles(battles, law.link, prior=Prior(prior), names=items)
    try:
        return fit_battles(battles, law.link, names=items)
    except FitError as error:
        if error.parameter != "penalty":
            raise
        warn(f"{error}; a weak prior is used (prior={WEAK_PRIOR})", FitWarning)
        return fit_battles(battles, law.link, prior=Prior(WEAK_PRIOR), names=items)


def _check(level: float, bootstrap: int | None) -> None:
    if not 0 < level < 1:
        raise FitError(f"{{parameter}} is between 0 and 1, not {level!r}", parameter="level")
    if bootstrap is not None and bootstrap < LEAST_REFITS:
        raise FitError(
            f"{{parameter}} takes at least {LEAST_REFITS} refits, not {bootstrap}", parameter="bootstrap"
        )


def _seed(generator: torch.Generator) -> int:
    return int(torch.randint(2**62, (), generator=generator))


def _normal(covariance: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    values, vectors = torch.linalg.eigh(covariance)
    noise = torch.randn((draws, len(values)), dtype=torch.float64, generator=generator)
    return noise @ (vectors * values.clamp(min=0).sqrt()).T
