"""Conditioning on the order of some items against restriction and renormalisation by enumeration."""

import itertools
import math

import pytest
import torch
from law_cases import CASES
from test_laws import all_orders, p_value
from torch.distributions import Categorical, MixtureSameFamily

import factorank as fr
from factorank.distributions import PermutationDistribution
from factorank.distributions.conditioning.approximate import AMPConditioned
from factorank.distributions.conditioning.conditioned import Conditioned, ConditionedOnAll
from factorank.distributions.conditioning.enumeration import ConditionedByEnumeration
from factorank.distributions.conditioning.factorized import ConditionedFactorized, states_needed
from factorank.distributions.conditioning.plackett_luce import ConditionedPlackettLuce
from factorank.distributions.conditioning.rejection import ConditionedByRejection
from factorank.distributions.conditioning.uniform import ConditionedUniform

laws = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
approximated = pytest.mark.parametrize(
    "case",
    [case for name, case in CASES.items() if name not in ("uniform", "plackett-luce")],
    ids=lambda c: c.name,
)


def restricted(law, observed):
    """All orders, the log-probabilities of the conditional law, and the log of what was conditioned on."""
    orders = law.enumerate_support(expand=False)
    places = fr.inverse(orders)[..., list(observed)]
    agrees = (places.diff(dim=-1) > 0).all(-1)
    log_probs = torch.where(agrees, law.log_prob(orders), -math.inf)
    evidence = log_probs.logsumexp(0)
    return orders, log_probs - evidence, evidence


def observations(n):
    for r in range(2, n + 1):
        yield from itertools.permutations(range(n), r)


@laws
@pytest.mark.parametrize("n", [2, 3, 4])
def test_every_observation_equals_restriction(case, n):
    law = case.law(n)
    for observed in observations(n):
        given = law.condition(observed)
        orders, want, evidence = restricted(law, observed)
        assert given.exact
        torch.testing.assert_close(given.log_prob(orders), want, atol=1e-10, rtol=1e-10)
        torch.testing.assert_close(given.log_evidence, evidence, atol=1e-10, rtol=1e-10)
        torch.testing.assert_close(given.log_prob(given.mode), want.max(), atol=1e-10, rtol=1e-10)
        assert torch.equal(given.enumerate_support(), orders[want > -math.inf])
        torch.testing.assert_close(given.mean_ranks(), PermutationDistribution._mean_ranks(given))
        assert given.agrees(given.sample((20,))).all()


@laws
@pytest.mark.parametrize("observed", [(4, 0), (1, 3, 2), (5, 0, 4, 2), (2, 4, 1, 0, 3)])
def test_longer_orders_in_batches(case, observed):
    law = case.law(6, (2,))
    given = law.condition(torch.tensor(observed))
    orders, want, _ = restricted(law, observed)
    torch.testing.assert_close(given.log_prob(orders), want, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(given.log_prob(given.mode), want.amax(0), atol=1e-10, rtol=1e-10)
    draws = given.sample((3,))
    assert draws.shape == (3, 2, 6)
    wide = given.expand((4, 2))
    assert wide.sample((3,)).shape == (3, 4, 2, 6)
    assert wide.agrees(wide.sample((50,))).all()
    torch.testing.assert_close(wide.log_prob(draws[:, None]), given.log_prob(draws)[:, None].expand(3, 4, 2))
    entropy = -torch.where(want > -math.inf, want.exp() * want, 0.0).sum(0)
    torch.testing.assert_close(given.entropy(), entropy)


@laws
@pytest.mark.parametrize("observed", [(3, 0), (0, 3), (4, 1, 2), (2, 0, 3, 1)])
def test_samples_agree_with_log_prob(case, observed):
    given = case.law(5).condition(observed)
    draws = given.sample((15_000,), generator=torch.Generator().manual_seed(3))
    assert p_value(given, draws) > 1e-3


@laws
def test_batched_samples_agree_with_log_prob(case):
    law = case.law(4, (2,))
    given = law.condition([2, 0, 3])
    draws = given.sample((10_000,), generator=torch.Generator().manual_seed(4))
    assert (draws[:, 0] != draws[:, 1]).any()
    orders, want, _ = restricted(law, [2, 0, 3])
    for row in range(2):
        counts = torch.bincount(fr.index_of(draws[:, row]), minlength=24) / 10_000
        torch.testing.assert_close(counts.double(), want[:, row].exp(), atol=0.03, rtol=0)
        assert counts[want[:, row] == -math.inf].sum() == 0
    assert len(orders) == 24


@laws
def test_gradients_of_the_conditional(case):
    central = torch.tensor([2, 0, 3, 1])
    numbers = [x.requires_grad_() for x in case.numbers(4)]
    orders = all_orders(4)
    agree = orders[case.make(central, *numbers).condition([3, 0, 2]).agrees(orders)]
    assert torch.autograd.gradcheck(
        lambda *x: case.make(central, *x).condition([3, 0, 2]).log_prob(agree) + 0 * sum(y.sum() for y in x),
        numbers,
    )


@laws
def test_contract_of_the_conditional(case):
    law = case.law(4, (2,), torch.float32)
    given = law.condition([1, 2])
    assert given.log_prob(torch.arange(4)).dtype == torch.float32
    assert repr(given).startswith(type(given).__name__)
    assert "observed=[1, 2]" in repr(given)
    seeded = [given.sample((9,), generator=torch.Generator().manual_seed(s)).tolist() for s in (1, 1, 2)]
    assert seeded[0] == seeded[1]
    assert seeded[0] != seeded[2]
    mixture = MixtureSameFamily(Categorical(torch.tensor([0.3, 0.7])), given)
    assert given.agrees(mixture.sample((20,))).all()
    assert mixture.log_prob(all_orders(4)).exp().sum() == pytest.approx(1, rel=1e-5)
    assert given.condition([0, 1]).log_prob(all_orders(4)[:, None]).exp().sum(0).tolist() == pytest.approx(
        [1, 1], rel=1e-5
    )


@laws
def test_few_and_all_observations(case):
    law = case.law(4)
    assert law.condition([]) is law
    assert law.condition([2]) is law
    given = law.condition([3, 1, 0, 2])
    assert isinstance(given, ConditionedOnAll)
    assert torch.equal(given.sample((5,)), torch.tensor([3, 1, 0, 2]).expand(5, 4))
    assert given.log_prob(torch.tensor([3, 1, 0, 2])) == 0
    assert given.log_prob(torch.tensor([3, 1, 2, 0])) == -math.inf
    assert given.entropy() == 0
    assert torch.equal(given.mode, torch.tensor([3, 1, 0, 2]))
    assert torch.equal(given.mean_ranks(), torch.tensor([2.0, 1, 3, 0], dtype=given.mean_ranks().dtype))


@laws
@pytest.mark.parametrize(
    ("observed", "message"),
    [
        ([1, 2, 1], "item 1 twice, at positions 0 and 2"),
        ([1, 4], r"items 0..3, but at position 1 there is 4"),
        ([-1, 2], "at position 0 there is -1"),
        ([0.0, 1.0], "as integers"),
        ([[0, 1], [1, 0]], r"shape \(2, 2\)"),
        ([True, False], "torch.bool"),
    ],
)
def test_bad_observations_are_refused(case, observed, message):
    with pytest.raises(fr.DistributionError, match=message):
        case.law(4).condition(observed)


@pytest.mark.parametrize(
    "law",
    [
        fr.Mallows([0, 1, 2, 3], 0.0),
        fr.Mallows([0, 1, 2, 3], 0.0, [1.0, 1.0, 1.0, 1.0]),
        fr.GeneralizedMallows([0, 1, 2, 3], torch.zeros(4)),
        fr.RIM(torch.eye(4)),
        fr.GRIM(
            lambda slots: torch.cat((torch.full((slots.shape[-1],), -math.inf), torch.zeros(1))), [0, 1, 2, 3]
        ),
    ],
)
def test_impossible_observations_are_refused(law):
    assert torch.equal(law.condition([0, 2, 3]).sample((2,)), torch.arange(4).expand(2, 4))
    for observed in ([2, 0], [1, 3, 2], [3, 2, 1, 0]):
        with pytest.raises(fr.DistributionError, match=r"probability zero under (Mallows|Gen|RIM|GRIM)"):
            law.condition(observed)
    with pytest.raises(fr.DistributionError, match="have probability zero"):
        AMPConditioned(law, torch.tensor([3, 0, 1])).sample()


def test_which_law_conditions_how():
    def kind(law, observed=(0, 2), **options):
        return type(law.condition(observed, **options))

    n = 9
    assert kind(fr.Uniform(n)) is ConditionedUniform
    assert kind(fr.PlackettLuce(torch.zeros(n)), max_states=0) is ConditionedPlackettLuce
    assert kind(fr.Mallows(range(n), 0.5)) is ConditionedFactorized
    assert kind(fr.Mallows(range(n), 0.5, [1.0] * n)) is ConditionedFactorized
    assert kind(fr.Mallows(range(n), 0.5), max_states=2) is AMPConditioned
    assert kind(CASES["grim"].law(6)) is ConditionedByEnumeration
    assert kind(CASES["grim"].law(6), max_states=700) is AMPConditioned
    assert kind(CASES["grim"].law(n)) is AMPConditioned
    assert kind(fr.PlackettLuce(torch.zeros(n)).condition([0, 2]), [3, 4]) is ConditionedByRejection


def test_states_are_counted():
    law = fr.Mallows(range(40), 0.9)
    observed = torch.tensor([30, 10, 20])
    # From 10 on the place of item 10 is tracked alone, from 20 on that of item 10 (30 goes before it).
    assert states_needed(law, observed, 10**9) == sum(range(11, 31))
    assert states_needed(law, observed, 5) > 5
    assert not law.condition(observed, max_states=409).exact
    assert law.condition(observed, max_states=410).exact


@pytest.mark.parametrize("weights", [None, torch.ones(30, dtype=torch.float64)])
def test_both_dynamic_programmes_agree_on_a_long_order(weights):
    """Weights of one give the plain law, which is conditioned by another recursion."""
    law = fr.Mallows(torch.arange(30), torch.tensor(0.8, dtype=torch.float64), weights)
    observed = [25, 3, 14]
    given = law.condition(observed, max_states=10**6)
    other = fr.RIM(logits=fr.Mallows(torch.arange(30), law.phi)._digits("insertion")).condition(observed)
    torch.testing.assert_close(given.log_evidence, other.log_evidence)
    draws = given.sample((2000,), generator=torch.Generator().manual_seed(0))
    assert given.agrees(draws).all()
    ranks = fr.inverse(draws).double().mean(0)
    others = fr.inverse(other.sample((2000,), generator=torch.Generator().manual_seed(1))).double().mean(0)
    torch.testing.assert_close(ranks, others, atol=0.9, rtol=0)


def test_concentrated_laws_against_the_grain_do_not_underflow():
    n, phi = 60, torch.tensor(1e-4, dtype=torch.float64, requires_grad=True)
    law = fr.Mallows(torch.arange(n), phi)
    given = law.condition([50, 1])
    # The cheapest way costs one inversion with each of the 50 items from 1 to 49 and between the two.
    assert float(given.log_evidence.detach()) == pytest.approx(49 * math.log(1e-4), rel=0.02)
    assert given.agrees(given.sample((20,))).all()
    (slope,) = torch.autograd.grad(given.log_evidence, phi)
    assert float(slope) == pytest.approx(49 / 1e-4, rel=1e-2)


def test_plackett_luce_at_any_size():
    n, g = 300, torch.Generator().manual_seed(0)
    law = fr.PlackettLuce(3 * torch.randn(n, generator=g, dtype=torch.float64))
    observed = fr.random_permutations(n, generator=g)[:40]
    given = law.condition(observed)
    draws = given.sample((4000,), generator=g)
    assert given.agrees(draws).all()
    torch.testing.assert_close(
        fr.inverse(draws).double().mean(0), given.mean_ranks(), atol=4.5 * n / math.sqrt(4000) / 3, rtol=0
    )
    torch.testing.assert_close(
        given.log_evidence, fr.PlackettLuce(law.logits[observed]).log_prob(torch.arange(40))
    )
    assert (given.log_prob(given.mode) >= given.log_prob(draws)).all()


@approximated
@pytest.mark.parametrize("observed", [(3, 1), (4, 0, 2), (2, 3, 1, 0)])
def test_amp_weights_estimate_the_exact_law(case, observed):
    law = case.law(5, (2,))
    exact, guess = law.condition(observed), AMPConditioned(law, torch.tensor(observed))
    g = torch.Generator().manual_seed(2)
    drawn = guess.importance(8_000, generator=g)
    assert exact.agrees(drawn.orders).all()
    size = drawn.effective_sample_size
    assert ((size >= 1) & (size <= 8_000)).all()
    error = drawn.log_weights.exp().std(0) / drawn.log_weights.exp().mean(0) / math.sqrt(8_000)
    assert ((drawn.log_evidence - exact.log_evidence).abs() < 4 * error + 1e-9).all()
    draws = guess.sample((8_000,), generator=g)
    assert exact.agrees(draws).all()
    shares = fr.inverse(draws).double().mean(0)
    torch.testing.assert_close(shares, exact.mean_ranks(), atol=0.1, rtol=0)


def test_amp_never_calls_itself_exact():
    law = fr.Mallows(torch.arange(40), 0.9).condition([0, 39, 10, 30, 20], max_states=100)
    assert isinstance(law, AMPConditioned)
    assert isinstance(law, Conditioned)
    assert not law.exact
    order = torch.tensor([0, 39, 10, 30, *(i for i in range(40) if i not in (0, 39, 10, 30))])
    with pytest.raises(fr.DistributionError, match="log_prob_estimate"):
        law.log_prob(order)
    g = torch.Generator().manual_seed(0)
    exact = fr.Mallows(torch.arange(40), 0.9).condition([0, 39, 10, 30, 20])
    assert exact.exact
    estimate = law.log_prob_estimate(order, proposals=5000, generator=g)
    assert float(estimate) == pytest.approx(float(exact.log_prob(order)), abs=0.2)
    assert law.log_prob_estimate(torch.arange(40)) == -math.inf
    assert law.sample((2, 3)).shape == (2, 3, 40)
    assert law.expand((2,)).sample((3,)).shape == (3, 2, 40)
    assert law.sample((0,)).shape == (0, 40)
    with pytest.raises(fr.DistributionError, match="at least 1 proposal"):
        law.importance(0)
    with pytest.raises(fr.DistributionError, match="not known exactly"):
        _ = law.log_evidence
