"""Rankers that are trained or mixed: LambdaMART, the network that scores and sorts, the Mallows mixture."""

import itertools
import sys

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.baselines.rankers import (
    LambdaMART,
    MallowsMixture,
    MeanRating,
    RankerError,
    RatedLists,
    ScoreAndSort,
    lambdamart,
    mallows_mixture,
)
from factorank.baselines.rankers.score_and_sort import ScoreNetwork, chain_nats
from tests.baselines.tastes import tastes

TRAIN, VALIDATION, TEST = (tastes(seed=seed) for seed in range(3))
SMALL = {"n": 8, "observed": (1, 4), "k": 3}


def every_order(n: int) -> torch.Tensor:
    return torch.tensor(list(itertools.permutations(range(n))))


@pytest.fixture(scope="module")
def mean():
    return MeanRating().fit(TRAIN, VALIDATION, **SMALL)


@pytest.fixture(scope="module")
def network() -> ScoreAndSort:
    baseline = ScoreAndSort(steps=250, width=32, depth=2, lr=5e-3, batch_size=64, device="cpu")
    return baseline.fit(TRAIN, VALIDATION, **SMALL)


@pytest.fixture(scope="module")
def trees() -> LambdaMART:
    return LambdaMART(trees=30, rate=0.2, threads=1).fit(TRAIN, VALIDATION, **SMALL)


@pytest.fixture(scope="module")
def mixture() -> MallowsMixture:
    return MallowsMixture().fit(TRAIN, VALIDATION, **SMALL)


@pytest.mark.parametrize("name", ["network", "trees", "mixture"])
def test_tastes_are_learned_from_the_observed_items(name, mean, request):
    lists = RatedLists.of(TEST, 8, 5)
    baseline = request.getfixturevalue(name)
    assert lists.ndcg(baseline, 4, 3).mean() > 0.94 > 0.85 > lists.ndcg(mean, 4, 3).mean()
    unknown = lists.ndcg(mean, 0, 3).mean().item()  # nothing observed: no ranker can do better
    assert lists.ndcg(baseline, 0, 3).mean().item() == pytest.approx(unknown, abs=0.03)


@pytest.mark.parametrize("r", range(5))
def test_the_network_is_plackett_luce_given_the_observed_order(r):
    torch.manual_seed(0)
    net = ScoreNetwork(items=6, n=5, width=16, depth=1, heads=2).eval()
    torch.nn.init.normal_(net.head.weight)
    orders = every_order(5)
    items = torch.tensor([4, 0, 5, 2, 1])
    observed = torch.tensor([*reversed(range(r))], dtype=torch.int64)  # the r-th item of the list is the best
    agrees = torch.tensor([[i for i in order if i < r] == observed.tolist() for order in orders.tolist()])
    orders = orders[agrees]
    with torch.no_grad():
        nats = net.nats(orders, items.expand_as(orders), torch.full((len(orders), 1), r))
        place = torch.full((1, 5), 5)
        place[0, observed] = torch.arange(r)
        logits = net(items[None], place, torch.tensor([[r]]))[0]
    assert (-nats).exp().sum() == pytest.approx(1, abs=1e-5)
    law = fr.PlackettLuce(logits).condition(observed)
    assert torch.allclose(-nats, law.log_prob(orders), atol=1e-4)


def test_chain_nats_leaves_out_what_takes_no_part():
    logits = torch.tensor([[0.5, -torch.inf, 1.0, -torch.inf]])
    expected = -(0.5 - np.logaddexp(0.5, 1.0))
    assert chain_nats(logits).item() == pytest.approx(expected)


def test_the_network_does_not_read_the_order_of_the_list(network):
    items, relevance = torch.tensor([[3, 7, 1, 0, 11, 5]]), torch.tensor([[4.0, 1.5, 3.0]])
    scores = network.scores(items, 3, relevance)
    swap = torch.tensor([2, 0, 1, 5, 3, 4])
    swapped = network.scores(items[:, swap], 3, relevance[:, swap[:3]])
    assert torch.allclose(swapped, scores[:, swap], atol=1e-5)
    assert torch.equal(
        network.scores(items, 3, torch.tensor([[0, 2, 1]])), scores
    )  # the order is all it reads
    with pytest.raises(RankerError, match="trained on lists of 8"):
        network.scores(torch.arange(10)[None], 9, torch.ones(1, 9))


def test_trees_see_what_the_rankers_below_say(trees):
    items, relevance = torch.tensor([[3, 7, 1, 0], [2, 4, 6, 8]]), torch.tensor([[4.0, 1.5], [2.0, 5.0]])
    features = trees._features(items, 2, relevance)
    named = {name: features[..., i] for i, name in enumerate(lambdamart.FEATURES)}
    mean, count, factorisation, ease = (
        below.scores(items, 2, relevance if below.reads == "ratings" else None).numpy()
        for below in trees._below
    )
    assert np.allclose(named["mean"], mean)
    assert np.allclose(named["log count"], np.log(1 + count))
    assert np.allclose(named["ease beside mean"], ease - mean)
    assert np.allclose(
        named["factorisation beside list"], factorisation - factorisation[:, 2:].mean(1, keepdims=True)
    )
    assert np.allclose(named["observed relevance"], [[2.75] * 4, [3.5] * 4])
    assert np.allclose(
        named["observed beside mean"], (relevance.numpy() - mean[:, :2]).mean(1, keepdims=True)
    )
    assert (named["observed"] == 2).all()
    assert (named["items"] == 4).all()
    expected = trees.booster.predict(features.reshape(8, -1), num_iteration=trees.booster.best_iteration)
    assert np.allclose(trees.scores(items, 2, relevance).numpy().reshape(-1), expected)


def test_trees_need_lightgbm(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(RankerError, match=r"factorank\[ltr\]"):
        LambdaMART().fit(TRAIN, VALIDATION, **SMALL)


def test_mallows_laws_of_lists_are_laws():
    generator = torch.Generator().manual_seed(0)
    consensus, share = torch.rand((3, 7), generator=generator), torch.tensor([0.1, 0.3, 0.45])
    items = torch.tensor([6, 2, 0, 5])
    listed = items[every_order(4)]
    distances = mallows_mixture.disagreements(listed, consensus)
    log_probs = mallows_mixture.log_probs(distances, share, 4)
    for c in range(3):
        centre = consensus[c][items].argsort(descending=True)
        apart = fr.kendall(every_order(4), centre.expand(24, 4))
        assert torch.equal(distances[:, c], apart)
        law = fr.Mallows(centre, float(mallows_mixture.dispersions(share, 4)[c]))
        assert torch.allclose(log_probs[:, c], law.log_prob(every_order(4)).double(), atol=1e-5)
        assert float((log_probs[:, c].exp() * apart).sum()) / 6 == pytest.approx(float(share[c]), abs=1e-6)


def test_components_are_believed_by_bayes_and_places_are_averaged(mixture):
    items, order = torch.tensor([[3, 7, 1, 0, 9]]), torch.tensor([[2, 0, 1]])
    listed = items[:, :3].gather(1, order)
    apart = mallows_mixture.disagreements(listed, mixture.consensus)
    joint = mallows_mixture.log_probs(apart, mixture.share, 3).exp()[0] * mixture.weights
    believed = joint / joint.sum()
    assert torch.allclose(mixture.posterior(listed)[0], believed)
    expected = torch.zeros(5, dtype=torch.float64)
    for c, phi in enumerate(mallows_mixture.dispersions(mixture.share, 5)):
        law = fr.Mallows(mixture.consensus[c][items[0]].argsort(descending=True), float(phi))
        orders = every_order(5)
        places = orders.argsort(-1)
        expected += believed[c] * (law.log_prob(orders).double().exp()[:, None] * places).sum(0)
    assert torch.allclose(mixture.scores(items, 3, order)[0], -expected.float(), atol=1e-4)


def test_given_any_observation_unobserved_items_rank_by_the_consensus():
    """What the mixture's scores rely on, for all observed orders of 5 items."""
    orders, law = every_order(5), fr.Mallows(torch.arange(5), 0.7)
    probs, places = law.log_prob(orders).exp(), every_order(5).argsort(-1)
    for r in range(1, 4):
        for chain in itertools.permutations(range(5), r):
            agrees = (places[:, list(chain)].diff(dim=1) > 0).all(1)
            expected = (probs[agrees, None] * places[agrees]).sum(0) / probs[agrees].sum()
            others = [item for item in range(5) if item not in chain]
            assert (expected[others].diff() > 0).all()


def test_every_list_of_ten_thousand_is_scored(trees, network, mixture):
    items, relevance = TEST.draw(8, 10_000, torch.Generator().manual_seed(0))
    for baseline in (trees, network, mixture):
        assert baseline.scores(items, 3, relevance).isfinite().all()
