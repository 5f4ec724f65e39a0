"""Views, matches and places: their geometry, against independent ones, and their symmetries."""

import numpy as np
import pytest
import torch

from factorank.baselines.edge_compatibility import border_distances
from factorank.jigsaw.photographs.network import PhotographNetwork, rounds_for
from factorank.jigsaw.photographs.placing import slot_features, turned_neighbours, upright_neighbours
from factorank.jigsaw.photographs.puzzles import Task, cut_picture, make_puzzle
from factorank.jigsaw.photographs.views import DEPTH, PIECE, RIM, Views, views_of
from tests.jigsaw.photographs.small import SMALL, photograph, small_model


@pytest.mark.parametrize("size", [(20, 30), (32, 32), (50, 7)])
def test_unusual_steps_are_those_of_the_solver_without_learning(size):
    pieces = cut_picture(photograph(4 * size[0], 3 * size[1]), (4, 3))
    steps = views_of(pieces).steps
    for axis, distances in enumerate(border_distances(pieces.numpy())):
        length = size[axis]
        ours = (steps[axis].double().exp() - 0.02).sum(-1).numpy() * length
        others = ~np.eye(12, dtype=bool)
        assert np.allclose(ours[others], distances[others], rtol=1e-4, atol=1e-3)


def test_steps_between_all_sides_hold_those_between_facing_ones():
    pieces = cut_picture(photograph(96, 96), (3, 3))
    upright, every = views_of(pieces).steps, views_of(pieces, turned=True).steps[0]
    every = every.unflatten(1, (9, 4)).unflatten(0, (9, 4))  # piece, side, piece, side
    assert torch.allclose(every[:, 0, :, 2], upright[0], atol=1e-4)
    assert torch.allclose(every[:, 3, :, 1], upright[1], atol=1e-4)
    assert torch.allclose(every[..., 0], every[..., 1].permute(2, 3, 0, 1), atol=1e-4)


def test_borders_are_read_from_the_edge_inward_and_from_top_to_bottom():
    pixels = torch.arange(PIECE * PIECE * 3).remainder(251).to(torch.uint8).view(1, PIECE, PIECE, 3)
    views = views_of(pixels)
    values = (pixels[0].float() - 127.5) / 64
    right = views.borders[0, 0].unflatten(0, (RIM + DEPTH, 3))
    assert torch.allclose(right[0].T, values[:, -1])
    assert torch.allclose(right[RIM].T, values[:, -1])
    assert torch.allclose(right[RIM + 2].T, values[:, -3])
    top = views.borders[0, 1].unflatten(0, (RIM + DEPTH, 3))
    assert torch.allclose(top[RIM].T, values[0])  # turned clockwise, the top row runs down the right side
    assert torch.allclose(views.turned[0, 1], torch.rot90(values, -1, (0, 1)).movedim(-1, 0))


@pytest.mark.parametrize("turned", [False, True])
def test_the_order_of_the_pieces_only_orders_the_answer(turned):
    model, pieces = small_model(), cut_picture(photograph(96, 96), (3, 3))
    order = torch.tensor([0, 4, 2, 8, 6, 1, 3, 5, 7])  # the first stays: it says how a turned puzzle lies
    with torch.no_grad():
        logits, again = (
            model.network(views_of(these, turned=turned), (3, 3), turned=turned).logits[-1]
            for these in (pieces, pieces[order])
        )
    turns = 4 if turned else 1
    moved = logits.unflatten(0, (9, turns))[order].flatten(0, 1)
    assert torch.allclose(again, moved, atol=1e-3)


def test_puzzles_of_a_batch_do_not_see_each_other():
    model = small_model()
    views = [views_of(cut_picture(photograph(60, 80, seed), (2, 4))) for seed in range(3)]
    together = Views(*(torch.stack(parts) for parts in zip(*views, strict=True)))
    with torch.no_grad():
        many = model.network(together, (2, 4)).logits[-1]
        single = torch.stack([model.network(each, (2, 4)).logits[-1] for each in views])
    assert torch.allclose(many, single, atol=1e-3)


def test_neighbours_of_turned_labels_are_the_sides_that_meet():
    """Label 4 i + t has side (d + t) mod 4 in direction d, and the neighbour shows the facing side."""
    n = 3
    after = torch.randn(4 * n, 4 * n + 1).log_softmax(-1)
    neighbours = turned_neighbours(after)
    for direction in range(4):
        for i, t, j, s in np.ndindex(n, 4, n, 4):
            own, facing = 4 * i + (direction + t) % 4, 4 * j + (direction + 2 + s) % 4
            read = neighbours.labels[direction, :, 4 * i + t, 4 * j + s]
            assert torch.allclose(read[0], after[own, facing].exp())
            assert torch.allclose(read[1], after[facing, own].exp())
            assert torch.allclose(neighbours.none[direction, 0, 4 * i + t], after[own, -1].exp())


def test_upright_neighbours_are_read_from_both_sides():
    after, before, under, over = (torch.randn(4, 5).log_softmax(-1) for _ in range(4))
    neighbours = upright_neighbours((after, before), (under, over))
    expected = [(after, before), (over, under), (before, after), (under, over)]  # right, top, left, bottom
    for side, (own, others) in enumerate(expected):
        assert torch.allclose(neighbours.labels[side, 0], own.exp()[:, :-1])
        assert torch.allclose(neighbours.labels[side, 1], others.exp()[:, :-1].T)


def test_slots_are_told_apart_and_mirrored():
    features = slot_features((3, 4), torch.device("cpu"))
    assert len(features.unique(dim=0)) == 12
    swapped = features[:, [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 12, 13]]
    assert torch.allclose(features.flip(0), swapped)  # turned by half, the sides change places


def test_the_size_of_the_network():
    network = PhotographNetwork()
    assert sum(weight.numel() for weight in network.parameters()) < 4_000_000
    assert rounds_for((2, 2)) < rounds_for((3, 12)) == rounds_for((12, 12)) <= 20
    assert SMALL.items() <= PhotographNetwork(**SMALL).options.items()


def test_a_puzzle_is_cut_scrambled_and_turned():
    picture = photograph(50, 70)
    puzzle = make_puzzle(picture, Task((3, 4), turned=True, missing=0.25), torch.Generator().manual_seed(0))
    assert puzzle.pieces.shape == (9, 16, 16, 3)
    assert len(set(puzzle.slots.tolist())) == 9
    for piece, slot, turn in zip(puzzle.pieces, puzzle.slots, puzzle.turns, strict=True):
        assert torch.equal(torch.rot90(piece, -int(turn), (0, 1)), puzzle.truth[slot])
    middle = picture[1:49, 3:67]
    assert torch.equal(puzzle.truth[5], middle[16:32, 16:32])
    assert make_puzzle(picture, Task((2, 3), piece=9), torch.Generator()).pieces.shape == (6, 9, 9, 3)
