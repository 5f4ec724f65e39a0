"""Trained models recover known laws: the divergence, over all permutations, is under a hundredth of a bit."""

import itertools
import math

import pytest
import torch

import factorank as fr
from factorank.lexicographic import permutation_at

CENTRAL = torch.tensor([3, 0, 4, 1, 2])
MALLOWS = fr.Mallows(CENTRAL, 0.6)
TWO_MODES = fr.Mixture(
    torch.tensor([0.6, 0.4]), [fr.Mallows(CENTRAL, 0.3), fr.Mallows(torch.tensor([2, 1, 4, 0, 3]), 0.4)]
)
PLACKETT_LUCE = fr.PlackettLuce(torch.tensor([0.0, 1.0, -0.5, 2.0, 0.5]))


def draws_of(probabilities, values):
    """Batches of a listed law, made on the fly: rows by an even grid with one random shift, then shuffled.

    Each row has the law, and there is neither a finite sample to fit nor much noise in a batch.
    """
    edges = probabilities.reshape(-1).cumsum(0)

    def make(rows, generator):
        grid = (torch.arange(rows) + torch.rand((), generator=generator)).double() / rows
        index = torch.searchsorted(edges, grid * edges[-1]).clamp(max=len(edges) - 1)
        return values(index[torch.randperm(rows, generator=generator)])

    return make


def trained(model, data, steps, **options):
    options = {"batch_size": 256, "lr": 5e-3, "ema": 0.99, **options}
    fr.train(model, data, steps=steps, seed=0, device="cpu", progress=False, **options)
    return model


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors are quickest on one thread, on a busy machine above all."""
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("law", "objective", "reference", "steps", "nfes"),
    [
        # Relative to its centre a Mallows law factorises in Lehmer codes, so one evaluation is enough.
        pytest.param(MALLOWS, "masked", CENTRAL, 200, (1, 3, 5), id="mallows"),
        pytest.param(TWO_MODES, "autoregressive", None, 400, (5,), id="two-modes"),
        pytest.param(PLACKETT_LUCE, "autoregressive", None, 400, (5,), id="plackett-luce"),
    ],
)
def test_a_trained_model_recovers_the_law(law, objective, reference, steps, nfes):
    every = permutation_at(torch.arange(120), 5)
    log_p = law.log_prob(every).double()
    model = fr.PermutationModel(5, "lehmer", objective, 32, 2, 1, reference=reference)
    trained(model, draws_of(log_p.exp(), lambda index: every[index]), steps)
    for nfe in nfes:
        with torch.no_grad():
            log_q = model.distribution(nfe=nfe, unmask="left-to-right").log_prob(every).double()
        assert float(log_q.exp().sum()) == pytest.approx(1, abs=1e-4)
        assert float((log_p.exp() * (log_p - log_q)).sum()) / math.log(2) < 0.01


def test_a_masked_model_recovers_a_law_that_factorises_in_no_code():
    """Every set of positions predicts every other: a conditional to learn for each partly known code."""
    every = permutation_at(torch.arange(120), 5)
    log_p = PLACKETT_LUCE.log_prob(every).double()
    model = fr.PermutationModel(5, "insertion", "masked", 32, 2, 4)
    trained(model, draws_of(log_p.exp(), lambda index: every[index]), 1600, betas=(0.9, 0.99))
    with torch.no_grad():
        log_q = model.distribution(nfe=5, unmask="right-to-left").log_prob(every).double()
    assert float((log_p.exp() * (log_p - log_q)).sum()) / math.log(2) < 0.01


def test_a_trained_model_recovers_a_conditional_law_and_its_observed_part():
    """Three of four items, listed in any order as context, ranked by Plackett-Luce; then two are observed.

    Given the order of two items the law of the whole order is the law cut down to the orders that agree.
    Those may be rare ones, which training saw little of: these divergences may be twice as large.
    """
    logits = torch.tensor([0.0, 1.0, -0.5, 2.0])
    lists = torch.tensor(list(itertools.permutations(range(4), 3)))
    every = permutation_at(torch.arange(6), 3)
    log_p = fr.PlackettLuce(logits[lists]).log_prob(every[:, None]).double().T  # (lists, orders)
    data = draws_of(log_p.exp(), lambda index: (every[index % 6], lists[index // 6]))
    model = fr.PermutationModel(3, "insertion", "masked", 32, 2, 1, context=fr.ItemContext(4, 32))
    trained(model, data, 900)

    with torch.no_grad():
        log_q = model.distribution(lists, unmask="left-to-right").log_prob(every[:, None]).double().T
    assert float((log_p.exp() * (log_p - log_q)).sum(1).mean()) / math.log(2) < 0.01

    ranks = fr.inverse(every)
    for better, worse in itertools.permutations(range(3), 2):
        agrees = ranks[:, better] < ranks[:, worse]
        known = log_p[:, agrees].log_softmax(1)
        observed = torch.tensor([better, worse]).expand(len(lists), 2)
        law = model.distribution(lists, observed=observed, unmask="left-to-right")
        with torch.no_grad():
            learnt = law.log_prob(every[:, None]).double().T
        assert bool((learnt[:, ~agrees] == -torch.inf).all())
        assert float((known.exp() * (known - learnt[:, agrees])).sum(1).mean()) / math.log(2) < 0.02
