"""One contract over every law, classical or learned: the same methods, with one meaning.

A new classical law is covered by adding it to ``tests/distributions/law_cases.py``, a new code, way of
unmasking or option of a learned law by adding its name here.
"""

import itertools
import math

import pytest
import torch
from scipy.stats import chisquare

import factorank as fr
from factorank.errors import DistributionError, FactorankError
from factorank.models.unmasking import UNMASK
from tests.distributions.law_cases import CASES
from tests.models.naive import random_probs, small_model

N = 4
CODES = ["lehmer", "left-lehmer", "fisher-yates", "insertion"]


def classical(name, n=N):
    return lambda: CASES[name].law(n)


def learned(code, objective, unmask, nfe, n=N):
    return lambda: small_model(n, code, objective).distribution(nfe=nfe, unmask=unmask)


OPTIONS = {
    "cool": {"temperature": 0.5},
    "warm and cut": {"temperature": 1.6, "top_p": 0.7},
}
MASKED_OPTIONS = {
    "sizes": {"nfe": [1, 2], "unmask": "right-to-left"},
    "growing": {"nfe": 2, "schedule": "growing", "unmask": "left-to-right"},
    "confident, cool": {"nfe": 2, "unmask": "confident", "temperature": 0.5, "top_p": 0.9},
    "bounded, cut": {"entropy_bound": 0.7, "top_p": 0.8},
    "one evaluation, warm and cut": {"nfe": 1, "temperature": 1.6, "top_p": 0.7},
}


def optional(code, objective, options, n=N):
    if objective == "masked":
        options = {"unmask": "left-to-right"} | options if "nfe" not in options else options
    return lambda: small_model(n, code, objective).distribution(**options)


LAWS = {name: classical(name) for name in CASES}
LAWS |= {
    f"{code}-{unmask}-{nfe}": learned(code, "masked", unmask, nfe)
    for code, unmask, nfe in itertools.product(CODES, UNMASK, (1, 3))
}
LAWS |= {f"{code}-autoregressive": learned(code, "autoregressive", None, None) for code in CODES}
LAWS |= {f"lehmer-{name}": optional("lehmer", "masked", MASKED_OPTIONS[name]) for name in MASKED_OPTIONS}
LAWS |= {
    f"insertion-{objective}-{name}": optional("insertion", objective, OPTIONS[name])
    for objective, name in itertools.product(("masked", "autoregressive"), OPTIONS)
}
laws = pytest.mark.parametrize("make", LAWS.values(), ids=LAWS)


def all_orders(n):
    return torch.tensor(list(itertools.permutations(range(n))))


def probabilities(law):
    """Of all orders, by ``log_prob``, or from the definition where that is a mixture over all partitions."""
    orders = all_orders(law.n)
    if law.exact:
        return law.log_prob(orders).exp().double().detach()
    return random_probs(law.model, orders, law.nfe).double()


@laws
def test_every_law_has_the_same_methods_with_one_meaning(make):
    law, orders = make(), all_orders(N)
    probs = probabilities(law)
    assert isinstance(law, fr.PermutationDistribution)
    assert isinstance(law, torch.distributions.Distribution)
    assert law.n == N
    assert law.event_shape == (N,)
    assert law.batch_shape == ()
    assert probs.sum().item() == pytest.approx(1, abs=1e-5)

    draws = law.sample((6000,), generator=torch.Generator().manual_seed(0))
    assert (draws.shape, draws.dtype) == ((6000, N), torch.int64)
    assert law.support.check(draws).all()
    counts = torch.bincount(fr.index_of(draws), minlength=len(orders)).double()
    likely = probs * 6000 >= 5
    observed = torch.cat([counts[likely], counts[~likely].sum()[None]])
    expected = torch.cat([probs[likely], probs[~likely].sum()[None]]) * 6000
    keep = expected > 0
    if keep.sum() > 1:
        assert (
            chisquare(observed[keep], expected[keep] * observed[keep].sum() / expected[keep].sum()).pvalue
            > 1e-4
        )

    ranks = fr.inverse(orders)
    marginals = torch.einsum("k,kij->ij", probs, torch.nn.functional.one_hot(ranks, N).double())
    entropy = -(probs * probs.clamp(min=1e-300).log()).sum()
    mean_ranks = (probs[:, None] * ranks).sum(0)
    values = {"entropy": entropy, "marginals": marginals, "mean_ranks": mean_ranks}
    for name, truth in values.items():
        estimate = law.estimate(name, samples=3000, generator=torch.Generator().manual_seed(1))
        bias = 0.05 if name == "entropy" and not law.exact else 1e-6  # the mixture's log_prob is one as well
        assert ((estimate.value - truth).abs() <= 5 * estimate.error + bias).all()
        if name in law.estimates:
            assert (getattr(law, name)().double() - truth).abs().max() < 0.2
        else:
            torch.testing.assert_close(getattr(law, name)().double().detach(), truth, atol=1e-5, rtol=1e-4)
    assert bool(law.estimates) == (not law.exact)

    assert law.mode.shape == (N,)
    assert fr.is_permutation(law.mode)
    assert torch.equal(law.enumerate_support(), orders)
    wide = law.expand((2, 3))
    assert (wide.batch_shape, wide.sample((5,)).shape, wide.mode.shape) == ((2, 3), (5, 2, 3, N), (2, 3, N))
    if law.exact:
        torch.testing.assert_close(wide.log_prob(orders[7]), law.log_prob(orders[7]).expand(2, 3))
    assert type(law).__name__ in repr(law)


@laws
def test_the_divergence_and_the_tilt_of_every_law(make):
    law, orders = make(), all_orders(N)
    probs, even = probabilities(law), fr.Uniform(N)
    entropy = -(probs * probs.clamp(min=1e-300).log()).sum()
    if law.exact:
        divergence = torch.distributions.kl_divergence(law, even)
        assert divergence.item() == pytest.approx(math.log(24) - entropy.item(), abs=1e-5)
        generator = torch.Generator().manual_seed(0)
        estimate = law.estimate("kl_divergence", other=even, samples=2000, generator=generator)
        assert abs(estimate.value.item() - divergence.item()) <= 5 * estimate.error.item() + 1e-5

    def reward(order):
        return (order[..., 0] == 2).float() - (order[..., 3] == 1).float()

    truth = probs * (1.5 * reward(orders).double()).exp()
    truth = truth / truth.sum()
    exact, sampled = law.tilt(reward, 1.5) if law.exact else None, law.tilt(reward, 1.5, samples=4000)
    if exact is not None:
        assert exact.exact
        assert isinstance(exact, fr.PermutationDistribution)
        values = exact.log_prob(orders).exp().double().detach()
        torch.testing.assert_close(values, truth, atol=1e-6, rtol=1e-4)
        error = (sampled.log_normaliser - exact.log_normaliser).abs().item()
        assert error <= 5 * sampled.log_normaliser_error.item() + 1e-6
    assert 16 <= sampled.effective_sample_size.item() <= 4000.1
    for tilted in filter(None, (exact, sampled)):
        draws = tilted.sample((2000,), generator=torch.Generator().manual_seed(0))
        shares = torch.bincount(fr.index_of(draws), minlength=len(orders)) / 2000
        assert (shares - truth).abs().max() < 0.05
        ranks = (truth[:, None] * fr.inverse(orders)).sum(0)
        assert (tilted.mean_ranks().double() - ranks).abs().max() < (1e-4 if tilted.exact else 0.15)
        assert fr.is_permutation(tilted.mode)


INDICES = [0, -1, (1, 2), slice(1, None), (..., -1), (slice(None), [2, 0, 2]), torch.tensor([1, 0, 1]), ()]


def batched(name):
    """A law of batch shape (2, 3) whose rows differ."""
    if name in CASES:
        return CASES[name].law(N, (2, 3))
    objective, _, option = name.partition("-")
    model = small_model(N, "insertion", objective, context=fr.ItemContext(9, 16))
    items = torch.stack([torch.randperm(9, generator=torch.Generator().manual_seed(i))[:N] for i in range(6)])
    options = {} if model.causal else {"nfe": 2, "unmask": "left-to-right"}
    if option == "draft":
        other = small_model(N, "insertion", context=fr.ItemContext(9, 16), seed=2)
        options = {"unmask": "left-to-right", "draft": other}
    law = model.distribution(items.view(2, 3, N), **options)
    if option == "given":
        return law.condition([2, 0])
    return law.tilt(lambda order: (order[..., 0] == 2).float()) if option == "tilted" else law


LEARNED = [
    "masked",
    "masked-draft",
    "masked-given",
    "masked-tilted",
    "autoregressive",
    "autoregressive-draft",
]


@pytest.mark.parametrize("name", [*CASES, *LEARNED])
def test_rows_of_every_law(name):
    law, orders = batched(name), all_orders(N)
    values = law.log_prob(orders[:, None, None]).detach()
    for index in INDICES:
        part = law[index]
        wanted = values[(slice(None), *(index if isinstance(index, tuple) else (index,)))]
        assert part.batch_shape == wanted.shape[1:]
        got = part.log_prob(orders.view(len(orders), *(1 for _ in part.batch_shape), N)).detach()
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-4)
    row = law[1, 2]
    draws = row.sample((3000,), generator=torch.Generator().manual_seed(0))
    shares = torch.bincount(fr.index_of(draws), minlength=len(orders)) / 3000
    assert (shares - values[:, 1, 2].exp()).abs().max() < 0.05
    assert [part.batch_shape for part in law] == [(3,), (3,)]
    for index in (2, (0, 3), "a", (0, 0, 0)):
        with pytest.raises(FactorankError, match=r"is no index of a batch of shape \(2, 3\)"):
            law[index]
    with pytest.raises(FactorankError, match="is no index of a batch"):
        row[0]
    with pytest.raises(FactorankError, match="iterates over a batch of laws"):
        list(row)
    assert law[[1, 0]].batch_shape == (2, 3)
    with pytest.raises(FactorankError, match=r"batch shape \(2, 3\) does not expand to \(3, 3\)"):
        law.expand((3, 3))


def test_what_cannot_be_tilted():
    law = fr.Mallows(torch.arange(10), 0.1)
    with pytest.raises(DistributionError, match="effective draws of 4096, fewer than 16"):
        law.tilt(lambda order: order[..., 0].float(), 30.0)
    for reward, strength in ((None, 1.0), (lambda order: order, math.nan), (lambda order: order, True)):
        with pytest.raises(DistributionError, match="a reward for each order, and a finite strength"):
            law.tilt(reward, strength)
    with pytest.raises(DistributionError, match="a real number for each order"):
        law.tilt(lambda order: order.float())
    with pytest.raises(DistributionError, match="infinite or NaN"):
        law.tilt(lambda order: torch.full(order.shape[:-1], math.nan))
    with pytest.raises(DistributionError, match="minus infinity"):
        fr.Uniform(3).tilt(lambda order: torch.full(order.shape[:-1], -math.inf))


def test_the_divergence_of_a_large_learned_law_is_estimated():
    model = small_model(9, "lehmer")
    law = model.distribution(nfe=3, unmask="left-to-right")
    value = torch.distributions.kl_divergence(law, fr.Uniform(9))
    assert value.item() == pytest.approx(math.lgamma(10) - law.entropy(samples=4000).item(), abs=0.3)
    other = law.estimate("kl_divergence", other=model.distribution(nfe=1), samples=500)
    assert 0 < other.error < other.value


@laws
@pytest.mark.parametrize("seen", [[2, 0], [1, 3, 0]])
def test_conditioning_is_restriction(make, seen):
    law, orders = make(), all_orders(N)
    places = fr.inverse(orders)[:, seen]
    agrees = (places[:, 1:] > places[:, :-1]).all(-1)
    truth = probabilities(law) * agrees
    if truth.sum() == 0:
        with pytest.raises(FactorankError, match="probability zero"):
            law.condition(seen)
        return
    truth = truth / truth.sum()
    given = law.condition(seen)
    assert isinstance(given, fr.PermutationDistribution)
    tolerance = 1e-4
    if law.exact:
        tolerance = 1e-4 if given.exact else 0.02
        torch.testing.assert_close(
            given.log_prob(orders).exp().double().detach(), truth, atol=tolerance, rtol=tolerance
        )
    draws = given.sample((4000,), generator=torch.Generator().manual_seed(0))
    shares = torch.bincount(fr.index_of(draws), minlength=len(orders)) / 4000
    assert (shares[~agrees] == 0).all()
    assert (shares - truth).abs().max() < 0.04
    ranks = (truth[:, None] * fr.inverse(orders)).sum(0)
    assert (given.mean_ranks().double() - ranks).abs().max() < (1e-4 if given.exact else 0.1)


@pytest.mark.parametrize("seen", [[0, 1], [1, 0, 2], [4, 9], [7, 2, 5]])
def test_a_law_too_large_to_enumerate_is_conditioned_too(seen):
    """One evaluation of an insertion model is a repeated insertion model; others are sampled by rejection."""
    n, generator = 10, torch.Generator().manual_seed(0)
    for objective, nfe, unmask in [
        ("masked", 1, None),
        ("masked", 3, "left-to-right"),
        ("autoregressive", None, None),
    ]:
        law = small_model(n, "insertion", objective).distribution(nfe=nfe, unmask=unmask)
        given = law.condition(seen)
        drawn = law.sample((40_000,), generator=generator)
        places = fr.inverse(drawn)[:, seen]
        kept = drawn[(places[:, 1:] > places[:, :-1]).all(-1)]
        assert len(kept) > 500
        wanted, found = (fr.inverse(x).double() for x in (kept, given.sample((5000,), generator=generator)))
        error = (wanted.var(0) / len(kept) + found.var(0) / len(found)).sqrt()
        assert ((wanted.mean(0) - found.mean(0)).abs() < 5 * error + 1e-9).all()
        if sorted(seen) == list(range(len(seen))) and nfe != 3:
            assert given.exact


def test_an_observation_too_rare_is_refused():
    law = fr.PermutationModel.from_mallows(fr.Mallows(torch.arange(10), 0.05), width=8, depth=1, heads=1)
    with pytest.raises(DistributionError, match="agree"):
        law.distribution(nfe=2).condition([9, 0, 8, 1])


def test_what_an_inline_law_cannot_say():
    law = small_model(3, "inline").distribution(nfe=1)
    sequences = torch.tensor(list(itertools.product(range(3), repeat=3)))
    probs = law.log_prob(sequences).exp().detach()
    stands = torch.zeros(3, 3)
    for sequence, weight in zip(sequences, probs, strict=True):
        stands[sequence, torch.arange(3)] += weight
    torch.testing.assert_close(law.marginals().detach(), stands)
    torch.testing.assert_close(law.marginals(samples=4000), stands, atol=0.05, rtol=0)
    for refused in (law.mean_ranks, law.enumerate_support):
        with pytest.raises(FactorankError, match="inline"):
            refused()
    given = law.condition([2, 0])  # orders that are permutations, and have 2 before 0
    assert fr.is_permutation(given.sample((500,))).all()


def test_bad_requests_are_refused():
    law = small_model(3, "lehmer").distribution(nfe=1)
    with pytest.raises(FactorankError, match="or with other= 'kl_divergence', not 'median'"):
        law.estimate("median")
    for samples in (0, True, 2.5, math.nan):
        with pytest.raises(FactorankError, match="at least 1 sample"):
            law.marginals(samples=samples)
    padded = small_model(3, "insertion", context=fr.ItemContext(9, 16)).distribution(
        torch.tensor([[3, 1, -1]])
    )
    with pytest.raises(FactorankError, match="shorter than n"):
        padded.condition([0, 1])
