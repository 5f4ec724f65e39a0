"""Votes read from a file: strict rankings, as fits take them, and orders, as the training of a model does."""

import os

import torch
from torch import Tensor

from factorank.data.rankings import Rankings
from factorank.data.rankings.files import read_rows
from factorank.distributions.fitting.checks import Unranked
from factorank.errors import RankingsError

MOST_NUMBERS = 2**30
"""The orders of all voters, which are kept in memory for training, hold at most so many numbers."""
LEARNT = "; a model learns from complete rankings, because the code of an order depends on the whole order"


def read_votes(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    first_rank: int = 1,
    unranked: Unranked | None = None,
    break_ties: bool = False,
    complete: bool = False,
    merge: bool = True,
    generator: torch.Generator | None = None,
) -> Rankings:
    """Rankings from a file, checked as in :func:`prepared`; an error names the line of the file.

    Args:
        format: as in :func:`factorank.read_rankings`, like ``first_rank``.
        unranked: what a ranking says of items that it leaves out: they come last ("below"), or nothing is
            known of them ("incomparable"). None refuses rankings that leave items out.
        break_ties: puts tied items in a random order, drawn anew for each voter.
        complete: refuses rankings that leave items out because a model is trained on them.
        merge: makes equal rankings one row; else the rows are those of the file, unless ties are broken.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "votes.csv")
    >>> _ = path.write_text("ann,bob,cat\\n1,2,3\\n2,1,\\n1,2,3\\n")
    >>> read_votes(path, unranked="below")
    Rankings(3 items, 2 rows, 3 voters, strict)
    """
    rankings, places = read_rows(path, format, None, first_rank)
    if break_ties and (unranked is not None or rankings.complete):
        rankings, places = rankings.distinct().break_ties(generator), []
    try:
        if complete:
            rankings.check_complete(LEARNT)
        rankings = prepared(rankings, unranked)
    except RankingsError as error:
        raise (error.at(places) if places and error.row is not None else error.within(path)) from None
    return rankings.distinct() if merge else rankings


def prepared(rankings: Rankings, unranked: Unranked | None = None) -> Rankings:
    """Rankings that a law can be fitted to: strict, and complete if ``unranked`` is None.

    With ``unranked="below"`` items tied at the bottom mean the same as items left out, and become that.

    >>> tied = Rankings(["a", "b", "c"], torch.tensor([[0, 1, 1]]))
    >>> prepared(tied, "below").ranks
    tensor([[ 0, -1, -1]])
    """
    if unranked is None:
        advice = ": say {parameter='below'} if items left out come last, else {parameter='incomparable'}"
        rankings.check_complete(advice, parameter="unranked")
    if unranked == "below":
        last = rankings.ranks.amax(1, keepdim=True)
        bottom = (rankings.ranks == last) & ((rankings.ranks == last).sum(1, keepdim=True) > 1) & (last > 0)
        ranks = rankings.ranks.masked_fill(bottom, -1)
        rankings = Rankings(rankings.items, ranks, rankings.counts, rankings.metadata)
    try:
        rankings.to_padded_orders()
    except RankingsError as error:
        hint = ", and unranked 'below' takes items tied at the bottom as left out" if unranked is None else ""
        raise RankingsError(error.fault + hint, parameter=error.parameter, row=error.row) from None
    return rankings


def training_orders(
    rankings: Rankings, held_out: float = 0.1, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor | None]:
    """Orders ``(voters, n)`` to train a model on, and those of a share of the voters held out (None if 0).

    >>> votes = Rankings(["a", "b"], torch.tensor([[0, 1], [1, 0]]), torch.tensor([60, 40]))
    >>> train, held = training_orders(votes, 0.1, torch.Generator().manual_seed(0))
    >>> train.shape, held.shape
    (torch.Size([90, 2]), torch.Size([10, 2]))
    """
    rankings.check_complete(LEARNT)
    if rankings.voters * max(rankings.n, 1) > MOST_NUMBERS:
        raise RankingsError(
            f"{rankings.voters} voters who rank {rankings.n} items are too many to train on: their orders"
            f" hold more than {MOST_NUMBERS} numbers"
        )
    if held_out == 0:
        return rankings.voter_orders(), None
    try:
        train, held = rankings.split(held_out, generator)
    except RankingsError as error:
        raise RankingsError(f"{error}; {{parameter=0}} trains on all of them", parameter="held_out") from None
    return train.voter_orders(), held.voter_orders()
