"""Networks of several codes on the same votes: folds, weights, the mixture and its file."""

import math

import pytest
import torch

import factorank as fr
from factorank.training import TrainSettings
from factorank.votes import networks, open_law
from factorank.votes.networks import CANDIDATES, mixture_weights, save_networks, train_networks

QUICK = TrainSettings(steps=30, lr=5e-3, batch_size=64, ema=0.9, device="cpu")


@pytest.fixture(scope="module")
def votes():
    law = fr.Mixture([0.6, 0.4], [fr.Mallows([0, 1, 2, 3], 0.3), fr.Mallows([3, 1, 0, 2], 0.2)])
    return law.sample((600,), generator=torch.Generator().manual_seed(0))


def test_every_round_holds_out_other_voters():
    orders = torch.arange(40)[:, None]
    parts = networks._folds(orders, 0.25, 3, seed=0)
    held = torch.cat([held for _, held in parts]).flatten()
    assert len(held) == len(held.unique()) == 30
    for seen, held in parts:
        assert sorted([*seen.flatten().tolist(), *held.flatten().tolist()]) == list(range(40))
    assert len(networks._folds(orders, 0.4, 5, seed=0)) == 2  # as many as there are voters for
    with pytest.raises(fr.RankingsError, match="a fraction of 0 of 40 voters cannot be held out"):
        networks._folds(orders, 0, 1, seed=0)


def test_weights_are_those_of_the_highest_likelihood():
    generator = torch.Generator().manual_seed(1)
    log_probs = torch.randn((50, 2), generator=generator, dtype=torch.float64)
    best = mixture_weights(log_probs)
    grid = torch.linspace(0, 1, 1001, dtype=torch.float64)
    likelihood = (log_probs[:, None] + torch.stack([grid, 1 - grid], -1).log()).logsumexp(-1).sum(0)
    assert float(best[0]) == pytest.approx(float(grid[likelihood.argmax()]), abs=2e-3)
    poor = torch.cat([log_probs, log_probs[:, :1] - 20], 1)
    assert mixture_weights(poor)[2] == 0


def test_the_mixture_scores_saves_and_answers(votes, tmp_path):
    seen = []
    trained = train_networks(votes, QUICK, rounds=2, width=8, watch=lambda code: seen.append(code.candidate))
    assert seen[:4] == list(CANDIDATES)
    assert trained.bits < math.log2(24)
    good = [code for code in trained.tried if len(code.models) == 2]
    assert {code.candidate for code in good} == set(seen[4:])
    assert all(code.weight == 0 for code in trained.tried if len(code.models) == 1)
    law = trained.law
    every = fr.permutation_at(torch.arange(24), 4)
    assert float(law.log_prob(every).exp().sum()) == pytest.approx(1, abs=1e-5)
    save_networks(trained, tmp_path / "run", {"file": "votes"})
    save_networks(trained, tmp_path / "run", {"file": "votes"}, ["a", "b", "c", "d"])
    again, items = open_law(tmp_path / "run")
    assert items == ["a", "b", "c", "d"]
    torch.testing.assert_close(again.log_prob(every), law.log_prob(every))
    given = again.condition([3, 2])
    agrees = (every == 3).int().argmax(1) < (every == 2).int().argmax(1)
    kept = law.log_prob(every).exp() * agrees
    torch.testing.assert_close(given.log_prob(every).exp(), kept / kept.sum(), rtol=1e-4, atol=1e-7)


def test_the_same_seed_gives_the_same_networks(votes):
    options = {"rounds": 1, "width": 8, "candidates": CANDIDATES[:1]}
    first, second = (train_networks(votes[:100], QUICK, **options) for _ in range(2))
    assert first.bits == second.bits


@pytest.mark.parametrize("observed", [[1, 0], [3, 1], [2, 0, 1]])
def test_a_mixture_of_networks_of_other_codes_is_conditioned(observed):
    """Items 0, 1, … are the first that an insertion code inserts: it has a rule of its own for them."""
    torch.manual_seed(0)
    models = [fr.PermutationModel(4, code, "autoregressive", 8, 1, 2) for code in ("insertion", "lehmer")]
    with torch.no_grad():
        for model in models:
            model.network.head.bias.normal_()
    law = fr.Mixture([0.4, 0.6], [model.distribution() for model in models])
    every = fr.permutation_at(torch.arange(24), 4)
    agrees = torch.tensor([[i for i in order if i in observed] == observed for order in every.tolist()])
    with torch.no_grad():
        kept = law.log_prob(every).exp() * agrees
        given = law.condition(observed).log_prob(every).exp()
    torch.testing.assert_close(given, kept / kept.sum(), rtol=1e-4, atol=1e-7)
