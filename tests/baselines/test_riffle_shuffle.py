"""Riffle shuffles against the act of shuffling, their law, and each other."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest
import torch

import factorank as fr
from factorank.baselines import RiffleShuffle, denoising_schedule, total_variation
from factorank.baselines.riffle_shuffle import riffle, riffle_entropy, rising_sequences
from factorank.errors import DistributionError
from tests.models.naive import all_orders, assert_drawn_from


def law_by_dealing(n: int, packets: int) -> dict[tuple[int, ...], Fraction]:
    """The law of Gilbert, Shannon and Reeds for any number of packets, from what a dealer does.

    Undone, a shuffle lays every card, from the top, on one of the piles at random, and stacks the piles.
    """
    counts: Counter[tuple[int, ...]] = Counter()
    for piles in itertools.product(range(packets), repeat=n):
        undone = [place for pile in range(packets) for place in range(n) if piles[place] == pile]
        shuffled = [0] * n
        for card, place in enumerate(undone):
            shuffled[place] = card
        counts[tuple(shuffled)] += 1
    return {order: Fraction(count, packets**n) for order, count in counts.items()}


@pytest.mark.parametrize(("n", "packets"), [(1, 2), (2, 2), (3, 1), (3, 2), (3, 4), (4, 3), (5, 2), (5, 4)])
def test_log_prob_is_the_law_of_the_dealer(n, packets):
    law, truth = RiffleShuffle(n, packets), law_by_dealing(n, packets)
    probs = law.log_prob(all_orders(n)).exp()
    wanted = torch.tensor([float(truth.get(tuple(order.tolist()), 0)) for order in all_orders(n)])
    torch.testing.assert_close(probs, wanted)
    assert probs.sum().item() == pytest.approx(1, abs=1e-6)
    entropy = -sum(float(p) * math.log(p) for p in truth.values())
    assert riffle_entropy(n, packets) == pytest.approx(entropy)
    assert law.entropy().item() == pytest.approx(entropy, abs=1e-5)


@pytest.mark.parametrize(("n", "packets"), [(3, 2), (4, 4), (5, 2), (5, 8)])
def test_samples_follow_the_law(n, packets, generator):
    law = RiffleShuffle(n, packets)
    samples = law.sample((6000,), generator=generator)
    assert_drawn_from(samples, all_orders(n), law.log_prob(all_orders(n)).exp())


@pytest.mark.parametrize(("first", "second"), [(2, 2), (2, 4), (3, 2)])
def test_a_shuffle_after_a_shuffle_is_a_shuffle(first, second):
    n = 4
    orders = all_orders(n)
    probs, other_probs = (RiffleShuffle(n, packets).log_prob(orders).exp() for packets in (first, second))
    together = torch.zeros(len(orders))
    for a, b in itertools.product(range(len(orders)), repeat=2):  # list[b] of list a: a's cards, riffled by b
        together[fr.index_of(fr.compose(orders[a], orders[b]))] += probs[a] * other_probs[b]
    torch.testing.assert_close(together, RiffleShuffle(n, first * second).log_prob(orders).exp())


def test_each_row_has_packets_of_its_own(generator):
    packets = torch.tensor([1, 2, 2**12])
    shuffles = riffle(torch.rand((2000, 3, 6), generator=generator), packets)
    assert fr.is_permutation(shuffles).all()
    assert (shuffles[:, 0] == torch.arange(6)).all()
    assert rising_sequences(shuffles[:, 1]).max() == 2
    assert rising_sequences(shuffles[:, 2]).max() > 4
    law = RiffleShuffle(6, packets)
    assert law.batch_shape == (3,)
    assert law.log_prob(shuffles).isfinite().all()


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 3), (2, None)])
def test_total_variation_by_enumeration(first, second):
    orders = all_orders(5)
    probs = RiffleShuffle(5, 2**first).log_prob(orders).exp()
    other = fr.Uniform(5) if second is None else RiffleShuffle(5, 2**second)
    distance = (probs - other.log_prob(orders).exp()).abs().sum().item() / 2
    assert total_variation(5, first, second) == pytest.approx(distance, abs=1e-6)


def test_seven_shuffles():
    """The figures of Bayer and Diaconis (1992, table 1) for 52 cards."""
    published = [1.000, 1.000, 1.000, 1.000, 0.924, 0.614, 0.334, 0.167, 0.085, 0.043]
    assert [round(total_variation(52, t), 3) for t in range(1, 11)] == published


def test_schedules_of_the_published_puzzles():
    published = {4: [0, 2, 7], 9: [0, 3, 5, 9], 16: [0, 4, 6, 10], 25: [0, 5, 7, 11], 36: [0, 6, 8, 12]}
    assert {n: denoising_schedule(n) for n in published} == published
    for n in (1, 2, 3, 5, 64, 200):
        steps = denoising_schedule(n)
        assert steps[0] == 0
        assert all(s < t for s, t in itertools.pairwise(steps))


def test_refusals():
    with pytest.raises(DistributionError, match="1 or more packets"):
        RiffleShuffle(4, 0)
    with pytest.raises(DistributionError, match="0 or more"):
        RiffleShuffle(-1)
