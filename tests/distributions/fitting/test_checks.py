"""Every fit refuses what is no ranking, and says where."""

import math

import pytest
import torch

import factorank as fr
from factorank.distributions import FitError
from factorank.errors import FactorankError, PermutationError

FITS = {
    "mallows": fr.Mallows.fit,
    "generalized-mallows": fr.GeneralizedMallows.fit,
    "rim": fr.RIM.fit,
    "plackett-luce": fr.PlackettLuce.fit,
    "consensus": fr.consensus,
    "mixture": lambda orders, weights=None: fr.Mixture.fit(orders, weights, components=2),
}
every_fit = pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
good = torch.tensor([[0, 1, 2], [2, 0, 1], [1, 2, 0]])


@every_fit
@pytest.mark.parametrize(
    ("orders", "message"),
    [
        (torch.tensor([[0, 1, 2], [2, 0, 2]]), r"row 1 holds 2 twice, at positions 0 and 2"),
        (torch.tensor([[0, 1, 2], [2, 0, 4]]), r"row 1 holds 4 at position 2"),
        (torch.tensor([[0, 1, -3]]), r"row 0 holds -3 at position 2"),
        (torch.tensor([[1, 2, 3], [3, 1, 2]]), r"row 0 holds 3 at position 2 .* count from 1"),
        (torch.tensor([[0.0, math.nan, 2.0]]), r"not as torch.float32"),
        (torch.tensor([[True, False]]), r"not as torch.bool"),
        (torch.tensor(3), r"0-d"),
        ([[0, 1, 2]], r"not as list"),
    ],
)
def test_rows_that_are_no_permutations(fit, orders, message):
    with pytest.raises(PermutationError, match=message):
        fit(orders)


@every_fit
def test_nothing_to_fit(fit):
    with pytest.raises(FitError, match="at least one ranking"):
        fit(torch.empty(0, 4, dtype=torch.int64))
    with pytest.raises(FitError, match="at least one item"):
        fit(torch.empty(4, 0, dtype=torch.int64))


@every_fit
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.tensor([1.0, -0.5, 2.0]), r"ranking 1 has weight -0\.5"),
        (torch.tensor([1.0, 1.0, math.nan]), r"ranking 2 has weight nan"),
        (torch.tensor([math.inf, 1.0, 1.0]), r"ranking 0 has weight inf"),
        (torch.tensor([1.0, 1.0]), r"expected shape \(3,\), got \(2,\)"),
        (torch.zeros(3), r"at least one weight must be above 0"),
    ],
)
def test_weights(fit, weights, message):
    with pytest.raises(FitError, match=message):
        fit(good, weights=weights)


@every_fit
def test_empty_places_need_a_word(fit):
    with pytest.raises(FitError, match="row 1 lists 2 of 3 items: say unranked='below'"):
        fit(torch.tensor([[0, 1, 2], [2, 0, -1]]))


@pytest.mark.parametrize("name", ["mallows", "generalized-mallows", "rim", "plackett-luce", "mixture"])
@pytest.mark.parametrize("unranked", ["below", "incomparable"])
def test_every_family_takes_votes_as_they_are(name, unranked):
    """Counts, ties, items left out and names go in together, and none is lost."""
    family = {"mallows": fr.Mallows, "generalized-mallows": fr.GeneralizedMallows, "rim": fr.RIM}
    family |= {"plackett-luce": fr.PlackettLuce, "mixture": fr.Mixture}
    ranks = torch.tensor([[0, 1, 2, 3], [1, 0, -1, -1], [0, 0, 1, 2], [3, 2, 1, 0], [-1, 0, 1, 1]])
    counts = torch.tensor([7, 3, 2, 4, 1])
    options = {"mixture": {"components": 1}, "rim": {"smoothing": 0.1}}.get(name, {})
    votes = fr.votes.Rankings(["ann", "bob", "cat", "dan"], ranks, counts)
    law = family[name].fit(votes, unranked=unranked, **options)
    again = fr.votes.Rankings(list(votes.items), ranks.repeat_interleave(counts, 0))
    assert law.report.rankings == 17
    assert law.report.items == ("ann", "bob", "cat", "dan")
    repeated = family[name].fit(again, unranked=unranked, **options)
    assert repeated.report.log_likelihood == pytest.approx(law.report.log_likelihood, abs=1e-6)
    partial = fr.PartialOrders.from_ranks(ranks, unranked=unranked)
    every = fr.permutation_at(torch.arange(24), 4)
    agrees = partial.agrees(every[:, None].expand(-1, 5, -1))
    each = law.log_prob(every).double()[:, None].masked_fill(~agrees, -math.inf).logsumexp(0)
    assert law.report.log_likelihood == pytest.approx(float(each @ counts.double()), rel=1e-6)
    with pytest.raises(FactorankError, match="row 1 does not rank 'cat': say unranked='below'"):
        family[name].fit(votes, **options)
    with pytest.raises(FitError, match="rankings have counts and items of their own"):
        family[name].fit(votes, weights=counts, unranked=unranked, **options)


@pytest.mark.parametrize(
    ("orders", "options", "message"),
    [
        ([[0, 1, 2], [2, 0, -1]], {}, r"row 1 lists 2 of 3 items: say unranked='below'"),
        ([[0, -1, 2]], {"unranked": "below"}, r"row 0 holds it at position 1, before an item"),
        ([[0, 1, 2], [-1, -1, -1]], {"unranked": "below"}, r"row 1 lists none"),
        ([[0, 4]], {"items": 4, "unranked": "below"}, r"row 0 holds 4 at position 1"),
        ([[0, 4]], {"unranked": "below"}, r"row 0 holds 4 at position 1 \(give items="),
        ([[3, 1, 3, -1]], {"unranked": "below"}, r"row 0 holds 3 twice, at positions 0 and 2"),
        ([[0, 1, -1]], {"unranked": "above"}, r"'below' or 'incomparable', not 'above'"),
        ([[0, 1]], {"penalty": -1.0}, r"penalty is finite and at least 0, not -1"),
    ],
)
def test_plackett_luce_on_incomplete_orders(orders, options, message):
    with pytest.raises(FactorankError, match=message):
        fr.PlackettLuce.fit(torch.tensor(orders), **options)


def test_other_settings():
    with pytest.raises(FitError, match="samples is a whole number of at least 1, not 0"):
        fr.Mallows.fit(good, samples=0)
    with pytest.raises(FitError, match=r"shape \(2,\), but the orders rank 3"):
        fr.Mallows.fit(good, central=torch.tensor([0, 1]))
    with pytest.raises(PermutationError, match="twice"):
        fr.RIM.fit(good, reference=torch.tensor([0, 0, 1]))
    with pytest.raises(FitError, match="place_weights are 3 finite"):
        fr.Mallows.fit(good, place_weights=torch.tensor([1.0, -1.0, 1.0]))
    with pytest.raises(FitError, match="smoothing is finite"):
        fr.RIM.fit(good, smoothing=-1)
    with pytest.raises(FitError, match="no family 'ising'"):
        fr.Mixture.fit(good, components=2, family="ising")
    with pytest.raises(FitError, match="components is a whole number of at least 1, not 0"):
        fr.Mixture.fit(good, components=0)
    with pytest.raises(FitError, match="mixture of Mallows has no penalty"):
        fr.Mixture.fit(good, components=2, penalty=1.0)
