"""Divergences in closed form against the sum over all orders."""

import itertools

import pytest
import torch
from torch.distributions import kl_divergence

import factorank as fr
from factorank.distributions import expected_kendall
from tests.distributions.law_cases import CASES

FACTORIZED = ["mallows", "weighted-mallows", "generalized-mallows", "rim"]


def by_enumeration(p, q):
    orders = p.enumerate_support(expand=False)
    log_p, log_q = p.log_prob(orders), q.log_prob(orders)
    return (log_p.exp() * (log_p - log_q)).sum(0)


def law(name, n, central, batch=()):
    case = CASES[name]
    numbers = [x + 0.3 for x in case.numbers(n, batch)]
    return case.make(central, *numbers)


@pytest.mark.parametrize("n", [0, 1, 2, 4, 5])
@pytest.mark.parametrize(("one", "other"), list(itertools.product([*FACTORIZED, "uniform"], repeat=2)))
def test_one_reference(n, one, other):
    central = fr.random_permutations(n, generator=torch.Generator().manual_seed(3))
    p, q = law(one, n, central), CASES[other].make(central, *CASES[other].numbers(n))
    torch.testing.assert_close(kl_divergence(p, q), by_enumeration(p, q), atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("one", ["mallows", "generalized-mallows", "rim", "uniform"])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_mallows_around_another_order(one, batch):
    g = torch.Generator().manual_seed(3)
    p = law(one, 5, fr.random_permutations(5, batch, generator=g), batch)
    q = law("mallows", 5, fr.random_permutations(5, generator=g))
    torch.testing.assert_close(kl_divergence(p, q), by_enumeration(p, q).expand(batch))


@pytest.mark.parametrize("name", CASES)
def test_from_uniform_by_entropy(name):
    p, q = CASES[name].law(5, (2,)), fr.Uniform(5, dtype=torch.float64)
    torch.testing.assert_close(kl_divergence(p, q), by_enumeration(p, q))


def test_expected_kendall_equals_enumeration():
    g = torch.Generator().manual_seed(0)
    for name in ("mallows", "generalized-mallows", "rim"):
        p = law(name, 5, fr.random_permutations(5, (2,), generator=g), (2,))
        other = fr.random_permutations(5, generator=g)
        orders = p.enumerate_support()
        want = (p.log_prob(orders).exp() * fr.kendall(orders, other)).sum(0)
        torch.testing.assert_close(expected_kendall(p, other), want)
    with pytest.raises(fr.DistributionError, match="no repeated insertion model"):
        expected_kendall(fr.Mallows([0, 1], 0.5, [1.0, 1.0]), torch.arange(2))


def test_gradients_and_extremes():
    central = torch.tensor([1, 0, 3, 2])
    numbers = [torch.randn((), dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(
        lambda x, y: kl_divergence(fr.Mallows(central, x.sigmoid()), fr.Mallows([0, 1, 2, 3], y.sigmoid())),
        numbers,
    )
    assert torch.autograd.gradcheck(
        lambda x, y: kl_divergence(fr.Mallows(central, x.sigmoid()), fr.Mallows(central, y.sigmoid())),
        numbers,
    )
    point = fr.Mallows(central, 0.0)
    assert kl_divergence(point, point) == 0
    assert kl_divergence(fr.Mallows(central, 0.5), point) == torch.inf
    # The ratio to the power n underflows long before its logarithm is out of reach.
    wide, narrow = (fr.Mallows(torch.arange(300), torch.tensor(x, dtype=torch.float64)) for x in (1.0, 1e-3))
    want = narrow.log_prob(torch.arange(300)) + 300 * 299 / 4 * torch.tensor(1e-3, dtype=torch.float64).log()
    torch.testing.assert_close(kl_divergence(wide, narrow), -wide.entropy() - want)


def test_no_closed_form():
    """By enumeration where that is feasible; else there is an estimate."""
    p, q = fr.PlackettLuce(torch.tensor([1.0, 0.0, -1.0])), fr.PlackettLuce(torch.zeros(2, 3))
    torch.testing.assert_close(kl_divergence(p, q), by_enumeration(p.expand((2,)), q))
    torch.testing.assert_close(kl_divergence(q, p), by_enumeration(q, p.expand((2,))))
    p, q = (fr.PlackettLuce(scale * torch.arange(12.0)) for scale in (0.1, 0.2))
    with pytest.raises(NotImplementedError, match="no closed form"):
        kl_divergence(p, q)
    estimate = p.estimate("kl_divergence", other=q, samples=4000, generator=torch.Generator().manual_seed(0))
    more = p.estimate("kl_divergence", other=q, samples=4000, generator=torch.Generator().manual_seed(1))
    assert (estimate.value - more.value).abs() < 5 * (estimate.error + more.error)
    assert estimate.value > 5 * estimate.error
    with pytest.raises(fr.DistributionError, match="or with other= 'kl_divergence', not 'kl_divergence'"):
        p.estimate("kl_divergence")
    with pytest.raises(fr.DistributionError, match="not 3 and 4"):
        kl_divergence(fr.Uniform(3), fr.Uniform(4))


@torch.no_grad()
def test_laws_that_can_leave_the_permutations_are_not_compared_with_laws_that_cannot():
    torch.manual_seed(0)
    first, second = (
        fr.PermutationModel(4, "inline", width=8, depth=1, heads=2).distribution(
            nfe=2, unmask="left-to-right"
        )
        for _ in range(2)
    )
    for p, q in ((first, fr.Uniform(4)), (fr.Uniform(4), first)):
        with pytest.raises(fr.FactorankError, match="can leave the permutations"):
            kl_divergence(p, q)
    rows = torch.cartesian_prod(*[torch.arange(4)] * 4)  # all that an inline law can draw
    log_p, log_q = first.log_prob(rows), second.log_prob(rows)
    exact = (log_p.exp() * (log_p - log_q)).sum()
    estimate = first.estimate("kl_divergence", other=second, samples=20_000)
    assert abs(float(estimate.value - exact)) < 5 * float(estimate.error)
    assert kl_divergence(first, second).isfinite()


def test_a_divergence_that_is_not_exact_says_how_to_estimate_it():
    law = fr.PlackettLuce(torch.randn(14))
    with pytest.raises(NotImplementedError, match="estimate\\('kl_divergence', other=q\\)"):
        kl_divergence(law, fr.Uniform(14))
    thurstone = fr.Thurstone(torch.zeros(9, dtype=torch.float64), torch.eye(9, dtype=torch.float64))
    assert abs(float(kl_divergence(thurstone, fr.Uniform(9)))) < 0.05
    assert thurstone.effective_sample_size is None
