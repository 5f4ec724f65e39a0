"""Large n, the ends of the parameters' ranges, gradients there, and parameters that are refused."""

import math

import pytest
import torch

import factorank as fr
from factorank.distributions.drawing import draw_index
from factorank.distributions.factorized import draw_geometric, geometric_sums


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
@pytest.mark.parametrize("ratio", [0.0, 1e-8, 0.5, 1 - 1e-12, 1.0])
def test_geometric_sums_are_exact(size, ratio):
    from fractions import Fraction

    q = Fraction(ratio)
    total, moment = geometric_sums(torch.tensor([ratio], dtype=torch.float64), torch.tensor([size]), size)
    exact_total = exact_moment = Fraction(0)
    power = 1.0 if size > 100 else Fraction(1)  # exact powers of long fractions take too long
    for k in range(size):
        exact_total += Fraction(power)
        exact_moment += k * Fraction(power)
        power = float(q) ** (k + 1) if size > 100 else power * q
    assert float(total) == pytest.approx(float(exact_total), rel=1e-12)
    assert float(moment) == pytest.approx(float(exact_moment), rel=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda phi: fr.Mallows(torch.arange(5), phi),
        lambda phi: fr.Mallows(
            torch.arange(5), phi, torch.tensor([1.0, 2.0, 1.0, 3.0, 1.0], dtype=torch.float64)
        ),
        lambda phi: fr.GeneralizedMallows(torch.arange(5), phi.expand(5)),
    ],
)
def test_gradients_at_both_ends(make):
    for end, side in ((0.0, 1), (1.0, -1)):
        phi = torch.tensor(end, dtype=torch.float64, requires_grad=True)
        law = make(phi)
        orders = (
            torch.arange(5)
            if end == 0
            else fr.random_permutations(5, (3,), generator=torch.Generator().manual_seed(2))
        )
        (slope,) = torch.autograd.grad(law.log_prob(orders).sum(), phi)
        step = 1e-6
        rise = make(torch.tensor(end + side * step, dtype=torch.float64)).log_prob(orders) - law.log_prob(
            orders
        )
        assert float(slope) == pytest.approx(float(rise.detach().sum()) / (side * step), rel=1e-4, abs=1e-3)
        (slope,) = torch.autograd.grad(make(phi).entropy(), phi)
        assert slope.isfinite()
        (slope,) = torch.autograd.grad(make(phi).marginals().square().sum(), phi)
        assert slope.isfinite()


def test_a_point_mass_has_no_other_order():
    law = fr.Mallows(torch.tensor([2, 0, 1]), 0.0)
    assert torch.equal(law.sample((50,)), torch.tensor([2, 0, 1]).expand(50, 3))
    assert law.log_prob(torch.tensor([0, 1, 2])) == -math.inf
    assert law.log_prob(torch.tensor([2, 0, 1])) == 0
    assert law.entropy() == 0
    assert law.theta == math.inf
    assert torch.equal(law.marginals(), torch.tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("phi", [0.0, 0.3, 0.999, 1 - 1e-7, 1.0])
def test_a_thousand_items(phi, dtype):
    n = 1000
    law = fr.Mallows(torch.arange(n), torch.tensor(phi, dtype=dtype, requires_grad=True))
    draws = law.sample((20,), generator=torch.Generator().manual_seed(0))
    assert fr.is_permutation(draws).all()
    log_prob = law.log_prob(draws)
    assert log_prob.isfinite().all()
    (slope,) = torch.autograd.grad(log_prob.sum(), law.phi)
    assert slope.isfinite()
    entropy = law.entropy().detach()
    assert -1e-3 <= float(entropy) <= math.lgamma(n + 1) * (1 + 1e-6)
    assert abs(float((-log_prob.mean() - entropy).detach())) <= 0.05 * float(entropy) + 1e-3
    if phi == 1:
        assert float(log_prob[0].detach()) == pytest.approx(-math.lgamma(n + 1), rel=1e-5)


def test_a_thousand_items_by_the_other_laws():
    n, g = 1000, torch.Generator().manual_seed(0)
    for law in (
        fr.PlackettLuce(torch.randn(n, generator=g) * 100),
        fr.RIM(logits=torch.randn(n, n, generator=g)),
        fr.GeneralizedMallows(torch.arange(n), torch.rand(n, generator=g)),
        fr.Mallows(torch.arange(n), 0.9, torch.rand(n, generator=g)),
        fr.Uniform(n),
    ):
        draws = law.sample((5,), generator=g)
        assert fr.is_permutation(draws).all()
        assert law.log_prob(draws).isfinite().all()
        assert fr.is_permutation(law.mode).all()
        assert (law.log_prob(law.mode) >= law.log_prob(draws)).all()


def test_plackett_luce_with_scores_far_apart():
    law = fr.PlackettLuce(torch.tensor([0.0, 2000.0, -2000.0]))
    assert torch.equal(law.sample((100,)), torch.tensor([1, 0, 2]).expand(100, 3))
    assert law.log_prob(torch.tensor([1, 0, 2])) == 0
    assert law.log_prob(torch.tensor([2, 0, 1])) == -6000
    assert law.entropy() == 0
    torch.testing.assert_close(law.mean_ranks(), torch.tensor([1.0, 0.0, 2.0]))


def test_draws_of_truncated_geometrics_reach_all_values_and_no_others():
    g = torch.Generator().manual_seed(0)
    sizes = torch.tensor([1, 2, 5, 5, 5])
    ratio = torch.tensor([0.5, 1 - 1e-15, 0.0, 1.0, 0.9], dtype=torch.float64)
    draws = draw_geometric(ratio.log(), sizes, (20_000, 5), g)
    assert draws.min() == 0
    assert draws.amax(0).tolist() == [0, 1, 0, 4, 4]
    assert abs(float(draws[:, 1].double().mean()) - 0.5) < 0.02


def test_rim_never_draws_what_is_impossible():
    probs = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0.5, 0, 0.5]])
    law = fr.RIM(probs)
    assert {tuple(x) for x in law.sample((500,)).tolist()} == {(2, 0, 1), (0, 1, 2)}
    probs.requires_grad_()
    fr.RIM(probs).log_prob(torch.tensor([2, 0, 1])).backward()
    assert probs.grad.isfinite().all()


def test_parameters_can_be_read():
    law = fr.Mallows([1, 0], 0.5, [1.0, 2.0])
    assert law.central.tolist() == [1, 0]
    assert law.phi == 0.5
    assert law.weights.tolist() == [1, 2]
    assert float(law.theta) == pytest.approx(math.log(2))
    assert fr.Mallows([1, 0], 0.5).weights is None
    general = fr.GeneralizedMallows([1, 0], [0.5, 0.25])
    torch.testing.assert_close(general.thetas, torch.tensor([math.log(2), math.log(4)]))
    table = torch.tensor([[1.0, 0.0], [0.3, 0.7]])
    torch.testing.assert_close(fr.RIM(table).probs, table)
    torch.testing.assert_close(fr.RIM(logits=table.log()).probs, table)
    assert fr.RIM(table).reference.tolist() == [0, 1]
    assert fr.PlackettLuce([0.0, 1.0]).logits.tolist() == [0, 1]


def test_marginals_and_entropy_of_long_plackett_luce_must_be_asked_for_as_estimates():
    law = fr.PlackettLuce(torch.randn(13, generator=torch.Generator().manual_seed(0)))
    with pytest.raises(fr.DistributionError, match=r"n <= 12, not n = 13; samples= gives an estimate"):
        law.marginals()
    with pytest.raises(fr.DistributionError, match="samples= gives an estimate"):
        law.entropy()
    g = torch.Generator().manual_seed(0)
    marginals = law.marginals(samples=20_000, generator=g)
    torch.testing.assert_close(marginals @ torch.arange(13.0), law.mean_ranks(), atol=0.1, rtol=0)
    assert law.entropy(samples=100, generator=g).isfinite()


def conditional(slots):
    return torch.zeros(slots.shape[-1] + 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fr.Mallows([0, 0], 0.5), "central permutations of 0..1 but it holds 0 twice"),
        (lambda: fr.Mallows([1, 2], 0.5), "it holds 2 at position 1"),
        (lambda: fr.Mallows([0.0, 1.0], 0.5), "not as torch.float32"),
        (lambda: fr.Mallows([0, 1], 1.5), "phi between 0 and 1, but it is 1.5"),
        (
            lambda: fr.Mallows([0, 1], torch.tensor([0.5, -0.1])),
            r"phi between 0 and 1, but at \[1\] it is -0.1",
        ),
        (lambda: fr.Mallows([0, 1], math.nan), "but it is nan"),
        (lambda: fr.Mallows([0, 1], 0.5, [1.0]), "one weight for each of the 2 places, not shape"),
        (lambda: fr.Mallows([0, 1], 0.5, [1.0, -1.0]), r"finite and of 0 or more, but at \[1\] it is -1"),
        (lambda: fr.Mallows([[0, 1]] * 2, torch.rand(3)), r"central \(2,\), phi \(3,\)"),
        (lambda: fr.GeneralizedMallows([0, 1], [0.5]), "one phi for each of the 2 items"),
        (lambda: fr.GeneralizedMallows([0, 1], [0.5, 2.0]), r"at \[1\] it is 2"),
        (lambda: fr.PlackettLuce([0.0, math.inf]), r"that are finite, but at \[1\] it is inf"),
        (lambda: fr.PlackettLuce(torch.tensor(1.0)), "not a single number"),
        (lambda: fr.RIM(), "either probs or logits"),
        (lambda: fr.RIM(torch.ones(2)), r"\(\*batch, n, n\), not \(2,\)"),
        (lambda: fr.RIM(torch.ones(2, 2)), r"above the diagonal .* at \[0, 1\] there is 1"),
        (lambda: fr.RIM(torch.tensor([[1.0, 0], [0.5, 0.4]])), r"row \[1\] sums to 0.9"),
        (lambda: fr.RIM(torch.tensor([[1.0, 0], [1.5, -0.5]])), r"0 or more, but at \[1, 1\] there is -0.5"),
        (lambda: fr.RIM(logits=torch.full((2, 2), -math.inf)), "some finite logit in each row"),
        (lambda: fr.RIM(logits=torch.tensor([[0.0, 0], [math.nan, 0]])), r"at \[1, 0\] there is nan"),
        (lambda: fr.RIM(torch.eye(2), [0, 1, 2]), "2 rows of probs but a reference of 3 items"),
        (lambda: fr.Uniform(-1), "0 or more, not -1"),
        (lambda: fr.GRIM(3, [0, 1]), "not a int"),
        (lambda: fr.GRIM(conditional, [1, 1]), "holds 1 twice"),
        (
            lambda: fr.GRIM(lambda s: torch.zeros(7), [0, 1]).sample(),
            r"logits \(2,\) for slots \(1,\), not \(7,\)",
        ),
        (
            lambda: fr.GRIM(lambda s: torch.zeros(2).long(), [0, 1]).sample(),
            "floating logits, not torch.int64",
        ),
        (lambda: fr.GRIM(lambda s: torch.full((2,), -math.inf), [0, 1]).sample(), r"for slots \[0\]"),
    ],
)
def test_bad_parameters_are_refused(make, message):
    with pytest.raises(fr.FactorankError, match=message):
        make()


def test_validation_can_be_turned_off():
    law = fr.Mallows([0, 1], 1.5, validate_args=False)
    assert float(law.log_prob(torch.tensor([1, 0])).exp()) == pytest.approx(0.6)


def test_a_law_of_as_many_items_as_are_enumerated_is_enumerated(monkeypatch):
    monkeypatch.setattr(fr.Mallows, "largest_enumerated", 4)
    assert fr.Mallows(torch.arange(4), 0.5).enumerable
    assert not fr.Mallows(torch.arange(5), 0.5).enumerable


def test_a_batch_of_laws_is_iterated_and_one_law_is_not():
    with pytest.raises(fr.DistributionError, match="one iterates over a batch of laws"):
        list(fr.Mallows(torch.arange(3), 0.5))
    assert [law.phi.item() for law in fr.Mallows(torch.arange(3), torch.tensor([0.25, 0.5]))] == [0.25, 0.5]


@pytest.mark.parametrize("uniform", [0.0, 0.25, 1 - 2**-53])
def test_what_is_impossible_is_never_drawn(uniform, monkeypatch):
    """Whatever number of [0, 1) is drawn, its ends and the bounds between the values among them."""
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.full(shape, uniform, dtype=torch.float64))
    log_probs = torch.tensor([0.0, 0.0, 0.25, 0.0, 0.5, 0.25, 0.0]).log()
    assert draw_index(log_probs, None) == {0.0: 2, 0.25: 4}.get(uniform, 5)
