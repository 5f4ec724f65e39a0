"""Families compared on held-out voters."""

import math

import pytest
import torch

import factorank as fr
from factorank.data import Rankings
from factorank.votes import FitSettings, compare, score_family
from factorank.votes.comparison import laws_to_compare

G = torch.Generator


def test_every_family_is_scored_and_the_true_one_wins():
    truth = fr.Mixture(
        [0.5, 0.5], [fr.Mallows(torch.arange(5), 0.3), fr.Mallows(torch.arange(5).flip(0), 0.3)]
    )
    votes = Rankings.from_orders(truth.sample((2000,), generator=G().manual_seed(0))).distinct()
    train, held = votes.split(0.25, G().manual_seed(1))
    planned = laws_to_compare(votes, 2, ["mallows", "plackett-luce"])
    assert planned == [
        ("uniform", 1),
        ("mallows", 1),
        ("mallows", 2),
        ("generalized-mallows", 1),
        ("rim", 1),
        ("plackett-luce", 1),
        ("plackett-luce", 2),
    ]
    scores = compare(train, held, FitSettings(components=2, restarts=2))
    assert [(score.family, score.components) for score in scores] == planned
    best = min(scores, key=lambda score: score.bits)
    assert (best.family, best.components) == ("mallows", 2)
    entropy = float(truth.entropy()) / math.log(2)
    assert best.bits == pytest.approx(entropy, abs=4 * best.bits_se)
    assert scores[0].bits == pytest.approx(math.log2(120))


def test_an_impossible_ranking_costs_finitely_many_bits():
    train = Rankings(["a", "b", "c"], torch.tensor([[0, 1, 2]]), torch.tensor([99]))
    held = Rankings(["a", "b", "c"], torch.tensor([[2, 1, 0]]))
    score = score_family(train, held, "mallows", 1, FitSettings())
    assert score.bits == pytest.approx(math.log2(600))  # one voter in 100, and one order in 6
