"""What every law must do, in one test each; `law_cases.CASES` lists the laws."""

import math
import pickle

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily

import factorank as fr
from factorank.distributions import PermutationDistribution
from tests.distributions.draws import all_orders, p_value
from tests.distributions.law_cases import CASES

laws = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
by_enumeration = PermutationDistribution


@laws
@pytest.mark.parametrize("n", range(7))
def test_probabilities_sum_to_one(case, n):
    law = case.law(n)
    assert law.log_prob(all_orders(n)).exp().sum() == pytest.approx(1, abs=1e-12)
    assert torch.equal(law.enumerate_support(), all_orders(n))


@laws
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_samples_agree_with_log_prob(case, n):
    law = case.law(n)
    draws = law.sample((20_000,), generator=torch.Generator().manual_seed(7))
    assert p_value(law, draws) > 1e-3


@laws
def test_batched_samples_agree_with_log_prob(case):
    law = case.law(3, (2,))
    draws = law.sample((10_000,), generator=torch.Generator().manual_seed(5))
    for row in range(2):
        single = case.law(3, (2,))
        numbers = [x[row] for x in case.numbers(3, (2,))]
        central = getattr(single, "central", getattr(single, "reference", torch.arange(3).expand(2, 3)))[row]
        assert p_value(case.make(central, *numbers), draws[:, row]) > 1e-3


@laws
def test_gradients(case):
    n = 4
    central = torch.tensor([2, 0, 3, 1])
    numbers = [x.requires_grad_() for x in case.numbers(n)]
    orders = all_orders(n)[::5]
    zero = torch.zeros((), dtype=torch.float64)  # the uniform law has no parameter to depend on
    assert torch.autograd.gradcheck(
        lambda *x: case.make(central, *x).log_prob(orders) + zero * sum(y.sum() for y in x), numbers
    )
    assert torch.autograd.gradcheck(
        lambda *x: case.make(central, *x).entropy() + zero * sum(y.sum() for y in x), numbers
    )
    assert torch.autograd.gradcheck(
        lambda *x: case.make(central, *x).marginals() + zero * sum(y.sum() for y in x), numbers
    )


@laws
@pytest.mark.parametrize("n", range(6))
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_entropy_mode_marginals_and_mean_ranks_equal_enumeration(case, n, batch):
    law = case.law(n, batch)
    orders = all_orders(n).view(math.factorial(n), *(1 for _ in batch), n)
    log_probs = law.log_prob(orders)
    entropy = -(log_probs.exp() * log_probs).sum(0)
    torch.testing.assert_close(law.entropy(), entropy, atol=1e-12, rtol=1e-12)
    marginals = torch.zeros(*batch, n, n, dtype=torch.float64)
    for order, log_prob in zip(all_orders(n), log_probs, strict=True):
        for place, item in enumerate(order.tolist()):
            marginals[..., item, place] += log_prob.exp()
    torch.testing.assert_close(law.marginals(), marginals, atol=1e-12, rtol=1e-12, check_dtype=n > 1)
    ranks = (marginals * torch.arange(n)).sum(-1)
    torch.testing.assert_close(law.mean_ranks(), ranks, atol=1e-12, rtol=1e-12, check_dtype=n > 1)
    assert law.mode.shape == (*batch, n)
    torch.testing.assert_close(law.log_prob(law.mode), log_probs.max(0).values)


@laws
def test_estimates_are_near_the_exact_values(case):
    law, g = case.law(4, (2,)), torch.Generator().manual_seed(0)
    near = {"atol": 0.03, "rtol": 0, "check_dtype": False}
    torch.testing.assert_close(law.marginals(samples=20_000, generator=g), law.marginals(), **near)
    torch.testing.assert_close(law.mean_ranks(samples=20_000, generator=g), law.mean_ranks(), **near)
    torch.testing.assert_close(law.entropy(samples=20_000, generator=g), law.entropy(), **near)
    for samples in (0, 2.5, "3", True):
        with pytest.raises(fr.DistributionError, match="at least 1 sample"):
            law.entropy(samples=samples)


@laws
@pytest.mark.parametrize("n", [0, 1, 4])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (0,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_dtypes(case, n, batch, dtype):
    law = case.law(n, batch, dtype)
    assert law.batch_shape == batch
    assert law.event_shape == (n,)
    assert law.n == n
    for shape in [(), (5,), (4, 2), (0,)]:
        draws = law.sample(shape)
        assert draws.shape == (*shape, *batch, n)
        assert draws.dtype == torch.int64
        assert fr.is_permutation(draws).all()
        log_prob = law.log_prob(draws)
        assert log_prob.shape == (*shape, *batch)
        if n > 1:
            assert log_prob.dtype == dtype
    assert law.log_prob(torch.arange(n, dtype=torch.int16)).shape == batch
    assert law.entropy().shape == batch
    assert law.mode.shape == (*batch, n)
    assert law.marginals().shape == (*batch, n, n)
    assert law.mean_ranks().shape == (*batch, n)
    assert law.enumerate_support().shape == (math.factorial(n), *batch, n)
    assert law.enumerate_support(expand=False).shape == (math.factorial(n), *(1 for _ in batch), n)
    assert law.support.check(law.sample((3,))).all()


@laws
def test_expand_is_the_same_law(case):
    law = case.law(4, (3,))
    wide = law.expand((2, 3))
    assert type(wide) is type(law)
    assert wide.batch_shape == (2, 3)
    draws = wide.sample((5,))
    assert draws.shape == (5, 2, 3, 4)
    torch.testing.assert_close(wide.log_prob(draws), law.log_prob(draws))
    torch.testing.assert_close(wide.entropy(), law.entropy().expand(2, 3))
    torch.testing.assert_close(wide.marginals(), law.marginals().expand(2, 3, 4, 4))
    torch.testing.assert_close(wide.mean_ranks(), law.mean_ranks().expand(2, 3, 4))
    assert torch.equal(wide.mode, law.mode.expand(2, 3, 4))
    assert wide.expand((7, 2, 3)).batch_shape == (7, 2, 3)


@laws
def test_log_prob_broadcasts(case):
    law = case.law(4, (2, 1))
    orders = all_orders(4)[:15].view(5, 1, 3, 4)
    log_prob = law.log_prob(orders)
    assert log_prob.shape == (5, 2, 3)
    for row in range(3):
        torch.testing.assert_close(log_prob[..., row], law.log_prob(orders[..., row : row + 1, :])[..., 0])


@laws
def test_generators_reproduce(case):
    law = case.law(8, (2,))
    draw = lambda seed: law.sample((20,), generator=torch.Generator().manual_seed(seed))  # noqa: E731
    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    torch.manual_seed(3)
    first = law.sample((20,))
    torch.manual_seed(3)
    assert torch.equal(first, law.sample((20,)))


@laws
def test_samples_carry_no_gradient_and_repr_names_the_law(case):
    central = torch.arange(3)
    law = case.make(central, *[x.requires_grad_() for x in case.numbers(3)])
    assert not law.sample((2,)).requires_grad
    assert repr(law).startswith(f"{type(law).__name__}(")
    assert "object at" not in repr(law)
    assert len(repr(case.law(1000))) < 200


@laws
def test_mixture_same_family(case):
    law = case.law(4, (3,))
    mixture = MixtureSameFamily(Categorical(torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)), law)
    torch.manual_seed(0)
    draws = mixture.sample((10_000,))
    assert draws.shape == (10_000, 4)
    orders = all_orders(4)
    by_hand = (law.log_prob(orders[:, None]).exp() * torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)).sum(
        -1
    )
    torch.testing.assert_close(mixture.log_prob(orders).exp(), by_hand)
    mixture.n = 4
    assert p_value(mixture, draws) > 1e-3
    assert mixture.expand((2,)).sample((5,)).shape == (5, 2, 4)


@laws
def test_bad_orders_are_refused_by_row_and_value(case):
    law = case.law(3)
    good = [[0, 1, 2], [2, 1, 0]]
    with pytest.raises(fr.PermutationError, match="row 2 holds 1 twice"):
        law.log_prob(torch.tensor([*good, [1, 1, 2]]))
    with pytest.raises(fr.PermutationError, match="row 2 holds 3 at position 1"):
        law.log_prob(torch.tensor([*good, [1, 3, 2]]))
    with pytest.raises(fr.PermutationError, match="orders of 3 items, not of 4"):
        law.log_prob(torch.arange(4))
    with pytest.raises(fr.PermutationError, match=r"not as torch\.float32"):
        law.log_prob(torch.tensor([0.0, 1.0, 2.0]))
    with pytest.raises(fr.PermutationError, match="not as list"):
        law.log_prob([0, 1, 2])
    with pytest.raises(fr.DistributionError, match=r"batch shape \(2,\).*not \(3, 3\)"):
        case.law(3, (2,)).log_prob(torch.arange(3).expand(3, 3))


@laws
def test_bad_shapes_are_refused(case):
    for shape in (3, (-1,), (2.0,), "3"):
        with pytest.raises(fr.DistributionError, match="a shape is a tuple of whole numbers"):
            case.law(3).sample(shape)


@laws
def test_enumeration_is_refused_beyond_eight(case):
    with pytest.raises(fr.DistributionError, match="n <= 8, not n = 9"):
        case.law(9).enumerate_support()


@laws
def test_pickle(case):
    law = case.law(3, (2,))
    again = pickle.loads(pickle.dumps(law))
    torch.testing.assert_close(again.log_prob(all_orders(3)[:, None]), law.log_prob(all_orders(3)[:, None]))


@pytest.mark.gpu
@laws
def test_on_a_gpu(case):
    """Same log-probabilities as on the CPU, with gradients; samples agree; conditioning works there too."""
    n = 5
    central = fr.random_permutations(n, (2,), generator=torch.Generator().manual_seed(1))
    numbers = case.numbers(n, (2,))
    law = case.make(central, *numbers)
    there = case.make(central.cuda(), *[x.cuda().requires_grad_() for x in numbers])
    orders = all_orders(n)[:, None]
    torch.testing.assert_close(there.log_prob(orders.cuda()).cpu(), law.log_prob(orders))
    torch.testing.assert_close(there.entropy().cpu(), law.entropy())
    torch.testing.assert_close(there.marginals().cpu(), law.marginals())
    torch.testing.assert_close(there.mean_ranks().cpu(), law.mean_ranks())
    assert torch.equal(there.mode.cpu(), law.mode)
    generator = torch.Generator("cuda").manual_seed(0)
    draws = there.sample((20_000,), generator=generator)
    assert draws.is_cuda
    shares = torch.nn.functional.one_hot(fr.index_of(draws), math.factorial(n)).double().mean(0).cpu()
    torch.testing.assert_close(shares.T, law.log_prob(orders).exp(), atol=0.015, rtol=0)
    conditioned, here = there.condition([3, 0, 2]), law.condition([3, 0, 2])
    torch.testing.assert_close(conditioned.log_prob(orders.cuda()).cpu(), here.log_prob(orders))
    assert conditioned.agrees(conditioned.sample((50,), generator=generator)).all()
    assert torch.equal(conditioned.mode.cpu(), here.mode)
    with pytest.raises(fr.PermutationError, match="row 1 holds 0 twice"):
        case.make(central[0].cuda(), *[x[0].cuda() for x in numbers]).log_prob(
            torch.tensor([[0, 1, 2, 3, 4], [0, 0, 1, 2, 3]], device="cuda")
        )
