"""A solved puzzle as a picture and as an animation."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from factorank.figures import draw, solution_picture, steps_animation
from factorank.jigsaw import Answer


def answer(slots, chances=None, true_slots=None, grid=(2, 3), side=48):
    """An answer about grey pieces, each of its own shade."""
    n = len(slots)
    pieces = (200 - 12 * torch.arange(n)).to(torch.uint8).view(n, 1, 1, 1).expand(n, side, side, 3)
    chances = None if chances is None else torch.tensor(chances, dtype=torch.float64)
    truth = None if true_slots is None else torch.tensor(true_slots)
    return Answer(grid, pieces, torch.tensor(slots), 0.5, truth, piece_probability=chances)


def pixels(path):
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def coloured(picture, slot, side=48, columns=3):
    """How many pixels of a slot are not grey."""
    top, left = slot // columns * side, slot % columns * side
    part = picture[top : top + side, left : left + side]
    return int((np.ptp(part, axis=-1) > 40).sum())


def test_only_doubtful_and_wrong_pieces_are_marked(tmp_path):
    solved = answer([3, 1, 2, 0, 4, 5], [0.99, 0.95, 0.4, 0.99, 1.0, 0.91], [0, 1, 2, 3, 4, 5])
    assert solved.doubtful == {2: 0.4}
    assert solved.wrong == [0, 3]
    solution_picture(solved, tmp_path / "a.png")
    picture = pixels(tmp_path / "a.png")
    assert picture.shape == (96, 144, 3)
    marked = [slot for slot in range(6) if coloured(picture, slot)]
    assert marked == [0, 2, 3]
    assert np.array_equal(picture[:48, 48:96], solved.picture[:48, 48:96])  # others are as they were
    red = picture[2, 2]
    assert red[0] > 200 > 60 > red[1]


def test_nothing_is_marked_without_probabilities_and_truth(tmp_path):
    plain = answer([5, 4, 3, 2, 1, 0])
    solution_picture(plain, tmp_path / "a.png")
    assert np.array_equal(pixels(tmp_path / "a.png"), plain.picture)


def test_empty_slots_stay_grey(tmp_path):
    holes = answer([5, 0, 3], [0.99, 0.99, 0.99])
    assert holes.empty == [1, 2, 4]
    assert holes.summary == "3 of 6 slots empty, probability of the solution 50.0%"
    solution_picture(holes, tmp_path / "a.png")
    assert (pixels(tmp_path / "a.png")[:48, 48:] == 128).all()


@pytest.mark.parametrize("suffix", ["png", "jpg", "jpeg", "webp", "pdf"])
def test_formats(suffix, tmp_path):
    solution_picture(answer([0, 1, 2, 3, 4, 5]), tmp_path / f"a.{suffix}")
    assert (tmp_path / f"a.{suffix}").stat().st_size > 100


def test_the_animation_reveals_the_most_certain_pieces_first(tmp_path):
    solved = answer([3, 1, 2, 0, 4, 5], [0.2, 0.9, 0.8, 0.99, 0.7, 0.6])
    steps_animation(solved, tmp_path / "a.gif")
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames == 8  # the pieces, an empty board, and six more
        frames = []
        for index in range(film.n_frames):
            film.seek(index)
            frames.append(np.asarray(film.convert("RGB")).astype(int))
    assert np.abs(frames[1] - 128).max() <= 2
    first = np.abs(frames[2] - frames[1]).max(-1) > 4
    assert first[:48, :48].mean() > 0.9  # slot 0 holds the surest piece
    assert first[:, 48:].mean() < 0.02
    assert np.abs(frames[-1] - solved.picture).mean() < 3


def test_results_on_photographs_are_drawn(tmp_path):
    common = {"experiment": "photographs", "turned": False, "missing": 0.0, "piece": None}
    rows = []
    for method, search in (("factorank", True), ("factorank", False), ("edge-compatibility", False)):
        for grid in (3, 8):
            shares = {
                f"{key}{end}": value
                for key in ("solved_identical", "pieces_identical")
                for end, value in (("", 0.9), ("_low", 0.8), ("_high", 0.95))
            }
            rows.append(common | {"method": method, "search": search, "grid": grid, "columns": grid} | shares)
    rows.append(rows[0] | {"turned": True, "solved_identical_up_to_turn": 0.95})
    rows.append(rows[0] | {"missing": 0.1})
    rows.append(rows[0] | {"columns": 9})
    results = tmp_path / "photographs.jsonl"
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    draw("photographs", results, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000
