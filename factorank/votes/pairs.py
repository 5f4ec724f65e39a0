"""Who beats whom: the pairwise matrix, the Condorcet winner, and methods of consensus side by side."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from factorank.data.rankings import Rankings
from factorank.distributions import Consensus, consensus
from factorank.distributions.fitting.ballots import read_ballots
from factorank.distributions.fitting.checks import Unranked
from factorank.distributions.fitting.voting_rules import METHODS
from factorank.votes.tables import aligned


@dataclass(frozen=True)
class Pairwise:
    """How many voters put each item above each other one."""

    items: tuple[str, ...]
    wins: Tensor
    """``[a, b]``: voters who put a above b, float64."""

    def __str__(self) -> str:
        """The share of those who compare two items that put the row above the column, in percent."""
        shares = 100 * self.wins / (self.wins + self.wins.T)
        rows = [["", *self.items]]
        for item, values in zip(self.items, shares.tolist(), strict=True):
            rows.append([item, *("" if math.isnan(value) else f"{value:.0f}" for value in values)])
        return aligned(rows)

    @property
    def condorcet_winner(self) -> str | None:
        """The item that beats every other one by a majority of those who compare the two, if there is one."""
        beaten = (self.wins > self.wins.T).sum(1)
        winner = int(beaten.argmax())
        return self.items[winner] if int(beaten[winner]) == len(self.items) - 1 else None

    @property
    def condorcet_loser(self) -> str | None:
        """The item that every other one beats, if there is one."""
        lost = (self.wins < self.wins.T).sum(1)
        loser = int(lost.argmax())
        return self.items[loser] if int(lost[loser]) == len(self.items) - 1 else None


def pairwise(rankings: Rankings, unranked: Unranked | None = None) -> Pairwise:
    """The pairwise matrix of votes, with ties and items left out as they are.

    >>> table = pairwise(Rankings(["a", "b"], torch.tensor([[0, 1], [1, 0]]), torch.tensor([60, 40])))
    >>> print(table)
        a   b
    a      60
    b  40
    >>> table.wins[0, 1], table.condorcet_winner
    (tensor(60., dtype=torch.float64), 'a')
    """
    from factorank.kernels.fitting import pairwise_counts_of_ranks

    ballots = read_ballots(rankings, None, unranked)
    return Pairwise(
        tuple(rankings.items), torch.from_numpy(pairwise_counts_of_ranks(ballots.ranks, ballots.weights))
    )


def consensus_methods(rankings: Rankings, unranked: Unranked | None = None) -> dict[str, Consensus]:
    """The order of each method of :func:`factorank.consensus`, and its mean Kendall distance to the voters.

    >>> votes = Rankings(["a", "b", "c"], torch.tensor([[0, 1, 2], [1, 0, 2]]), torch.tensor([60, 40]))
    >>> {name: found.order.tolist() for name, found in consensus_methods(votes).items()}["schulze"]
    [0, 1, 2]
    """
    return {method: consensus(rankings, method=method, unranked=unranked) for method in METHODS}
