import itertools
import math

import pytest
import torch
from scipy.stats import chisquare

from factorank.distributions import RIM, GeneralizedMallows, Mallows, PlackettLuce
from factorank.distributions.conditioning.amp import AMP, effective_sample_size
from factorank.distributions.partial_orders import PartialOrders
from factorank.errors import DistributionError
from factorank.lexicographic import index_of
from factorank.permutations import random_permutations
from tests.distributions.draws import all_orders


def all_partial_orders(n):
    """Every strict partial order of n items, transitively closed."""
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
    relations = set()
    for order in itertools.permutations(range(n)):  # every partial order is a subset of some total one
        rank = {item: place for place, item in enumerate(order)}
        down = [pair for pair in pairs if rank[pair[0]] < rank[pair[1]]]
        for chosen in itertools.product([False, True], repeat=len(down)):
            relation = frozenset(pair for pair, used in zip(down, chosen, strict=True) if used)
            if all((a, d) in relation for a, b in relation for c, d in relation if b == c):
                relations.add(relation)
    above = torch.zeros(len(relations), n, n, dtype=torch.bool)
    for voter, relation in enumerate(sorted(relations, key=sorted)):
        for a, b in relation:
            above[voter, a, b] = True
    return PartialOrders(above)


def random_partial_orders(n, voters, share, seed):
    g = torch.Generator().manual_seed(seed)
    rank = random_permutations(n, (voters,), generator=g)
    above = (rank[:, :, None] < rank[:, None, :]) & (torch.rand(voters, n, n, generator=g) < share)
    return PartialOrders(above)


def laws(n):
    g = torch.Generator().manual_seed(n)
    central = random_permutations(n, generator=g)
    table = torch.rand(n, n, generator=g, dtype=torch.float64).tril()
    return [
        Mallows(central, torch.tensor(0.4, dtype=torch.float64)),
        Mallows(central, torch.tensor(1.0, dtype=torch.float64)),
        GeneralizedMallows(central, torch.rand(n, generator=g, dtype=torch.float64)),
        RIM(table / table.sum(1, keepdim=True), central),
    ]


def by_hand(law, above, order):
    """The definition, slot by slot: product of renormalised insertion probabilities."""
    reference, table = law._reference.tolist(), law._digits("insertion").exp()
    rank = {item: place for place, item in enumerate(order)}
    result, inserted = 1.0, []
    for i, item in enumerate(reference):
        fine = []
        for slot in range(i + 1):
            trial = [*inserted[:slot], item, *inserted[slot:]]
            fine.append(all(not above[trial[b]][trial[a]] for a in range(i + 1) for b in range(a + 1, i + 1)))
        slot = sum(rank[other] < rank[item] for other in inserted)
        if not fine[slot]:
            return 0.0
        mass = sum(float(table[i, s]) for s in range(i + 1) if fine[s])
        result *= float(table[i, slot]) / mass
        inserted.insert(slot, item)
    return result


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_support_is_the_linear_extensions_and_the_proposal_sums_to_one_on_every_partial_order(n):
    partial = all_partial_orders(n)
    assert len(partial) == [1, 3, 19, 219][n - 1]  # OEIS A001035
    orders = all_orders(n)[:, None].expand(-1, len(partial), -1)
    for law in laws(n):
        log_prob = AMP(law, partial).log_prob(orders)
        torch.testing.assert_close(log_prob.exp().sum(0), torch.ones(len(partial), dtype=torch.float64))
        assert ((log_prob > -math.inf) == partial.agrees(orders)).all()


@pytest.mark.parametrize("which", range(4))
def test_proposal_equals_its_definition(which):
    n = 5
    partial = random_partial_orders(n, 6, 0.3, seed=1)
    law = laws(n)[which]
    orders = all_orders(n)
    probs = AMP(law, partial).log_prob(orders[:, None].expand(-1, len(partial), -1)).exp()
    for voter in range(len(partial)):
        above = partial.above[voter].tolist()
        expected = torch.tensor(
            [by_hand(law, above, order) for order in orders.tolist()], dtype=torch.float64
        )
        torch.testing.assert_close(probs[:, voter], expected)


def test_samples_agree_with_log_prob():
    n, draws = 5, 20_000
    partial = random_partial_orders(n, 4, 0.2, seed=3)
    amp = AMP(Mallows(torch.tensor([3, 1, 4, 0, 2]), 0.6), partial)
    sampled, log_proposal = amp.draw(draws, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(amp.log_prob(sampled), log_proposal)
    orders = all_orders(n)
    probs = amp.log_prob(orders[:, None].expand(-1, len(partial), -1)).exp()
    for voter in range(len(partial)):
        counts = torch.bincount(index_of(sampled[:, voter]), minlength=len(orders)).double()
        possible = probs[:, voter] > 0
        assert counts[~possible].sum() == 0
        if possible.sum() > 1:
            assert chisquare(counts[possible], draws * probs[possible, voter]).pvalue > 1e-4


def importance_log_weights(law, amp, orders):
    return law.log_prob(orders).double() - amp.log_prob(orders)


def test_importance_weights_estimate_the_probability_of_the_partial_order():
    n = 5
    partial = random_partial_orders(n, 5, 0.2, seed=8)
    law = Mallows(torch.tensor([3, 1, 4, 0, 2]), torch.tensor(0.5, dtype=torch.float64))
    amp = AMP(law, partial)
    orders = all_orders(n)[:, None].expand(-1, len(partial), -1)
    agreed = partial.agrees(orders)
    exact = torch.where(agreed, law.log_prob(orders).exp(), 0.0).sum(0)
    # In expectation over the proposal, exactly:
    proposal = amp.log_prob(orders).exp()
    weights = torch.where(agreed, importance_log_weights(law, amp, orders), -math.inf).exp()
    torch.testing.assert_close((proposal * weights).sum(0), exact)
    assert weights.max() <= 1 + 1e-12
    # And over draws, closely:
    drawn = amp.sample((4000,), generator=torch.Generator().manual_seed(0))
    log_weights = importance_log_weights(law, amp, drawn)
    torch.testing.assert_close(log_weights.exp().mean(0), exact, rtol=0.05, atol=0)
    size = effective_sample_size(log_weights)
    assert ((size > 1) & (size <= 4000.001)).all()


def test_a_partial_order_that_says_nothing_gives_the_law_itself():
    nothing = PartialOrders(torch.zeros(1, 4, 4, dtype=torch.bool))
    for law in laws(4):
        orders = all_orders(4)
        torch.testing.assert_close(AMP(law, nothing).log_prob(orders[:, None])[:, 0], law.log_prob(orders))


def test_small_dispersions_do_not_underflow():
    n = 60
    backwards = PartialOrders.from_orders(torch.arange(n - 1, -1, -1)[None])
    law = Mallows(torch.arange(n), torch.tensor(1e-12, dtype=torch.float64))
    orders, log_proposal = AMP(law, backwards).draw(2)
    assert (orders == torch.arange(n - 1, -1, -1)).all()
    assert (log_proposal.abs() < 1e-9).all()


def test_a_point_mass_proposes_extensions_of_weight_zero():
    law = Mallows(torch.arange(3), 0.0)
    amp = AMP(law, PartialOrders.from_orders(torch.tensor([[2, 0, -1]]), unranked="incomparable"))
    orders, log_proposal = amp.draw(50, generator=torch.Generator().manual_seed(0))
    assert amp.partial.agrees(orders).all()
    assert log_proposal.isfinite().all()
    torch.testing.assert_close(amp.log_prob(orders), log_proposal)
    assert effective_sample_size(importance_log_weights(law, amp, orders)) == 0


def test_same_seed_same_draws_and_shapes():
    amp = AMP(Mallows(torch.arange(6), 0.7), random_partial_orders(6, 3, 0.3, seed=0))
    first = amp.sample((2, 5), generator=torch.Generator().manual_seed(4))
    second = amp.sample((2, 5), generator=torch.Generator().manual_seed(4))
    assert first.shape == (2, 5, 3, 6)
    assert torch.equal(first, second)
    assert amp.log_prob(first).shape == (2, 5, 3)


def test_what_amp_refuses():
    partial = PartialOrders(torch.zeros(1, 3, 3, dtype=torch.bool))
    with pytest.raises(DistributionError, match="inserts as a RIM does"):
        AMP(PlackettLuce(torch.zeros(3)), partial)
    with pytest.raises(DistributionError, match="without weights"):
        AMP(Mallows(torch.arange(3), 0.5, weights=torch.ones(3)), partial)
    with pytest.raises(DistributionError, match="4 items and partial orders of 3"):
        AMP(Mallows(torch.arange(4), 0.5), partial)
    with pytest.raises(DistributionError, match="batch"):
        AMP(Mallows(torch.arange(3), torch.tensor([0.5, 0.5])), partial)
