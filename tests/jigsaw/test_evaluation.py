"""Scores of solutions against brute force."""

import pytest
import torch
from scipy.stats import binomtest

import factorank as fr
from factorank.jigsaw import evaluate, scrambled
from factorank.jigsaw.evaluation import pieces_alike, scores, wilson
from tests.jigsaw.small import fields


@pytest.mark.parametrize("direction", ["slot-of-piece", "piece-of-slot"])
def test_scores_against_brute_force(direction):
    """Pieces of few colours, so that many are identical, and guesses of which some are no permutations."""
    generator = torch.Generator().manual_seed(0)
    pieces = torch.randint(2, (300, 4, 1, 1, 1), generator=generator)
    order = fr.random_permutations(4, (300,), generator=generator)
    solution = order.clone()
    change = torch.randint(4, (300, 2), generator=generator)
    rows = torch.arange(300)
    solution[rows, change[:, 0]] = order[rows, change[:, 1]]
    solution[::2, :] = fr.random_permutations(4, (150,), generator=generator)
    summary = scores(order, solution, pieces, direction)

    solved = identical = right = alike = 0
    for truth, guess, shown in zip(
        order.tolist(), solution.tolist(), pieces.flatten(1).tolist(), strict=True
    ):
        right += sum(a == b for a, b in zip(truth, guess, strict=True))
        solved += truth == guess
        picture = [0] * 4  # what the true picture shows in each slot
        for entry, value in enumerate(truth):
            slot, piece = (value, entry) if direction == "slot-of-piece" else (entry, value)
            picture[slot] = shown[piece]
        good = 0
        for entry, value in enumerate(guess):
            slot, piece = (value, entry) if direction == "slot-of-piece" else (entry, value)
            good += shown[piece] == picture[slot]
        alike += good
        identical += good == 4 and sorted(guess) == [0, 1, 2, 3]
    assert 0 < solved < identical < 300
    assert summary["puzzles"] == 300
    assert summary["solved"] == solved / 300
    assert summary["solved_identical"] == identical / 300
    assert summary["pieces"] == pytest.approx(right / 1200)
    assert summary["pieces_identical"] == pytest.approx(alike / 1200)
    assert summary["pieces_low"] < summary["pieces"] < summary["pieces_high"]


def test_both_directions_have_the_same_scores():
    order, pieces = scrambled(fields(50, 4), 2)
    pieces[:, 1] = pieces[:, 0]
    solution = fr.random_permutations(4, (50,), generator=torch.Generator().manual_seed(3))
    forward = scores(order, solution, pieces, "slot-of-piece")
    assert forward == pytest.approx(scores(fr.inverse(order), fr.inverse(solution), pieces, "piece-of-slot"))
    assert forward["pieces_identical"] > forward["pieces"]


def test_identical_means_every_pixel():
    pieces = torch.zeros(3, 4, 4, 3, dtype=torch.uint8)
    pieces[2, 3, 3, 2] = 1
    truth = torch.tensor([0, 1, 2])
    assert pieces_alike(truth, torch.tensor([1, 0, 2]), pieces, "slot-of-piece").all()
    assert pieces_alike(truth, torch.tensor([2, 1, 0]), pieces, "slot-of-piece").tolist() == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(("count", "total"), [(0, 7), (7, 7), (1, 9), (9990, 10_000), (5000, 10_000)])
def test_wilson_against_scipy(count, total):
    interval = binomtest(count, total).proportion_ci(0.95, method="wilson")
    assert wilson(count, total) == pytest.approx((interval.low, interval.high), abs=1e-6)


def test_puzzles_are_solved_in_batches_that_fit():
    """A solver that knows the answers, batch by batch, and one that is always wrong."""
    pictures, sizes = fields(1100, 4), []
    order = scrambled(pictures, 2)[0]

    def solver(pieces):
        sizes.append(len(pieces))
        return order[sum(sizes[:-1]) : sum(sizes)]

    assert evaluate(solver, pictures, 2, "slot-of-piece")["solved"] == 1
    assert sizes == [1024, 76]
    assert (
        evaluate(lambda pieces: torch.zeros(len(pieces), 4).long(), pictures, 2, "slot-of-piece")["solved"]
        == 0
    )


def test_scores_refuse():
    none, two = torch.zeros(0, 4, 1, 1, 1), torch.zeros(2, 4, 1, 1, 1)
    with pytest.raises(fr.FactorankError, match="no puzzle was scored"):
        scores(torch.zeros(0, 4), torch.zeros(0, 4), none, "slot-of-piece")
    with pytest.raises(fr.FactorankError, match=r"\(2, 4\) truths but \(1, 4\) solutions"):
        scores(torch.zeros(2, 4), torch.zeros(1, 4), two, "slot-of-piece")
