"""Puzzles: cutting and scrambling against plain loops, augmentation against every variant there is."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import factorank as fr
from factorank.jigsaw.puzzles import DIRECTIONS, Puzzles, cut, join, scrambled, settle_ties
from tests.jigsaw.small import PICTURES


@pytest.fixture
def pictures(generator):
    return torch.randint(256, (3, 13, 13, 3), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("grid", [1, 2, 3, 4, 5, 6, 13])
def test_cut_against_loops_and_back(grid, pictures):
    pieces = cut(pictures, grid)
    size = 13 // grid
    for row, column in itertools.product(range(grid), repeat=2):
        expected = pictures[:, row * size : (row + 1) * size, column * size : (column + 1) * size]
        assert torch.equal(pieces[:, row * grid + column], expected)
    assert torch.equal(join(pieces, grid), pictures[:, : grid * size, : grid * size])
    assert torch.equal(cut(pictures[0], grid), pieces[0])


@pytest.mark.parametrize("grid", [0, 14, 2.0, True])
def test_a_grid_that_does_not_fit(grid, pictures):
    with pytest.raises(fr.FactorankError, match="13×13 pixels is cut by a grid from 1 to 13, not"):
        cut(pictures, grid)


@pytest.mark.parametrize("make", ["scrambled", "Puzzles"])
def test_the_two_directions_are_inverse_and_both_solve_the_puzzle(make, pictures):
    def puzzles(direction):
        if make == "scrambled":
            return scrambled(pictures, 3, direction=direction, seed=5)
        maker = Puzzles(pictures, 3, direction=direction, augment="none")
        return maker(40, torch.Generator().manual_seed(5))

    (slot, pieces), (piece, same) = puzzles("slot-of-piece"), puzzles("piece-of-slot")
    assert torch.equal(pieces, same)
    assert torch.equal(fr.inverse(slot), piece)
    known = {join(by_slot, 3).numpy().tobytes() for by_slot in cut(pictures, 3)}
    for row in range(len(pieces)):
        solved = join(pieces[row][piece[row]], 3)
        assert solved.numpy().tobytes() in known
        by_slot = torch.empty_like(pieces[row])
        by_slot[slot[row]] = pieces[row]
        assert torch.equal(join(by_slot, 3), solved)


def test_fixed_puzzles_depend_on_the_seed_alone(pictures):
    order, pieces = scrambled(pictures, 3, seed=1)
    again, _ = scrambled(pictures, 3, seed=1)
    other, _ = scrambled(pictures, 3, seed=2)
    assert torch.equal(order, again)
    assert not torch.equal(order, other)
    assert pieces.shape == (3, 9, 4, 4, 3)


def variants(pictures, augment):
    """Every picture that the augmentation can make, by numpy."""
    listed = []
    moves = range(-4, 5) if "crop" in augment else [0]
    for picture in pictures.numpy():
        padded = np.pad(picture, ((4, 4), (4, 4), (0, 0)), mode="reflect")
        for down, across in itertools.product(moves, repeat=2):
            cropped = padded[4 + down : 17 + down, 4 + across : 17 + across]
            listed += [cropped] + ([cropped[:, ::-1]] if "flip" in augment else [])
    return listed


@pytest.mark.parametrize("augment", ["none", "flip", "crop", "crop+flip"])
def test_augmented_puzzles_are_the_variants_and_equally_often(augment, pictures):
    listed = [np.ascontiguousarray(v[:12, :12]).tobytes() for v in variants(pictures, augment)]
    assert len(set(listed)) == len(listed)
    counts = dict.fromkeys(listed, 0)
    order, pieces = Puzzles(pictures, 3, augment=augment)(10_000, torch.Generator().manual_seed(0))
    by_slot = torch.empty_like(pieces).scatter_(1, order[:, :, None, None, None].expand_as(pieces), pieces)
    for picture in join(by_slot, 3).numpy():
        counts[picture.tobytes()] += 1
    assert chisquare(list(counts.values())).pvalue > 0.001


def test_scrambling_is_uniform(pictures):
    order, _ = Puzzles(pictures, 2)(12_000, torch.Generator().manual_seed(0))
    counts = torch.bincount(fr.index_of(order), minlength=24)
    assert chisquare(counts.numpy()).pvalue > 0.001


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_identical_pieces_have_one_right_order(direction):
    """Pictures of two colours: many pieces are alike, and their order follows from the puzzle alone."""
    chooser = torch.Generator().manual_seed(0)
    blocks = torch.randint(2, (40, 3, 3, 1), generator=chooser, dtype=torch.uint8) * 200
    pictures = blocks.repeat_interleave(3, 1).repeat_interleave(3, 2).expand(-1, -1, -1, 3).contiguous()
    options = {"direction": direction, "augment": "none"}
    plain, pieces = Puzzles(pictures, 3, ties=False, **options)(500, torch.Generator().manual_seed(1))
    order, same = Puzzles(pictures, 3, ties=True, **options)(500, torch.Generator().manual_seed(1))
    assert torch.equal(pieces, same)
    assert fr.is_permutation(order).all()
    assert not torch.equal(order, plain)
    slots, before = (o if direction == "slot-of-piece" else fr.inverse(o) for o in (order, plain))
    for row in range(500):
        laid, truth = (pieces[row][fr.inverse(some[row])] for some in (slots, before))
        assert torch.equal(laid, truth)
        for shade in (0, 200):
            alike = slots[row][pieces[row, :, 0, 0, 0] == shade]
            assert (alike.diff() > 0).all()


def test_different_pieces_are_not_taken_for_identical(pictures):
    for change in itertools.product(range(4), range(4), range(3)):
        pieces = torch.full((2, 4, 4, 3), 99, dtype=torch.uint8)
        pieces[1][change] = 98
        assert settle_ties(torch.tensor([1, 0]), pieces).tolist() == [1, 0]
    options = {"augment": "crop+flip"}
    first, second = (
        Puzzles(pictures, 3, ties=ties, **options)(200, torch.Generator().manual_seed(0))
        for ties in (True, False)
    )
    assert torch.equal(first[0], second[0])


def test_light_changes_all_pieces_alike_and_stays_within_bytes(pictures):
    plain = Puzzles(pictures, 3, augment="none")(200, torch.Generator().manual_seed(0))
    lit = Puzzles(pictures, 3, augment="light")(200, torch.Generator().manual_seed(0))
    assert torch.equal(plain[0], lit[0])
    assert lit[1].dtype == torch.uint8
    assert (plain[1] != lit[1]).flatten(1).any(-1).float().mean() > 0.9
    for before, after in zip(plain[1].flatten(1), lit[1].flatten(1), strict=True):
        ranks = after[before.long().argsort()].long()
        assert (ranks.diff() >= 0).all()  # a rising map of the grey levels, one for the whole puzzle


def test_random_numbers_come_from_the_generator_alone(pictures):
    state = torch.get_rng_state()
    maker = Puzzles(pictures, 3, augment="crop+flip+light")
    first, second = (maker(8, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert torch.equal(state, torch.get_rng_state())
    assert maker.capturable


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direction": "sideways"}, "the direction is 'slot-of-piece' or 'piece-of-slot', not 'sideways'"),
        ({"augment": "crop+blur"}, "augment is 'none' or some of crop, flip, light joined by"),
        ({"grid": 99}, "a grid from 1 to 13, not 99"),
    ],
)
def test_puzzles_refuse(options, message, pictures):
    with pytest.raises(fr.FactorankError, match=message):
        Puzzles(pictures, **({"grid": 3} | options))


def test_puzzles_refuse_pictures_that_are_not_bytes(pictures):
    with pytest.raises(fr.FactorankError, match=r"pictures are bytes .* not torch.float32 \(3, 13, 13, 3\)"):
        Puzzles(pictures.float(), 3)
    with pytest.raises(
        fr.FactorankError, match="a crop moves a picture by up to 4 pixels; these have only 4"
    ):
        Puzzles(pictures[:, :4, :4], 2)


@pytest.mark.gpu
def test_puzzles_on_a_gpu_are_solved_by_their_orders():
    maker = Puzzles(PICTURES.train, 2, augment="none")
    order, pieces = maker(50, torch.Generator("cuda").manual_seed(0))
    known = {join(by_slot, 2).numpy().tobytes() for by_slot in cut(PICTURES.train, 2)}
    for slots, some in zip(order.cpu(), pieces.cpu(), strict=True):
        assert join(some[fr.inverse(slots)], 2).numpy().tobytes() in known
