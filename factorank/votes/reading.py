"""Votes from files: strict rankings, as fits take them, and orders, as the training of a model does.

Laws and models from folders, with the names of their items.
"""

import os
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from factorank.data.rankings import Rankings
from factorank.data.rankings.files import read_rows
from factorank.distributions import PermutationDistribution
from factorank.distributions.fitting.checks import Unranked
from factorank.distributions.saving import is_law, law_items, load_law
from factorank.errors import FactorankError, RankingsError
from factorank.models import PermutationModel
from factorank.votes.names import read_items
from factorank.votes.networks import NETWORKS, open_networks

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
    rankings, places = read_rows(path, format, None, first_rank, merge)
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
        rankings = replace(rankings, ranks=rankings.ranks.masked_fill(bottom, -1))
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
        fault = f"{rankings.voters} voters who rank {rankings.n} items are too many to train on"
        raise RankingsError(f"{fault}: their orders hold more than {MOST_NUMBERS} numbers")
    if held_out == 0:
        return rankings.orders(), None
    try:
        train, held = rankings.split(held_out, generator)
    except RankingsError as error:
        raise RankingsError(f"{error}; {{parameter=0}} trains on all of them", parameter="held_out") from None
    return train.orders(), held.orders()


def open_law(
    folder: str | os.PathLike[str], nfe: int | None = None, unmask: str | None = None
) -> tuple[PermutationDistribution, list[str]]:
    """The law in a folder, fitted or learnt, and the names of its items.

    The folder is that of :func:`factorank.save_law`, of ``factorank fit``, or of ``factorank train``. ``nfe``
    and ``unmask`` choose a law of a model, as in :meth:`factorank.PermutationModel.distribution`.

    >>> import tempfile
    >>> from factorank import Mallows, save_law
    >>> folder = tempfile.mkdtemp()
    >>> save_law(Mallows([2, 0, 1], phi=0.25), folder, items=["ann", "bob", "cat"])
    >>> open_law(folder)
    (Mallows(central=[2, 0, 1], phi=0.25), ['ann', 'bob', 'cat'])
    """
    path = Path(folder)
    if is_law(path):
        for name, value in (("nfe", nfe), ("unmask", unmask)):
            if value is not None:
                raise FactorankError(f"{{parameter}} is for models, but {path} holds a law", parameter=name)
        law, names = load_law(path), law_items(path)
        if not isinstance(law, PermutationDistribution):
            raise FactorankError(f"{path} holds a law of comparisons or of ties, {law}, not one of orders")
        return law, list(names or map(str, range(law.n)))
    if (path / NETWORKS).is_file():
        for name, value in (("nfe", nfe), ("unmask", unmask)):
            if value is not None:
                fault = f"{{parameter}} is for a single network, but {path} holds a mixture of several"
                raise FactorankError(fault, parameter=name)
        mixture = open_networks(path)
        return mixture, read_items(path, mixture.n)
    if not (path / "config.json").is_file():
        raise FactorankError(f"{path}: neither a law (law.json) nor a model (config.json) is there")
    model = PermutationModel.from_pretrained(path)
    if model.context is not None:
        fault = f"the model in {path} is conditional on a context ({type(model.context).__name__})"
        raise FactorankError(f"{fault}; in Python model.distribution(context) takes it")
    return model.distribution(nfe=nfe, unmask=unmask), read_items(path, model.n)
