"""The solver without learning: its distances by definition, its assembly, and whole puzzles."""

import numpy as np
import pytest

import factorank as fr
from factorank.baselines.edge_compatibility import (
    EMPTY,
    assemble,
    border_distances,
    fill,
    relative_distances,
    solve_by_edges,
)
from factorank.baselines.edge_compatibility.gradients import BESIDES
from tests.jigsaw.photographs.small import photograph


def pieces_of(picture, grid):
    rows, columns = grid
    height, width = picture.shape[0] // rows, picture.shape[1] // columns
    return np.stack(
        [
            picture[height * y : height * (y + 1), width * x : width * (x + 1)]
            for y in range(rows)
            for x in range(columns)
        ]
    )


def test_distances_are_gallaghers():
    """By the formula, pixel by pixel, for one pair and both sides."""
    pieces = pieces_of(photograph(40, 60).numpy(), (2, 3)).astype(float)
    first, second = pieces[0], pieces[4]
    total = 0.0
    for edge, inside, other in (
        (first[:, -1], first[:, -2], second[:, 0]),
        (second[:, 0], second[:, 1], first[:, -1]),
    ):
        changes = edge - inside
        precision = np.linalg.inv(np.cov(np.concatenate([changes, BESIDES]).T))
        for step in other - edge - changes.mean(0):
            total += step @ precision @ step
    across, down = border_distances(pieces.astype(np.uint8))
    assert across[0, 4] == pytest.approx(total)
    turned = border_distances(pieces.astype(np.uint8).swapaxes(1, 2))
    assert np.allclose(turned[0], down)
    assert np.isinf(np.diag(across)).all()


def test_relative_distances_compare_with_the_second_best():
    distances = np.array([[np.inf, 1.0, 4.0], [3.0, np.inf, 2.0], [8.0, 6.0, np.inf]])
    expected = [[np.inf, 0.25, 1.0], [1.0, np.inf, 2 / 3], [8 / 8, 6 / 6, np.inf]]
    assert np.allclose(relative_distances(distances), expected, atol=1e-5)


@pytest.mark.parametrize("grid", [(1, 4), (2, 2), (4, 5), (7, 3)])
def test_pictures_are_put_together(grid):
    pieces = pieces_of(photograph(140, 150).numpy(), grid)
    slots = np.random.default_rng(0).permutation(len(pieces))
    assert solve_by_edges(pieces[slots], grid).tolist() == slots.tolist()


def test_parts_neither_overlap_nor_outgrow_the_grid():
    chooser = np.random.default_rng(0)
    for _ in range(20):
        right, below = chooser.random((2, 12, 12))
        board = assemble(right, below, (3, 4))
        held = board[board != EMPTY]
        assert len(held) == len(set(held)) >= 2
        full = fill(board, right, below)
        assert sorted(full.ravel()) == list(range(12))
        assert (full[board != EMPTY] == held).all()


def test_a_hole_is_filled_with_what_fits():
    right, below = np.full((2, 4, 4), 9.0)
    right[0, 1] = below[0, 2] = right[2, 3] = below[1, 3] = 1.0
    board = np.array([[0, EMPTY], [EMPTY, EMPTY]])
    assert fill(board, right, below).tolist() == [[0, 1], [2, 3]]
    assert fill(board, right, below, labels=np.array([0, 3])).tolist().count([EMPTY, EMPTY]) <= 1


def test_what_it_refuses():
    with pytest.raises(fr.FactorankError, match="a 3×4 puzzle has 12 pieces, not 4"):
        solve_by_edges(np.zeros((4, 8, 8, 3), np.uint8), (3, 4))
