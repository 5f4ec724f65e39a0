"""Conditioning on the order of some items against restriction and renormalisation by enumeration."""

import itertools
import math

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily

import factorank as fr
from factorank.distributions import PermutationDistribution
from factorank.distributions.conditioning.approximate import AMPConditioned
from factorank.distributions.conditioning.conditioned import (
    ConditionedByEnumeration,
    ConditionedOnAll,
    ConditionedUniform,
)
from factorank.distributions.conditioning.factorized import ConditionedFactorized
from factorank.distributions.conditioning.plackett_luce import ConditionedPlackettLuce
from factorank.distributions.conditioning.rejection import ConditionedByRejection
from tests.distributions.draws import all_orders, p_value
from tests.distributions.law_cases import CASES

laws = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


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
        conditioned = law.condition(observed)
        orders, want, evidence = restricted(law, observed)
        assert conditioned.exact
        torch.testing.assert_close(conditioned.log_prob(orders), want, atol=1e-10, rtol=1e-10)
        torch.testing.assert_close(conditioned.log_evidence, evidence, atol=1e-10, rtol=1e-10)
        torch.testing.assert_close(conditioned.log_prob(conditioned.mode), want.max(), atol=1e-10, rtol=1e-10)
        assert torch.equal(conditioned.enumerate_support(), orders[want > -math.inf])
        torch.testing.assert_close(conditioned.mean_ranks(), PermutationDistribution._mean_ranks(conditioned))
        assert conditioned.agrees(conditioned.sample((20,))).all()


@laws
@pytest.mark.parametrize("observed", [(4, 0), (1, 3, 2), (5, 0, 4, 2), (2, 4, 1, 0, 3)])
def test_longer_orders_in_batches(case, observed):
    law = case.law(6, (2,))
    conditioned = law.condition(torch.tensor(observed))
    orders, want, _ = restricted(law, observed)
    torch.testing.assert_close(conditioned.log_prob(orders), want, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(conditioned.log_prob(conditioned.mode), want.amax(0), atol=1e-10, rtol=1e-10)
    draws = conditioned.sample((3,))
    assert draws.shape == (3, 2, 6)
    wide = conditioned.expand((4, 2))
    assert wide.sample((3,)).shape == (3, 4, 2, 6)
    assert wide.agrees(wide.sample((50,))).all()
    torch.testing.assert_close(
        wide.log_prob(draws[:, None]), conditioned.log_prob(draws)[:, None].expand(3, 4, 2)
    )
    entropy = -torch.where(want > -math.inf, want.exp() * want, 0.0).sum(0)
    torch.testing.assert_close(conditioned.entropy(), entropy)


@laws
@pytest.mark.parametrize("observed", [(3, 0), (0, 3), (4, 1, 2), (2, 0, 3, 1)])
def test_samples_agree_with_log_prob(case, observed):
    conditioned = case.law(5).condition(observed)
    draws = conditioned.sample((15_000,), generator=torch.Generator().manual_seed(3))
    assert p_value(conditioned, draws) > 1e-3


@laws
def test_batched_samples_agree_with_log_prob(case):
    law = case.law(4, (2,))
    conditioned = law.condition([2, 0, 3])
    draws = conditioned.sample((10_000,), generator=torch.Generator().manual_seed(4))
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
    conditioned = law.condition([1, 2])
    assert conditioned.log_prob(torch.arange(4)).dtype == torch.float32
    assert repr(conditioned).startswith(type(conditioned).__name__)
    assert "observed=[1, 2]" in repr(conditioned)
    seeded = [
        conditioned.sample((9,), generator=torch.Generator().manual_seed(s)).tolist() for s in (1, 1, 2)
    ]
    assert seeded[0] == seeded[1]
    assert seeded[0] != seeded[2]
    mixture = MixtureSameFamily(Categorical(torch.tensor([0.3, 0.7])), conditioned)
    assert conditioned.agrees(mixture.sample((20,))).all()
    assert mixture.log_prob(all_orders(4)).exp().sum() == pytest.approx(1, rel=1e-5)
    assert conditioned.condition([0, 1]).log_prob(all_orders(4)[:, None]).exp().sum(
        0
    ).tolist() == pytest.approx([1, 1], rel=1e-5)


@laws
def test_few_and_all_observations(case):
    law = case.law(4)
    assert law.condition([]) is law
    assert law.condition([2]) is law
    conditioned = law.condition([3, 1, 0, 2])
    assert isinstance(conditioned, ConditionedOnAll)
    assert torch.equal(conditioned.sample((5,)), torch.tensor([3, 1, 0, 2]).expand(5, 4))
    assert conditioned.log_prob(torch.tensor([3, 1, 0, 2])) == 0
    assert conditioned.log_prob(torch.tensor([3, 1, 2, 0])) == -math.inf
    assert conditioned.entropy() == 0
    assert torch.equal(conditioned.mode, torch.tensor([3, 1, 0, 2]))
    assert torch.equal(
        conditioned.mean_ranks(), torch.tensor([2.0, 1, 3, 0], dtype=conditioned.mean_ranks().dtype)
    )


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
