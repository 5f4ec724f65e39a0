"""Real votes: the bits that each classical family needs for a ranking it was not fitted to.

There are five sets of rankings: two years of students' choices of courses (PrefLib 00009, complete), the
constituency of Dublin West in 2002 (PrefLib 00001, top lists: items left out come last), rankings of ten
kinds of sushi (PrefLib 00014, complete), and the ratings of 100 jokes by the 7,200 users of Jester who rated
them all, ties broken at random. On each split of the voters every family, and mixtures of up to five of its
laws, are fitted to the same voters and scored on the same held-out voters.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from factorank.data import Rankings, load_ratings, read_rankings
from factorank.distributions.fitting.checks import Unranked
from factorank.errors import FactorankError
from factorank.votes.comparison import SMOOTHED, laws_to_compare, score_family, with_differences
from factorank.votes.families import MIXED
from factorank.votes.reading import prepared

FAMILIES = ("uniform", *MIXED)
HELD_OUT = 0.2
COMPONENTS = 5


@dataclass(frozen=True)
class VoteSet:
    """A set of votes and how laws are fitted to it."""

    name: str
    read: Callable[[Path], Rankings]
    splits: int
    """Splits of the voters, with seeds 0, 1, …: several where there are few voters."""
    restarts: int
    max_iterations: int | None = None
    mixtures: tuple[str, ...] = MIXED
    unranked: Unranked | None = None


def jester(folder: Path) -> Rankings:
    """The rankings of the 7,200 users of Jester who rated all 100 jokes, equal ratings in a random order."""
    ratings = load_ratings(folder / "jester" / "jester_24983x100.npz")
    jokes = ratings.item_count
    scores = ratings.of_users(ratings.users_with(jokes)).values.view(-1, jokes)
    names = [f"joke {number}" for number in ratings.ids]
    return Rankings.from_scores(scores, names).break_ties(torch.Generator().manual_seed(0))


def _preflib(name: str) -> Callable[[Path], Rankings]:
    return lambda folder: read_rankings(folder / "preflib" / name)


SETS = (
    VoteSet("courses-2003", _preflib("00009-00000001.soc"), splits=3, restarts=50),
    VoteSet("courses-2004", _preflib("00009-00000002.soc"), splits=3, restarts=50),
    VoteSet("dublin-west-2002", _preflib("00001-00000002.soi"), splits=1, restarts=50, unranked="below"),
    VoteSet("sushi", _preflib("00014-00000001.soc"), splits=1, restarts=50),
    VoteSet("jester", jester, splits=1, restarts=5, max_iterations=60),
)


@dataclass(frozen=True)
class Job:
    """All laws to be fitted to some voters of a set and scored on the others."""

    votes: VoteSet
    train: Rankings
    held_out: Rankings
    seed: int
    laws: list[tuple[str, int]]
    """Families and numbers of components."""
    whole: bool
    """Whether these are all."""

    def rows(self) -> Iterator[dict[str, Any]]:
        """The results, a line of the results file for each law; differences are to the best of the split."""
        chosen = ("unranked", "restarts", "max_iterations")
        settings = replace(SMOOTHED, **{name: getattr(self.votes, name) for name in chosen})
        scores = [score_family(self.train, self.held_out, *law, settings, self.seed) for law in self.laws]
        if self.whole:  # among some families the best is not the best
            scores = with_differences(scores, self.held_out)
        for score in scores:
            row: dict[str, Any] = {"experiment": "votes", "data": self.votes.name, "n": self.train.n}
            row |= {"voters": self.train.voters, "held_out": self.held_out.voters, "seed": self.seed}
            row |= {name: value for name, value in vars(score).items() if name != "voter_bits"}
            yield row | {"starts": settings.restarts, "seconds": round(score.seconds, 2)}


def jobs(folder: Path, names: tuple[str, ...] = (), families: tuple[str, ...] = ()) -> list[Job]:
    """The splits of all sets, for the sets and families of these names or, by default, for all."""
    _check(names, [votes.name for votes in SETS], "set of votes")
    _check(families, FAMILIES, "family")
    listed = []
    for votes in SETS:
        if not names or votes.name in names:
            rankings = prepared(votes.read(folder), votes.unranked).distinct()
            laws = laws_to_compare(rankings, COMPONENTS, votes.mixtures)
            laws = [law for law in laws if not families or law[0] in families]
            for seed in range(votes.splits):
                train, held = rankings.split(HELD_OUT, torch.Generator().manual_seed(seed))
                listed.append(Job(votes, train, held, seed, laws, not families))
    return listed


def with_row(rows: Sequence[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a results file with a new row, which replaces an earlier one of the same law and split."""
    sets = [votes.name for votes in SETS]

    def key(row: dict[str, Any]) -> tuple[int, int, int, int]:
        return sets.index(row["data"]), row["seed"], FAMILIES.index(row["family"]), row["components"]

    by_key = {key(each): each for each in [*rows, row]}
    return [by_key[place] for place in sorted(by_key)]


def _check(names: Sequence[str], known: Sequence[str], what: str) -> None:
    if unknown := [name for name in names if name not in known]:
        raise FactorankError(f"there is no {what} {unknown[0]!r}; there are {', '.join(known)}")
