"""Edge attention: mismatches against plain loops, and what the weights are blind to."""

import itertools

import pytest
import torch

from factorank.jigsaw.edges import HALF_LEVEL, EdgeAttention
from factorank.jigsaw.puzzles import cut


@pytest.mark.parametrize("piece", [1, 2, 5])
def test_fits_against_loops(piece, generator):
    torch.manual_seed(0)
    layer = EdgeAttention(piece, 3, 16).requires_grad_(False)
    layer.guess.add_(0.1 * torch.randn(layer.guess.shape))
    layer.metric.add_(0.1 * torch.randn(layer.metric.shape))
    pixels = torch.randn((4, piece, piece, 3), generator=generator, dtype=torch.float64)
    fits = layer.fits(pixels.float())
    depth = min(2, piece)
    for i, j in itertools.product(range(4), repeat=2):
        for axis, beside, back in ((0, 0, 1), (1, 2, 3)):
            if i == j:
                assert fits[beside, i, j] == fits[back, i, j] == -20
                continue
            after = before = 0
            for row in range(depth):
                ends = pixels[i, :, piece - 1 - row] if axis == 0 else pixels[i, piece - 1 - row]
                begins = pixels[j, :, row] if axis == 0 else pixels[j, row]
                after = after + float(layer.guess[axis, 0, row]) * ends.flatten()
                before = before + float(layer.guess[axis, 1, row]) * begins.flatten()
            difference = (after - before) @ layer.metric[axis].detach().double()
            expected = -(difference.square().mean() + HALF_LEVEL).log()
            assert fits[beside, i, j].item() == pytest.approx(expected.item(), abs=1e-4)
            assert fits[back, j, i] == fits[beside, i, j]


def test_neighbours_of_a_smooth_picture_are_found_at_the_start():
    """Before anything is learnt, each piece listens most to the one that belongs beside it."""
    y, x = torch.meshgrid(torch.linspace(0, 3, 24), torch.linspace(0, 3, 24), indexing="ij")
    picture = torch.stack([(x * y).sin(), (x + 0.5 * y * y).cos(), (x - 2 * y).sin()], -1)
    fits = EdgeAttention(6, 3, 8).fits(cut(picture, 4))
    slots = torch.arange(16).view(4, 4)
    for beside, (slot, neighbour) in {
        0: (slots[:, :-1], slots[:, 1:]),
        1: (slots[:, 1:], slots[:, :-1]),
        2: (slots[:-1], slots[1:]),
        3: (slots[1:], slots[:-1]),
    }.items():
        assert torch.equal(fits[beside].argmax(-1)[slot.flatten()], neighbour.flatten())


def test_brightness_and_contrast_change_nothing_in_who_is_heard(generator):
    layer = EdgeAttention(5, 3, 8)
    pixels = torch.randn((2, 9, 5, 5, 3), generator=generator)
    weights = []
    for shown in (pixels, 0.5 * pixels + 1.0):
        fit = 3 * layer.fits(shown)
        weights.append((fit - fit.logsumexp(-2, keepdim=True)).softmax(-1))
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-2, atol=1e-3)


def test_pieces_in_another_order_give_the_same_in_that_order(generator):
    torch.manual_seed(0)
    layer = EdgeAttention(5, 3, 16)
    pixels, tokens = (
        torch.randn((2, 9, 5, 5, 3), generator=generator),
        torch.randn((2, 9, 16), generator=generator),
    )
    added = layer(tokens, pixels)
    assert added.shape == (2, 9, 16)
    moved = torch.randperm(9, generator=generator)
    torch.testing.assert_close(
        layer(tokens[:, moved], pixels[:, moved]), added[:, moved], rtol=1e-4, atol=1e-5
    )
    added.sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in layer.parameters())


def test_identical_pieces_and_a_single_one_give_finite_numbers():
    for n in (1, 4):
        layer = EdgeAttention(3, 3, 8)
        added = layer(torch.zeros(n, 8), torch.zeros(n, 3, 3, 3))
        added.sum().backward()
        assert added.isfinite().all()
        assert all(weight.grad.isfinite().all() for weight in layer.parameters())
