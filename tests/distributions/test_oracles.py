"""The laws against other packages and against their definitions, written out by hand."""

import itertools
import math
import warnings

import choix
import numpy as np
import pytest
import torch

import factorank as fr


def orders_of(n):
    return [list(order) for order in itertools.permutations(range(n))]


def kendall_by_hand(order, central):
    place = {item: i for i, item in enumerate(central)}
    return sum(place[a] > place[b] for a, b in itertools.combinations(order, 2))


@pytest.mark.parametrize("n", range(7))
@pytest.mark.parametrize("phi", [0.0, 1e-3, 0.4, 0.99, 1.0])
def test_mallows_is_phi_to_the_kendall_distance(n, phi):
    central = fr.random_permutations(n, generator=torch.Generator().manual_seed(n))
    weight = [phi ** kendall_by_hand(order, central.tolist()) for order in orders_of(n)]
    law = fr.Mallows(central, torch.tensor(phi, dtype=torch.float64))
    got = law.log_prob(torch.tensor(orders_of(n), dtype=torch.int64)).exp()
    torch.testing.assert_close(got, torch.tensor(weight, dtype=torch.float64) / sum(weight))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_weighted_mallows_is_the_product_over_right_lehmer_positions(n):
    g = torch.Generator().manual_seed(n)
    central = fr.random_permutations(n, generator=g)
    weights = torch.rand(n, generator=g, dtype=torch.float64) * 2
    phi = 0.6
    law = fr.Mallows(central, torch.tensor(phi, dtype=torch.float64), weights)
    for order in orders_of(n):
        named = [central.tolist().index(item) for item in order]
        product = 1.0
        for j in range(n):
            digit = sum(named[i] < named[j] for i in range(j + 1, n))
            q = phi ** float(weights[j])
            product *= q**digit * (1 - q) / (1 - q ** (n - j))
        assert float(law.log_prob(torch.tensor(order)).exp()) == pytest.approx(product, rel=1e-10)
    plain = fr.Mallows(central, 0.6)
    assert torch.allclose(
        plain.log_prob(torch.tensor(orders_of(n))),
        fr.Mallows(central, 0.6, torch.ones(n)).log_prob(torch.tensor(orders_of(n))),
    )


@pytest.mark.parametrize("n", [2, 4, 5])
def test_generalized_mallows_and_rim_insert_items_one_by_one(n):
    g = torch.Generator().manual_seed(n)
    central = fr.random_permutations(n, generator=g).tolist()
    phis = torch.rand(n, generator=g, dtype=torch.float64)
    table = torch.rand(n, n, generator=g, dtype=torch.float64).tril()
    table /= table.sum(-1, keepdim=True)
    by_hand = {"generalized": {}, "rim": {}}
    for slots in itertools.product(*(range(i + 1) for i in range(n))):
        inserted, generalized, rim = [], 1.0, 1.0
        for i, slot in enumerate(slots):
            inserted.insert(slot, central[i])
            q = float(phis[i])
            generalized *= q ** (i - slot) / sum(q**k for k in range(i + 1))
            rim *= float(table[i, slot])
        by_hand["generalized"][tuple(inserted)], by_hand["rim"][tuple(inserted)] = generalized, rim
    for law, name in ((fr.GeneralizedMallows(central, phis), "generalized"), (fr.RIM(table, central), "rim")):
        got = law.log_prob(torch.tensor(orders_of(n))).exp().tolist()
        assert got == pytest.approx([by_hand[name][tuple(order)] for order in orders_of(n)], rel=1e-10)


@pytest.mark.parametrize("n", [1, 3, 5])
@pytest.mark.parametrize("phi", [0.2, 1.0])
def test_families_meet(n, phi):
    """RIM with p ∝ φ^(i-v), generalized Mallows with equal φ, and GRIM that ignores the past are Mallows."""
    phi = torch.tensor(phi, dtype=torch.float64)
    central = fr.random_permutations(n, generator=torch.Generator().manual_seed(1))
    x = torch.tensor(orders_of(n))
    mallows = fr.Mallows(central, phi).log_prob(x)
    i = torch.arange(n)[:, None]
    exponents = (i - torch.arange(n)).clamp(min=0).double()
    logits = exponents * phi.log()
    torch.testing.assert_close(fr.RIM(logits=logits, reference=central).log_prob(x), mallows)
    torch.testing.assert_close(fr.GeneralizedMallows(central, phi.expand(n)).log_prob(x), mallows)
    if n > 1:
        grim = fr.GRIM(lambda slots: logits[slots.shape[-1], : slots.shape[-1] + 1], central)
        torch.testing.assert_close(grim.log_prob(x), mallows)


def test_uniform_and_flat_laws_agree():
    x = torch.tensor(orders_of(4))
    flat = torch.full((24,), -math.log(24))
    for law in (
        fr.Uniform(4),
        fr.Mallows(torch.arange(4), 1.0),
        fr.GeneralizedMallows(torch.arange(4), torch.ones(4)),
        fr.RIM(logits=torch.zeros(4, 4)),
        fr.PlackettLuce(torch.zeros(4)),
        fr.Mallows(torch.arange(4), 0.3, torch.zeros(4)),
        fr.Mallows(torch.arange(4), 0.0, torch.zeros(4)),
    ):
        torch.testing.assert_close(law.log_prob(x), flat)
        assert fr.is_permutation(law.sample((100,))).all()


def test_plackett_luce_equals_choix():
    rng = np.random.default_rng(0)
    for n in (2, 5, 9):
        scores = rng.normal(size=n)
        orders = [rng.permutation(n) for _ in range(20)]
        law = fr.PlackettLuce(torch.tensor(scores))
        # choix computes the log-likelihood of rankings up to no constant at all.
        theirs = [choix.log_likelihood_rankings([order.tolist()], scores) for order in orders]
        np.testing.assert_allclose(law.log_prob(torch.tensor(np.array(orders))), theirs, rtol=1e-10)


def test_plackett_luce_equals_tensorflow_probability():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numpy_substrate = pytest.importorskip("tensorflow_probability.substrates.numpy")
        rng = np.random.default_rng(0)
        scores = rng.normal(size=(3, 6))
        orders = np.stack([rng.permutation(6) for _ in range(3)])
        theirs = numpy_substrate.distributions.PlackettLuce(scores=np.exp(scores)).log_prob(orders)
    ours = fr.PlackettLuce(torch.tensor(scores)).log_prob(torch.tensor(orders))
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)


def test_plackett_luce_chooses_one_after_the_other():
    scores = [0.3, -1.2, 2.0, 0.0]
    law = fr.PlackettLuce(torch.tensor(scores, dtype=torch.float64))
    for order in orders_of(4):
        product, left = 1.0, sum(math.exp(s) for s in scores)
        for item in order:
            product *= math.exp(scores[item]) / left
            left -= math.exp(scores[item])
        assert float(law.log_prob(torch.tensor(order)).exp()) == pytest.approx(product, rel=1e-9)
    shifted = fr.PlackettLuce(torch.tensor(scores, dtype=torch.float64) + 100)
    assert torch.allclose(
        shifted.log_prob(torch.tensor(orders_of(4))), law.log_prob(torch.tensor(orders_of(4)))
    )
