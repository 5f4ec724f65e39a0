"""Real votes: how many bits each classical family needs for a ranking it has not seen.

Four sets of rankings: two years of students' choices of courses (PrefLib 00009, complete), the constituency
of Dublin West in 2002 (PrefLib 00001, top lists: items left out come last), and the ratings of 100 jokes by
the 7,200 users of Jester who rated them all, ties broken at random. On each split of the voters every family,
and mixtures of up to five of its laws, are fitted to the same voters and scored on the same others.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from factorank.data import Rankings, read_rankings
from factorank.distributions.fitting.checks import Unranked
from factorank.errors import FactorankError
from factorank.votes.comparison import plan, score
from factorank.votes.families import MIXED, Setting, ready

FAMILIES = ("uniform", *MIXED)
HELD_OUT = 0.2
COMPONENTS = 5


@dataclass(frozen=True)
class Votes:
    """A set of votes and how it is used."""

    name: str
    read: Callable[[Path], Rankings]
    splits: int
    """Splits of the voters, with seeds 0, 1, …: several where there are few voters."""
    restarts: int
    max_iterations: int = 200
    mixtures: tuple[str, ...] = MIXED
    unranked: Unranked | None = None


def jester(folder: Path) -> Rankings:
    """The 7,200 users of Jester who rated all 100 jokes, as rankings; equal ratings in a random order."""
    import numpy as np

    ratings = np.load(folder / "jester" / "jester_24983x100.npz")["ratings"]
    rated_all = torch.from_numpy(ratings[~np.isnan(ratings).any(1)])
    names = [f"joke {number}" for number in range(1, ratings.shape[1] + 1)]
    return Rankings.from_scores(rated_all, names).break_ties(torch.Generator().manual_seed(0))


def _preflib(name: str) -> Callable[[Path], Rankings]:
    return lambda folder: read_rankings(folder / "preflib" / name)


SETS = (
    Votes("courses-2003", _preflib("00009-00000001.soc"), splits=3, restarts=3),
    Votes("courses-2004", _preflib("00009-00000002.soc"), splits=3, restarts=3),
    Votes("dublin-west-2002", _preflib("00001-00000002.soi"), splits=1, restarts=3, unranked="below"),
    Votes("jester", jester, splits=1, restarts=1, max_iterations=60),
)


@dataclass(frozen=True)
class Job:
    """One law to be fitted to some voters of a set and scored on the others."""

    votes: Votes
    train: Rankings
    held_out: Rankings
    seed: int
    family: str
    components: int

    def row(self) -> dict[str, Any]:
        """The result, as a line of the results file."""
        setting = Setting(
            unranked=self.votes.unranked,
            restarts=self.votes.restarts,
            max_iterations=self.votes.max_iterations,
            smoothing=1.0,
            penalty=0.1,
        )
        found = score(self.train, self.held_out, self.family, self.components, setting, self.seed)
        row: dict[str, Any] = {"experiment": "votes", "data": self.votes.name, "n": self.train.n}
        row |= {"voters": self.train.voters, "held_out": self.held_out.voters, "seed": self.seed}
        return row | asdict(found) | {"seconds": round(found.seconds, 2)}


def jobs(folder: Path, names: tuple[str, ...] = (), families: tuple[str, ...] = ()) -> list[Job]:
    """Everything that is to be fitted, for the sets and families of these names or for all."""
    unknown = set(names) - {votes.name for votes in SETS}
    if unknown:
        known = ", ".join(votes.name for votes in SETS)
        raise FactorankError(f"there is no set of votes {unknown.pop()!r}; there are {known}")
    unknown = set(families) - set(FAMILIES)
    if unknown:
        raise FactorankError(f"there is no family {unknown.pop()!r}; there are {', '.join(FAMILIES)}")
    listed = []
    for votes in SETS:
        if not names or votes.name in names:
            rankings = ready(votes.read(folder), votes.unranked)
            for seed in range(votes.splits):
                train, held = rankings.split(HELD_OUT, torch.Generator().manual_seed(seed))
                laws = plan(rankings, COMPONENTS, votes.mixtures)
                listed += [
                    Job(votes, train, held, seed, family, k)
                    for family, k in laws
                    if not families or family in families
                ]
    return listed
