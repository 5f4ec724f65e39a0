"""The last resort: any law given the order of some items, by keeping the draws that agree."""

import math

import pytest
import torch

import factorank as fr
from factorank.distributions import ConditionedByRejection, ConditionedMixture, RareObservation
from factorank.distributions.base import PermutationDistribution
from factorank.distributions.conditioning import rejection


class Shuffled(PermutationDistribution):
    """A law of one's own, of two clusters of orders; it has no rule of its own."""

    def __init__(self, logits, batch_shape=()):
        self.parts = fr.PlackettLuce(logits), fr.PlackettLuce(-logits)
        super().__init__(batch_shape, logits.shape[-1])

    @property
    def device(self):
        return self.parts[0].device

    def expand(self, batch_shape, _instance=None):
        return Shuffled(self.parts[0].logits.expand(*batch_shape, self.n), torch.Size(batch_shape))

    def _log_prob(self, order):
        return torch.stack([law.log_prob(order) for law in self.parts]).logsumexp(0) - math.log(2)

    def _sample(self, shape, generator):
        first, second = (law.sample(shape, generator=generator) for law in self.parts)
        coin = torch.rand((*shape, *self.batch_shape, 1), generator=generator) < 0.5
        return torch.where(coin, first, second)


def logits(n, *batch):
    return torch.randn((*batch, n), generator=torch.Generator().manual_seed(n), dtype=torch.float64)


def test_it_agrees_with_enumeration():
    law, observed = Shuffled(logits(5)), torch.tensor([4, 0, 2])
    exact = law.condition(observed)
    g = torch.Generator().manual_seed(1)
    rejected = ConditionedByRejection(law, observed, samples=50_000, generator=g)
    assert exact.exact
    assert not rejected.exact
    assert rejected.effective_sample_size >= 4096
    assert (rejected.log_evidence - exact.log_evidence).abs() < 4 * rejected.log_evidence_error
    torch.testing.assert_close(rejected.marginals().double(), exact.marginals(), atol=0.04, rtol=0)
    torch.testing.assert_close(rejected.mean_ranks().double(), exact.mean_ranks(), atol=0.1, rtol=0)
    draws = rejected.sample((20_000,), generator=g)
    assert exact.agrees(draws).all()
    orders = exact.enumerate_support()
    counts = (draws[:, None] == orders).all(-1).double().mean(0)
    torch.testing.assert_close(counts, exact.log_prob(orders).exp(), atol=0.02, rtol=0)
    torch.testing.assert_close(
        rejected.log_prob(orders), exact.log_prob(orders), atol=float(5 * rejected.log_evidence_error), rtol=0
    )
    assert torch.equal(rejected.mode, exact.mode)


def test_laws_of_ones_own_beyond_enumeration_in_batches():
    law = Shuffled(logits(12, 2, 3), (2, 3)).condition([7, 3, 5])
    assert isinstance(law, ConditionedByRejection)
    assert law.log_evidence.shape == law.log_evidence_error.shape == law.effective_sample_size.shape == (2, 3)
    assert law.marginals().shape == (2, 3, 12, 12)
    torch.testing.assert_close(law.marginals().sum(-1), torch.ones(2, 3, 12))
    draws = law.sample((4, 5), generator=torch.Generator().manual_seed(0))
    assert draws.shape == (4, 5, 2, 3, 12)
    assert law.agrees(draws).all()
    assert torch.equal(draws, law.sample((4, 5), generator=torch.Generator().manual_seed(0)))
    assert law.agrees(law.mode).all()
    assert law.log_prob(draws).isfinite().all()
    assert (law.log_prob(draws.flip(-1)) == -math.inf).all()
    wide = law.expand((2, 2, 3))
    assert wide.sample((3,)).shape == (3, 2, 2, 3, 12)
    assert wide.marginals().shape == (2, 2, 3, 12, 12)
    assert law.sample((0,)).shape == (0, 2, 3, 12)


def test_few_enough_draws_are_held_at_once(monkeypatch):
    law, sizes = Shuffled(logits(4, 3), (3,)), []
    draw = Shuffled._sample

    def watched(self, shape, generator):
        sizes.append(shape.numel() * 3 * 4)
        return draw(self, shape, generator)

    monkeypatch.setattr(Shuffled, "_sample", watched)
    monkeypatch.setattr(rejection, "_CELLS", 6000)
    conditioned = ConditionedByRejection(law, torch.tensor([1, 0]), samples=5000)
    conditioned.sample((2000,))
    assert max(sizes) == 6000


def test_the_same_call_gives_the_same_law():
    law = Shuffled(logits(10))
    first, second = law.condition([2, 1, 0]), law.condition([2, 1, 0])
    assert torch.equal(first.log_evidence, second.log_evidence)
    other = law.condition([2, 1, 0], generator=torch.Generator().manual_seed(7))
    assert not torch.equal(first.log_evidence, other.log_evidence)


def test_observations_too_rare_are_refused():
    law = Shuffled(logits(12))
    with pytest.raises(RareObservation, match=r"agrees with \d+ of 2,000 draws of Shuffled; .* at least 32"):
        law.condition(torch.arange(9), samples=2000)
    for samples in (31, 100.0, True):
        with pytest.raises(fr.DistributionError, match="at least 32 samples"):
            law.condition([1, 0], samples=samples)


def test_a_component_that_cannot_be_conditioned_is_rejected_with_the_whole():
    n, own = 12, Shuffled(logits(12))
    law = fr.Mixture([0.5, 0.5], [own, fr.Uniform(n)])
    common = law.condition([3, 1])
    assert isinstance(common, ConditionedMixture)
    assert not common.exact
    sharp = fr.Mixture(
        [0.5, 0.5], [Shuffled(40 * torch.arange(n).double()), fr.Mallows(torch.arange(n), 0.9)]
    )
    conditioned = sharp.condition([5, 7, 6], samples=20_000)
    assert isinstance(conditioned, ConditionedByRejection)
    expected = sharp.components[1].condition([5, 7, 6]).log_evidence - math.log(2)
    assert (conditioned.log_evidence - expected).abs() < 5 * conditioned.log_evidence_error


def test_laws_without_an_exact_log_prob_are_rejected_even_if_small():
    rough = fr.Mallows(torch.arange(6), 0.8).condition([5, 0], max_states=1)
    again = rough.condition([3, 2])
    assert isinstance(again, ConditionedByRejection)
    assert again.agrees(again.mode)
    assert rough.condition([5, 0, 1, 2, 3, 4]).mode.tolist() == [5, 0, 1, 2, 3, 4]


class Leaky(Shuffled):
    """A law that leaves the permutations: every second draw repeats an item."""

    support = torch.distributions.constraints.independent(
        torch.distributions.constraints.nonnegative_integer, 1
    )

    def _sample(self, shape, generator):
        orders = super()._sample(shape, generator)
        orders[::2, ..., 0] = orders[::2, ..., 1]
        return orders


def test_draws_that_are_no_permutations_do_not_agree():
    law, whole = Leaky(logits(9)), Shuffled(logits(9))
    leaky, exact = law.condition([0, 1]), whole.condition([0, 1])
    assert fr.is_permutation(leaky.sample((500,))).all()
    error = 5 * (leaky.log_evidence_error + exact.log_evidence_error)
    assert (leaky.log_evidence - exact.log_evidence + math.log(2)).abs() < error
    torch.testing.assert_close(leaky.marginals().sum((-1, -2)), torch.tensor(9.0))
