"""The generalized Plackett-Luce law against its definition, and beam search against enumeration."""

import math

import pytest
import torch

import factorank as fr
from factorank.baselines import GeneralizedPlackettLuce, generalized_plackett_luce
from factorank.baselines.generalized_plackett_luce import beam_search
from factorank.errors import DistributionError
from tests.models.naive import all_orders, assert_drawn_from


def log_prob_by_definition(scores, order):
    left, total = list(range(len(order))), 0.0
    for place, item in enumerate(order.tolist()):
        total += math.log(math.exp(scores[place, item]) / sum(math.exp(scores[place, j]) for j in left))
        left.remove(item)
    return total


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_law(n, generator):
    law = GeneralizedPlackettLuce(2 * torch.randn(n, n, generator=generator))
    orders = all_orders(n)
    log_probs = law.log_prob(orders)
    wanted = torch.tensor([log_prob_by_definition(law.logits, order) for order in orders])
    torch.testing.assert_close(log_probs, wanted)
    assert log_probs.exp().sum().item() == pytest.approx(1, abs=1e-5)
    assert_drawn_from(law.sample((5000,), generator=generator), orders, log_probs.exp())


def test_equal_rows_are_plackett_luce(generator):
    scores = torch.randn(3, 4, generator=generator)
    law = GeneralizedPlackettLuce(scores[:, None, :].expand(3, 4, 4))
    orders = all_orders(4)[:, None]
    torch.testing.assert_close(law.log_prob(orders), fr.PlackettLuce(scores).log_prob(orders))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_full_beam_is_the_whole_law(n, generator):
    law = GeneralizedPlackettLuce(2 * torch.randn(3, n, n, generator=generator))
    likeliest, log_probs = law.beam_search(math.factorial(n))
    assert likeliest.shape == (3, math.factorial(n), n)
    torch.testing.assert_close(log_probs, law.log_prob(likeliest.movedim(1, 0)).movedim(0, 1))
    assert (log_probs[:, :-1] >= log_probs[:, 1:]).all()
    torch.testing.assert_close(likeliest[:, 0], law.mode)
    for row in likeliest:
        assert len({tuple(order) for order in row.tolist()}) == math.factorial(n)


def beam_by_lists(scores, width):
    """A beam search over Python lists."""
    n, beam = len(scores), [((), 0.0)]
    for place in range(n):
        grown = []
        for order, total in beam:
            left = [item for item in range(n) if item not in order]
            norm = math.log(sum(math.exp(scores[place, j]) for j in left))
            grown += [((*order, j), total + float(scores[place, j]) - norm) for j in left]
        beam = sorted(grown, key=lambda pair: -pair[1])[:width]
    return beam


@pytest.mark.parametrize(("width", "keep"), [(1, 1), (4, 4), (10, 3)])
def test_narrow_beams(width, keep, generator):
    scores = 2 * torch.randn(2, 3, 6, 6, generator=generator)
    likeliest, log_probs = beam_search(scores, width, keep)
    assert likeliest.shape == (2, 3, keep, 6)
    for i, j in [(0, 0), (0, 2), (1, 1)]:
        wanted = beam_by_lists(scores[i, j], width)[:keep]
        assert [tuple(order) for order in likeliest[i, j].tolist()] == [order for order, _ in wanted]
        torch.testing.assert_close(log_probs[i, j], torch.tensor([total for _, total in wanted]))


def test_large_batches_go_through_in_parts(monkeypatch, generator):
    scores = torch.randn(7, 5, 5, generator=generator)
    whole = beam_search(scores, 6)
    monkeypatch.setattr(generalized_plackett_luce, "MOST_CANDIDATES", 2 * 6 * 5)
    for before, after in zip(whole, beam_search(scores, 6), strict=True):
        assert before.equal(after)


def test_shapes(generator):
    law = GeneralizedPlackettLuce(torch.zeros(2, 1, 3, 3)).expand((2, 4))
    assert law.sample((5,), generator=generator).shape == (5, 2, 4, 3)
    assert law.log_prob(torch.tensor([0, 1, 2])).shape == (2, 4)
    assert beam_search(torch.zeros(0, 4, 4), 3)[0].shape == (0, 3, 4)


def test_refusals():
    with pytest.raises(DistributionError, match="place by item"):
        GeneralizedPlackettLuce(torch.zeros(3, 4))
    with pytest.raises(DistributionError, match="finite"):
        GeneralizedPlackettLuce(torch.full((2, 2), torch.inf))
    with pytest.raises(DistributionError, match="keeps 1 or more of the 2"):
        beam_search(torch.zeros(3, 3), 2, 3)
    for search in (generalized_plackett_luce.draw, lambda scores: beam_search(scores, 2)):
        with pytest.raises(DistributionError, match="not a number"):
            search(torch.full((2, 4, 4), torch.nan))
