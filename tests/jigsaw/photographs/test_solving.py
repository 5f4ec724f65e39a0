"""From evidence to solutions: the search, turned and missing pieces, certainty, files."""

import itertools
import json

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.jigsaw.photographs import PhotographModel
from factorank.jigsaw.photographs.assembly import Scores, improve
from factorank.jigsaw.photographs.certainty import Certainty
from factorank.jigsaw.photographs.model import turned_whole
from factorank.jigsaw.photographs.puzzles import Task, make_puzzle, right_pieces, right_up_to_a_turn, shares
from factorank.jigsaw.photographs.solving import Placed, settle
from tests.jigsaw.photographs.small import knowing, photograph, small_model


@pytest.mark.parametrize("grid", [(2, 2), (1, 5), (4, 3), (6, 6)])
@pytest.mark.parametrize(("turned", "missing"), [(False, 0.0), (True, 0.0), (False, 0.2), (True, 0.2)])
@pytest.mark.parametrize("places", [True, False])
def test_evidence_of_the_truth_is_solved(grid, turned, missing, places):
    puzzle = make_puzzle(
        photograph(120, 120), Task(grid, turned=turned, missing=missing), torch.Generator().manual_seed(1)
    )
    evidence = knowing(puzzle, grid, 4 if turned else 1, places=places)
    if not places and (turned or missing):  # the search starts from the assignment, which knows nothing here
        return
    placed = settle(evidence, Certainty())
    assert placed.slots.tolist() == puzzle.slots.tolist()
    assert placed.turns.tolist() == puzzle.turns.tolist()
    if places:
        again = settle(evidence, Certainty(), search=False)
        assert again.slots.tolist() == puzzle.slots.tolist()
    assert placed.pieces.shape == (len(puzzle.pieces),)
    assert ((placed.pieces > 0) & (placed.pieces < 1)).all()


def random_scores(grid, labels, turns, seed):
    chooser = np.random.default_rng(seed)
    right, below = (chooser.normal(size=(labels + 1, labels + 1)) for _ in range(2))
    return Scores(right, below, chooser.normal(size=(labels + 1, grid[0] * grid[1])), turns)


def plain_total(scores, board):
    rows, columns = board.shape
    label = {(y, x): scores.nothing for y in range(-1, rows + 1) for x in range(-1, columns + 1)}
    label |= {(y, x): board[y, x] for y in range(rows) for x in range(columns)}
    total = sum(scores.right[label[y, x], label[y, x + 1]] for y in range(rows) for x in range(-1, columns))
    total += sum(scores.below[label[y, x], label[y + 1, x]] for y in range(-1, rows) for x in range(columns))
    return total + sum(scores.at[board[y, x], y * columns + x] for y in range(rows) for x in range(columns))


@pytest.mark.parametrize("seed", range(4))
def test_the_search_is_near_the_best_of_all_small_boards(seed):
    """It ends where no exchange of slots that touch helps, among the best hundredth of all boards."""
    grid = (2, 3)
    scores = random_scores(grid, 6, 1, seed)
    boards = [np.array(order).reshape(grid) for order in itertools.permutations(range(6))]
    totals = [plain_total(scores, board) for board in boards]
    assert scores.total(boards[100]) == pytest.approx(totals[100])
    starts = [boards[i] for i in np.random.default_rng(seed).choice(720, 12, replace=False)]
    reached = improve(scores, starts, seed=seed)
    total = plain_total(scores, reached)
    assert total >= sorted(totals)[-7] - 1e-9
    for first, second in (((0, 0), (0, 1)), ((0, 1), (1, 1)), ((1, 1), (1, 2))):
        other = reached.copy()
        other[first], other[second] = reached[second], reached[first]
        assert plain_total(scores, other) <= total + 1e-9


@pytest.mark.parametrize(("turns", "pieces"), [(1, 12), (4, 12), (1, 9), (4, 9)])
def test_the_search_never_loses_a_piece_or_score(turns, pieces):
    grid = (3, 4)
    scores = random_scores(grid, turns * pieces, turns, 5)
    start = np.full(12, scores.nothing)
    start[:pieces] = turns * np.arange(pieces)
    start = np.random.default_rng(0).permutation(start).reshape(grid)
    board = improve(scores, [start])
    held = board[board != scores.nothing] // turns
    assert sorted(held) == list(range(pieces))
    assert scores.total(board) > scores.total(start)


def test_a_whole_solution_is_turned_as_its_picture_is():
    grid, slots = (2, 3), np.arange(6)
    none = np.zeros(6)
    placed = Placed(slots, np.zeros(6, dtype=np.int64), 0.5, none, (0.0, 0.0), np.zeros((6, 2)), 0.0)
    drawn = np.arange(6).reshape(grid)
    for turns in range(5):
        turned = turned_whole(placed, grid, turns)
        board = np.rot90(drawn, -turns)
        assert [int(board.ravel()[slot]) for slot in turned.slots] == list(range(6))
        assert (turned.turns == turns % 4).all()


def test_right_pieces_are_those_that_show_the_right_pixels():
    puzzle = make_puzzle(photograph(80, 80), Task((4, 4), turned=True), torch.Generator().manual_seed(0))
    none = np.zeros(16)
    truth = Placed(puzzle.slots.numpy(), puzzle.turns.numpy(), 1.0, none, (0.0, 0.0), np.zeros((16, 2)), 0.0)
    assert right_pieces(puzzle, truth).all()
    turned = turned_whole(truth, (4, 4), 1)
    assert not right_pieces(puzzle, turned).any()
    assert right_up_to_a_turn(puzzle, turned, (4, 4)).all()
    row = shares([right_pieces(puzzle, truth), right_pieces(puzzle, turned)])
    assert (row["solved_identical"], row["pieces_identical"], row["puzzles"]) == (0.5, 0.5, 2)
    assert 0 < row["solved_identical_low"] < 0.5 < row["solved_identical_high"] < 1


def test_certainty_says_how_often_solutions_are_right():
    chooser = np.random.default_rng(0)
    facts = chooser.normal(size=(4000, 2))
    right = chooser.random(4000) < 1 / (1 + np.exp(-(0.5 - 2 * facts[:, 0] + facts[:, 1])))
    certainty = Certainty.fit(facts, right, facts, right)
    assert np.allclose(certainty.of_whole, (0.5, -2, 1), atol=0.2)
    stated = certainty.piece(facts)
    sure = stated > 0.9
    assert abs(stated[sure].mean() - right[sure].mean()) < 0.02
    assert certainty.whole((0.3, 0.1)) == pytest.approx(float(certainty.piece(np.array([0.3, 0.1]))))


def test_a_model_is_written_and_read_again(tmp_path):
    model = small_model()
    model.save(tmp_path / "model")
    assert PhotographModel.is_in(tmp_path / "model")
    assert not PhotographModel.is_in(tmp_path)
    again = PhotographModel.load(tmp_path / "model")
    assert again.certainty == model.certainty
    assert again.parameters == model.parameters
    for name, weight in again.network.state_dict().items():
        assert torch.equal(weight, model.network.state_dict()[name].bfloat16().float())
    (tmp_path / "model" / "config.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(fr.FactorankError, match="describe a model for photographs: its format is 'other'"):
        PhotographModel.load(tmp_path / "model")
    with pytest.raises(fr.FactorankError, match="does not hold a model for photographs"):
        PhotographModel.load(tmp_path)
