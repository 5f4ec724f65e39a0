"""Which way up a picture stands: turns, sizes, the assembled picture, and what it is learned from."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from factorank.jigsaw.photographs import PhotographModel, way_up_training
from factorank.jigsaw.photographs.model import turned_whole
from factorank.jigsaw.photographs.puzzles import Task, make_puzzle, right_pieces, turn_pieces
from factorank.jigsaw.photographs.solving import Placed
from factorank.jigsaw.photographs.way_up import (
    GREY,
    READ,
    SIDE,
    WayUp,
    as_read,
    assembled,
    in_its_turns,
    read_size,
)
from factorank.jigsaw.photographs.way_up_training import (
    averaged,
    fitted_temperature,
    random_pictures,
    random_windows,
    shares_upright,
    train_way_up,
    way_up_loss,
    with_holes,
)
from tests.jigsaw.photographs.small import photograph, small_model

TINY = {"widths": (8, 12), "blocks": (1, 1)}


def tiny(seed=0):
    torch.manual_seed(seed)
    network = WayUp(**TINY).eval()
    for block in network.stages:  # which begin as if they were not there
        if hasattr(block, "second_norm"):
            torch.nn.init.ones_(block.second_norm.weight)
    return network


class Bright(WayUp):
    """Knows that the top is bright."""

    def forward(self, pictures):
        top, bottom = pictures.mean((1, -1)).tensor_split(2, -1)
        return top.mean(-1) - bottom.mean(-1)


def bright_above(count=64, seed=0):
    """Pictures that are brighter above, with texture, uint8 ``(count, 3, 64, 64)``."""
    chooser = torch.Generator().manual_seed(seed)
    shade = torch.linspace(190, 60, 64)[:, None]
    return (shade + 40 * torch.rand((count, 3, 64, 64), generator=chooser)).to(torch.uint8)


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_turned_picture_has_the_same_scores_in_another_order(mirrored):
    network = tiny()
    pictures = as_read(255 * torch.rand(2, 3, 64, 64))
    with torch.no_grad():
        logits = network.logits(pictures, mirrored=mirrored)
        for turn in range(4):
            turned = network.logits(torch.rot90(pictures, turn, (-2, -1)), mirrored=mirrored)
            assert torch.allclose(turned, logits.roll(turn, -1), atol=1e-5)
        assert logits.std(-1).min() > 1e-5, "turns are told apart"
        oblong = as_read(255 * torch.rand(2, 3, 56, 80))
        halves = network.logits(oblong, mirrored=mirrored)
        assert halves.shape == (2, 2)
        assert torch.allclose(
            network.logits(oblong.flip(-1, -2), mirrored=mirrored), halves.flip(-1), atol=1e-5
        )
        if mirrored:
            again = network.logits(pictures.flip(-1), mirrored=True)
            assert torch.allclose(again[:, ::2], logits[:, ::2], atol=1e-5)


def test_the_turns_of_a_picture_are_clockwise():
    picture = torch.arange(4).view(1, 2, 2)
    assert [turned.flatten().tolist() for turned in in_its_turns(picture)][1] == [2, 0, 3, 1]
    assert len(in_its_turns(torch.zeros(1, 2, 3))) == 2


@pytest.mark.parametrize("grid", [(1, 20), (2, 3), (6, 9), (9, 10), (20, 19), (5, 5)])
def test_pictures_are_read_at_about_one_size_and_only_square_ones_as_squares(grid):
    height, width = read_size(*grid)
    assert height % 8 == width % 8 == 0
    assert (height == width) == (grid[0] == grid[1])
    assert (height > width) == (grid[0] > grid[1])
    assert 0.8 < height * width / SIDE**2 < 1.3
    assert read_size(*grid[::-1]) == (width, height)


@pytest.mark.parametrize(("grid", "missing"), [((4, 4), 0.0), ((2, 4), 0.0), ((4, 4), 0.2)])
def test_the_assembled_picture_is_the_picture(grid, missing):
    picture = photograph(160, 160)
    puzzle = make_puzzle(picture, Task(grid, turned=True, missing=missing), torch.Generator().manual_seed(0))
    side = puzzle.truth.shape[1]
    whole = assembled(puzzle.pieces, puzzle.slots, puzzle.turns, grid)
    board = whole.unflatten(1, (grid[1], -1)).unflatten(0, (grid[0], -1)).transpose(1, 2).flatten(0, 1)
    for slot, shown in enumerate(board):
        if slot in puzzle.slots:
            exact = puzzle.truth[slot].float()
            assert shown.shape == exact.shape if side <= 48 else shown.shape[0] == 48
            assert abs(shown.mean() - exact.mean()) < 0.5
            if side <= 48:
                assert torch.equal(shown, exact)
        else:
            assert (shown == GREY).all()


@pytest.mark.parametrize(("grid", "turn"), [((3, 3), t) for t in range(4)] + [((2, 4), 0), ((2, 4), 2)])
def test_a_solution_is_turned_until_it_stands(grid, turn):
    """From the solution in any turn, whatever the turns of its pieces, the upright one is found."""
    picture = bright_above(1)[0].movedim(0, -1)
    puzzle = make_puzzle(picture, Task(grid, turned=True), torch.Generator().manual_seed(3))
    n = len(puzzle.pieces)
    facts = (0.0, 0.0), np.zeros((n, 2)), 0.0
    truth = Placed(puzzle.slots.numpy(), puzzle.turns.numpy(), 1.0, np.zeros(n), *facts)
    lying = turned_whole(truth, grid, turn)
    model = replace(small_model(), way_up=Bright(**TINY).eval())
    upright = model._upright(puzzle.pieces, lying, grid)
    assert right_pieces(puzzle, upright).all()
    assert 0.25 <= upright.upright <= 1
    assert upright.probability == lying.probability * upright.upright
    left = small_model()._upright(puzzle.pieces, lying, grid)
    assert left.upright is None
    assert right_pieces(puzzle, left).all() == (turn == 0), "nothing is turned without the network"


def test_turned_puzzles_are_solved_upright():
    model = replace(small_model(), way_up=Bright(**TINY).eval())
    pieces = bright_above(1)[0].movedim(0, -1)[:, :32].unflatten(0, (2, 32))
    (placed,) = model.solve([turn_pieces(pieces, torch.tensor([1, 3]))], (2, 1), turned=True)
    assert sorted(placed.slots) == [0, 1]


def test_a_model_is_written_with_the_network_and_read_again(tmp_path):
    model = replace(small_model(), way_up=tiny())
    model.save(tmp_path)
    again = PhotographModel.load(tmp_path)
    assert again.way_up is not None
    assert again.parameters == model.parameters > small_model().parameters
    for name, weight in again.way_up.state_dict().items():
        wanted = model.way_up.state_dict()[name]
        assert torch.equal(weight, wanted.bfloat16().float() if wanted.is_floating_point() else wanted)
    small_model().save(tmp_path)
    assert PhotographModel.load(tmp_path).way_up is None


def test_the_size_of_the_network():
    assert PhotographModel.load().parameters <= 4_000_000  # what is shipped
    assert replace(PhotographModel.load(), way_up=WayUp()).parameters <= 4_000_000


def test_windows_stay_in_the_picture_and_treat_its_sides_alike():
    chooser = torch.Generator().manual_seed(0)
    for size in ((64, 64), (56, 80)):
        windows = random_windows(4000, size, chooser)
        straight = windows[(windows[:, 0, 1] == 0) & (windows[:, 1, 0] == 0)]
        assert 0.4 < len(straight) / 4000 < 0.6
        assert (straight[:, :, :2].abs().sum(-1) + straight[:, :, 2].abs()).max() < 1 + 1e-5
        assert 0.45 < (straight[:, 0, 0] < 0).float().mean() < 0.55
        assert (straight[:, 1, 1] > 0).all(), "no picture stands on its head"
        assert windows[:, :, 2].mean(0).abs().max() < 0.02
    square = random_windows(4000, (64, 64), chooser)
    wide, high = square[:, 0, 0].abs().log().mean(), square[:, 1, 1].log().mean()
    assert abs(wide - high) < 0.02


def test_pictures_to_learn_from_stand_as_their_squares_do(monkeypatch):
    monkeypatch.setattr(way_up_training, "with_holes", lambda pictures, chooser: pictures)  # they are grey
    squares, chooser, network = bright_above(), torch.Generator().manual_seed(0), Bright(**TINY)
    shapes = set()
    for _ in range(12):
        pictures = random_pictures(squares, 8, chooser, oblong=0.5)
        assert pictures.min() >= 0
        assert pictures.max() <= 255
        shapes.add(tuple(pictures.shape[-2:]))
        assert (network.logits(as_read(pictures)).argmax(-1) == 0).all()
    assert (SIDE, SIDE) in shapes
    assert len(shapes) > 2
    assert all(height * width < 1.3 * SIDE**2 for height, width in shapes)


def test_a_quarter_of_the_pictures_has_holes():
    pictures = with_holes(torch.zeros(2000, 3, 16, 16), torch.Generator().manual_seed(1))
    assert set(pictures.unique().tolist()) == {0.0, GREY}
    holed = (pictures != 0).flatten(1).any(1).float().mean()
    assert 0.1 < holed < 0.3
    assert (pictures == GREY).float().mean() < 0.06


def test_what_is_learned_and_that_it_goes_on_where_it_stopped(tmp_path):
    """Which end is bright is learned in a few steps; then the state of a file is gone on from."""
    squares, kept = bright_above(), []
    torch.manual_seed(0)
    network = WayUp(**TINY, dropout=0.0)
    options = {"seconds": 600, "batch": 16, "lr": 1e-2}
    before = shares_upright(network, squares)
    assert set(before) == {"plain", "mirrored", "half", "nats"}
    state = train_way_up(network, squares, **options, max_steps=60, ema=0.9, checkpoint=kept.append)
    assert state["step"] == kept[-1]["step"] == 60
    after = shares_upright(averaged(network, state), squares)
    assert after["mirrored"] > 0.9
    assert after["nats"] < before["nats"]
    torch.save(state, tmp_path / "state.pt")
    read = torch.load(tmp_path / "state.pt", weights_only=True)
    other = WayUp(**TINY)
    again = train_way_up(other, squares, **options, max_steps=1, state=read)
    assert again["step"] == 61
    assert again["seconds"] > read["seconds"]
    assert float(again["moments"]["begin.weight:step"]) == 61
    finished = train_way_up(other, squares, **(options | {"seconds": 0.0}), state=again)
    assert finished["step"] == 61


def test_every_weight_has_a_gradient():
    network = tiny().train()
    loss, share = way_up_loss(network, random_pictures(bright_above(), 4, torch.Generator().manual_seed(0)))
    loss.backward()
    assert 0 <= share <= 1
    assert all(weight.grad is not None for weight in network.parameters())
    decay = way_up_training._groups(network, 0.1)
    assert sum(len(group["params"]) for group in decay) == len(list(network.parameters()))


def test_only_square_pictures_go_through_the_compiled_loss(monkeypatch):
    """They have one shape; for each of the others the compiler would begin again."""
    shapes = []

    def compiled(loss, **options):
        return lambda network, pictures: [shapes.append(pictures.shape[-2:]), loss(network, pictures)][1]

    monkeypatch.setattr(torch, "compile", compiled)
    squares, taken = bright_above(), []
    monkeypatch.setattr(
        way_up_training,
        "random_pictures",
        lambda *given: taken.append(random_pictures(*given, oblong=0.5)) or taken[-1],
    )
    train_way_up(WayUp(**TINY), squares, seconds=600, batch=2, max_steps=8, compiled=True)
    square = [pictures.shape[-2:] for pictures in taken if pictures.shape[-2] == pictures.shape[-1]]
    assert shapes == square
    assert 0 < len(square) < 8


def test_the_temperature_makes_probabilities_of_logits():
    """Of logits that are right three times in four and always as sure, it makes three quarters."""

    class Sure(WayUp):
        def logits(self, pictures, *, mirrored=False):
            assert pictures.shape[-2:] == (READ, READ)
            turns = (torch.arange(len(pictures)) % 4 == 0).long()
            return 3.0 * torch.nn.functional.one_hot(turns, 4).float()

    network = Sure(**TINY)
    network.options["temperature"] = fitted_temperature(
        network, torch.zeros(64, 3, 16, 16, dtype=torch.uint8)
    )
    assert 3 / network.options["temperature"] == pytest.approx(math.log(9), abs=0.05)  # 3/4 against 1/12
    assert network.turns_of(torch.zeros(READ, READ, 3)) == (1, pytest.approx(0.75, abs=0.01))
