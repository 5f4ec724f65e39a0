"""The experiment on photographs, at a small size."""

import json

import numpy as np
import torch
from PIL import Image

from factorank.experiments import photographs
from factorank.experiments.photograph_failures import FLAT, contrast, failures, on_blocks, reasons_of
from factorank.experiments.photographs import fit_certainty, measure, puzzles_of, scored
from factorank.experiments.record import write_results
from factorank.figures import draw
from factorank.jigsaw import PhotographModel
from factorank.jigsaw.photographs.model import turned_whole
from factorank.jigsaw.photographs.network import PhotographNetwork
from factorank.jigsaw.photographs.puzzles import Task
from factorank.jigsaw.photographs.solving import Placed
from tests.jigsaw.photographs.small import SMALL, photograph, small_model

PICTURES = [photograph(60, 80, seed) for seed in range(3)]
TASKS = [Task((2, 3)), Task((2, 2), turned=True), Task((2, 3), missing=0.2), Task((2, 2), piece=9)]


def test_rows_of_every_task_and_method():
    rows = list(measure(small_model(), PICTURES, TASKS, scrambles=2))
    assert [(row["method"], row["search"]) for row in rows[:3]] == [
        ("factorank", False),
        ("factorank", True),
        ("edge-compatibility", False),
    ]
    assert len(rows) == 3 + 2 + 2 + 3
    for row in rows:
        assert row["puzzles"] == 6
        assert (
            0 <= row["solved_identical_low"] <= row["solved_identical"] <= row["solved_identical_high"] <= 1
        )
        assert 0 <= row["pieces_identical"] <= 1
        json.dumps(row, allow_nan=False)
    edges = rows[2]
    assert edges["solved_identical"] == 1
    assert edges["parameters"] is None
    assert "stated" not in edges
    assert rows[3]["solved_identical_up_to_turn"] >= rows[3]["solved_identical"]


def test_what_is_stated_of_turned_pieces_is_of_standing_upright_if_the_model_knows_of_it():
    task = Task((2, 2), turned=True)
    puzzle = puzzles_of(PICTURES[:1], task, 1)[0]
    none = np.zeros(4)
    right = Placed(puzzle.slots.numpy(), puzzle.turns.numpy(), 0.95, none, (0.0, 0.0), np.zeros((4, 2)), 0.0)
    lying = turned_whole(right, (2, 2), 1)
    for placed, upright, solved in ((right, True, 1), (lying, True, 0), (lying, False, 1)):
        row = scored([puzzle], [placed], task, True, upright=upright)
        assert row["solved_when_sure"] == solved
        assert row["solved_identical_up_to_turn"] == 1
        assert row["stated_when_sure"] == 0.95


def test_puzzles_are_the_same_at_every_call_and_differ_between_scrambles():
    first, again = (puzzles_of(PICTURES, Task((2, 3)), 2) for _ in range(2))
    assert [p.slots.tolist() for p in first] == [p.slots.tolist() for p in again]
    assert first[0].slots.tolist() != first[3].slots.tolist()


def test_certainty_is_fitted_to_held_out_puzzles():
    model = small_model()
    certainty = fit_certainty(model, PICTURES, TASKS, scrambles=2)
    rows = list(measure(PhotographModel(model.network, certainty), PICTURES, TASKS[:1], methods=("law",)))
    assert 0 <= rows[0]["stated"] <= 1


def test_a_model_is_trained_and_goes_on(tmp_path, monkeypatch):
    (tmp_path / "some").mkdir()
    for index, picture in enumerate(PICTURES):
        Image.fromarray(picture.numpy()).save(tmp_path / "some" / f"{index}.png")
    monkeypatch.setattr(photographs, "PhotographNetwork", lambda: PhotographNetwork(**SMALL))
    monkeypatch.setattr(photographs, "FITTED", TASKS[:1])
    folder = tmp_path / "some"
    options = {"seconds": 600, "device": "cpu", "budget": 300, "largest": 2, "max_steps": 1}
    for step in (1, 2):
        model = photographs.train_model(folder, folder, tmp_path / "run", **options)
        assert (tmp_path / "run" / "checkpoints" / str(step)).is_dir()
    again = PhotographModel.load(tmp_path / "run" / "model")
    assert again.certainty == model.certainty


def test_cuts_on_blocks_and_off_them_have_pieces_of_one_size():
    rows = list(on_blocks(PICTURES, grid=3, size=16, longer=24))
    assert [row["offset"] for row in rows] == [0, 4]
    assert all(row["puzzles"] == 3 and row["pieces_identical"] == 1 for row in rows)


def test_wrong_pieces_have_reasons(tmp_path):
    """Of a picture whose upper half is one colour but for a level of noise, those pieces are flat."""
    picture = photograph(96, 96, 5)
    noise = torch.randint(0, 2, (48, 96, 3), generator=torch.Generator().manual_seed(0))
    picture[:48] = 120 + noise.to(torch.uint8)
    task = Task((4, 4))
    puzzle = puzzles_of([picture], task, 1)[0]
    flatness = contrast(puzzle.truth)
    assert (flatness[:8] < FLAT).all()
    reasons = reasons_of(puzzle, (4, 4), np.arange(16), flatness)
    assert reasons[:8] == ["flat"] * 8
    assert "flat" not in reasons[8:]
    assert reasons[12:] == ["other"] * 4  # the row above touches the flat half
    rows = list(failures(small_model(), [picture, PICTURES[0]], task, names=["sky", "plain"]))
    assert [row["picture"] for row in rows if "flat" in row["reasons"]] == ["sky"]
    write_results(tmp_path / "rows.jsonl", rows)
    draw("photograph-failures", tmp_path / "rows.jsonl", tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000
