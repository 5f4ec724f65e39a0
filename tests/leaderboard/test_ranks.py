"""Rank sets: coverage, their order of width, tiers and the partial order."""

import itertools

import pytest
import torch

from factorank.errors import DistributionError
from factorank.leaderboard.ranks import (
    battles_to_separate,
    bonferroni_rank_sets,
    certain_edges,
    marginal_rank_sets,
    naive_rank_sets,
    simultaneous_rank_sets,
    tiers,
)


def true_ranks(scores):
    """The ranks that a true score allows: equal scores share theirs."""
    low = 1 + (scores[None, :] > scores[:, None]).sum(1)
    return low, low + (scores[None, :] == scores[:, None]).sum(1) - 1


def covers(sets, scores):
    """Whether each set holds a rank of its item, and all of them if scores are equal."""
    low, high = true_ranks(scores)
    return (sets.low <= low) & (high <= sets.high)


@pytest.mark.parametrize("gap", [0.0, 0.5])
def test_sets_cover_with_their_level_and_the_joint_ones_all_at_once(gap):
    generator = torch.Generator().manual_seed(0)
    scores = gap * torch.arange(5, dtype=torch.float64)
    alone, together = [], []
    for _ in range(400):
        errors = torch.randn(400, 5, generator=generator, dtype=torch.float64)
        estimate = scores + torch.randn(5, generator=generator, dtype=torch.float64)
        alone.append(covers(marginal_rank_sets(estimate, errors, 0.9), scores).double())
        together.append(covers(simultaneous_rank_sets(estimate, errors, 0.9), scores).all().double())
    assert torch.stack(alone).mean() > 0.88
    assert torch.stack(together).mean() > 0.86
    if gap == 0:  # nothing is true but that all are equal, so that the level is reached, not exceeded
        assert torch.stack(together).mean() < 0.95


def test_step_down_by_hand():
    """The definition, written as loops over pairs and draws."""
    generator = torch.Generator().manual_seed(1)
    errors = torch.randn(300, 4, generator=generator, dtype=torch.float64)
    scores = torch.tensor([3.0, 2.6, -1.0, -4.5], dtype=torch.float64)
    pairs = list(itertools.permutations(range(4), 2))
    spread = {(a, b): float((errors[:, a] - errors[:, b]).std()) for a, b in pairs}

    def critical(tested):
        largest = sorted(max(float(row[a] - row[b]) / spread[a, b] for a, b in tested) for row in errors)
        return largest[min(int(-(-0.95 * 301 // 1)) - 1, 299)]

    def rejected(tested):
        done = set()
        while len(done) < len(tested):
            limit = critical([pair for pair in tested if pair not in done])
            new = {(a, b) for a, b in tested if float(scores[a] - scores[b]) / spread[a, b] > limit}
            if new <= done:
                break
            done |= new
        return done

    joint = rejected(pairs)
    sets = simultaneous_rank_sets(scores, errors, 0.95)
    assert {tuple(pair) for pair in sets.above.nonzero().tolist()} == joint
    own = marginal_rank_sets(scores, errors, 0.95)
    for item in range(4):
        done = rejected([pair for pair in pairs if item in pair])
        assert own.low[item] == 1 + sum(b == item for _, b in done)
        assert own.high[item] == 4 - sum(a == item for a, _ in done)


def test_widths_are_in_order():
    generator = torch.Generator().manual_seed(0)
    errors = 0.2 * torch.randn(2000, 30, generator=generator, dtype=torch.float64)
    scores = torch.linspace(0, 3, 30, dtype=torch.float64)
    own = marginal_rank_sets(scores, errors, 0.95)
    joint = simultaneous_rank_sets(scores, errors, 0.95)
    wide = bonferroni_rank_sets(scores, errors, 0.95)
    naive = naive_rank_sets(scores - 0.4, scores + 0.4)
    widths = [(sets.high - sets.low).double().mean() for sets in (own, joint, wide)]
    assert widths[0] < widths[1] <= widths[2]
    assert (naive.low <= naive.high).all()
    ranks = 30 - torch.arange(30)
    for sets in (own, joint, wide, naive):
        assert ((sets.low <= ranks) & (ranks <= sets.high)).all()


def test_tiers_edges_and_one_item():
    above = torch.zeros(4, 4, dtype=torch.bool)
    for a, b in [(0, 2), (0, 3), (1, 3), (2, 3)]:
        above[a, b] = True
    assert tiers(torch.tensor([0, 1, 2, 3]), above).tolist() == [1, 1, 2, 3]
    assert certain_edges(above) == [(0, 2), (1, 3), (2, 3)]
    single = simultaneous_rank_sets(torch.zeros(1).double(), torch.zeros(100, 1).double(), 0.95)
    assert (single.low.tolist(), single.high.tolist()) == ([1], [1])


def test_battles_that_would_separate():
    more = battles_to_separate(0.2, 0.04, 0.25, 1.96)
    precision = 1 / 0.04 + 0.25 * more
    assert 0.2 * precision**0.5 >= 1.96
    assert 0.2 * (precision - 0.25) ** 0.5 < 1.96
    assert battles_to_separate(1.0, 0.01, 0.25, 1.96) == 0


@pytest.mark.parametrize("sets", [marginal_rank_sets, simultaneous_rank_sets, bonferroni_rank_sets])
def test_what_has_no_level_or_shape_is_refused(sets):
    scores, errors = torch.zeros(3), torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(DistributionError, match=r"level is between 0 and 1, not 1e[+]30"):
        sets(scores, errors, 1e30)
    with pytest.raises(DistributionError, match=r"not scores \(1, 3\) and errors \(20, 3\)"):
        sets(scores[None], errors, 0.9)
    with pytest.raises(DistributionError, match=r"errors \(0, 3\)"):
        sets(scores, errors[:0], 0.9)
