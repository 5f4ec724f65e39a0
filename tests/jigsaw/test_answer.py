"""One puzzle: pieces or a picture in, slots, probability and pictures out."""

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image

import factorank as fr
from factorank.data.pictures import resized, square
from factorank.jigsaw import Answer, cut, join, load, new_model, setting, shipped_models, solve
from tests.jigsaw.small import SMALL


@pytest.fixture
def weights(tmp_path):
    """A folder with an untrained 2×2 model."""
    new_model(setting(**SMALL)).save_pretrained(tmp_path / "weights")
    return tmp_path / "weights"


@pytest.mark.parametrize("direction", ["slot-of-piece", "piece-of-slot"])
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_panels_are_cut_from_the_picture_itself(direction, objective, tmp_path):
    """Not from the small one that the model sees: every piece of the panels is one of the picture's."""
    pixels = np.random.default_rng(0).integers(0, 256, (90, 130, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    torch.manual_seed(0)
    model = new_model(setting(**(SMALL | {"direction": direction, "objective": objective}))).eval()
    counts = set()
    for seed in range(12):
        answer = solve(tmp_path / "a.png", model=model, seed=seed)
        assert np.array_equal(answer.truth, pixels[:, 20:110])
        parts = [
            cut(torch.from_numpy(panel), 2) for panel in (answer.scrambled, answer.picture, answer.truth)
        ]
        for part in parts:
            assert sorted(map(bytes, part.flatten(1).numpy())) == sorted(
                map(bytes, parts[2].flatten(1).numpy())
            )
        wrong = [slot for slot in range(4) if not torch.equal(parts[1][slot], parts[2][slot])]
        assert answer.wrong == wrong
        assert 0 < answer.probability <= 1
        counts.add(len(wrong))
        again = solve(tmp_path / "a.png", model=model, seed=seed)
        assert np.array_equal(again.picture, answer.picture)
    assert len(counts) > 1


def test_the_solution_is_that_of_the_model(weights, tmp_path):
    """A picture of the size that the model knows: the panel is what its mode says."""
    pixels = np.random.default_rng(1).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    model = load(2, weights)
    answer = solve(tmp_path / "a.png", model=model)
    pieces = cut(torch.from_numpy(answer.scrambled), 2)
    law = model.distribution(pieces, nfe=1)
    assert torch.equal(join(pieces[fr.inverse(law.mode)], 2), torch.from_numpy(answer.picture))
    assert answer.probability == pytest.approx(law.log_prob(law.mode).exp().item(), rel=1e-4)


def test_a_plain_picture_is_always_solved(weights, tmp_path):
    Image.fromarray(np.full((50, 50), 9, dtype=np.uint8)).save(tmp_path / "a.png")
    answer = solve(tmp_path / "a.png", model=load(2, weights))
    assert answer.wrong == []
    assert answer.summary.startswith("all 4 pieces right, probability of the solution ")


def test_large_and_small_pictures(weights, tmp_path):
    model = load(2, weights)
    Image.fromarray(np.zeros((1501, 2000, 3), dtype=np.uint8)).save(tmp_path / "large.png")
    assert solve(tmp_path / "large.png", model=model).truth.shape == (1024, 1024, 3)
    Image.fromarray(np.zeros((5, 7, 3), dtype=np.uint8)).save(tmp_path / "small.png")
    assert solve(tmp_path / "small.png", model=model).truth.shape == (4, 4, 3)


def test_an_inline_model_that_leaves_the_permutations(tmp_path):
    model = new_model(setting(**(SMALL | {"code": "inline", "masks": "any"}))).eval()
    with torch.no_grad():
        model.network.head.bias[:, 1] = 100.0
    Image.fromarray(np.zeros((40, 40, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    assert solve(tmp_path / "a.png", model=model).wrong == []  # at one evaluation slots are assigned
    with pytest.raises(fr.FactorankError, match="uses a slot twice: inline codes can leave"):
        solve(tmp_path / "a.png", model=model, nfe=2)


@pytest.mark.parametrize(("name", "most"), [("china.jpg", 4), ("flower.jpg", 5)])
def test_the_models_that_come_with_the_package_solve_photographs(name, most, tmp_path):
    Image.fromarray(load_sample_image(name)).save(tmp_path / "a.png")
    assert list(shipped_models()) == [2, 3, 4, 5]
    for grid in range(2, most + 1):  # in 25 pieces of the first there are some of clear sky
        model = load(grid)
        assert (model.n, model.objective) == (grid**2, "masked")
        for seed in range(3):
            answer = solve(tmp_path / "a.png", model=model, seed=seed)
            assert answer.wrong == []


def test_the_summary():
    pieces = torch.arange(4).byte().view(4, 1, 1, 1).expand(4, 2, 2, 3)
    truth = torch.tensor([0, 1, 2, 3])
    answer = Answer((2, 2), pieces, torch.tensor([0, 2, 1, 3]), 0.5, truth)
    assert answer.wrong == [1, 2]
    assert answer.summary == "2 of 4 pieces right, probability of the solution 50.0%"
    for share, percent in ((0.5, "50.0%"), (0.99996, "over 99.9%"), (2e-7, "below 0.1%")):
        assert Answer((2, 2), pieces, truth, share).summary == f"probability of the solution {percent}"
    turned = Answer((2, 2), pieces, truth, 0.5, turns=torch.tensor([0, 1, 2, 3])).summary
    assert turned == "probability of the solution up to a turn of the whole 50.0%"
    known = Answer((2, 2), pieces, truth, 0.5, turns=torch.tensor([0, 1, 2, 3]), upright=0.9).summary
    assert known == "probability of the solution 50.0%"
    with pytest.raises(fr.FactorankError, match="the truth is known only of a puzzle that was made of a pic"):
        Answer((2, 2), pieces, truth, 0.5).wrong  # noqa: B018


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("size", [(20, 20), (64, 64), (9, 30), (6, 5)])
def test_pieces_of_any_size_are_put_together_at_their_own_resolution(kind, size):
    """A smooth picture in pieces that are larger, smaller or of another shape than the model's."""
    height, width = 3 * size[0], 3 * size[1]
    y, x = np.mgrid[0:height, 0:width]
    drawing = np.stack([230 * x / width, 230 * y / height, 120 + 0 * x], -1).astype(np.uint8)
    by_slot = drawing.reshape(3, size[0], 3, size[1], 3).swapaxes(1, 2).reshape(9, *size, 3)
    slots = np.random.default_rng(0).permutation(9)
    pieces = kind(by_slot[slots])
    if isinstance(pieces, np.ndarray):
        pieces = pieces[::-1].copy()[::-1]  # not in one block of memory
        pieces.flags.writeable = False
    answer = fr.jigsaw.solve(pieces, grid=(3, 3))
    assert answer.slots.tolist() == slots.tolist()
    assert answer.slots.dtype == torch.int64
    assert answer.picture.dtype == np.uint8
    assert np.array_equal(answer.picture, drawing)
    assert 0.5 < answer.probability <= 1
    assert answer.grid == (3, 3)


def test_pieces_and_a_picture_of_them_have_one_answer(tmp_path):
    photograph = load_sample_image("flower.jpg")[:320, :320]
    Image.fromarray(photograph).save(tmp_path / "a.png")
    answer = fr.jigsaw.solve(str(tmp_path / "a.png"), grid=4, seed=3)
    again = fr.jigsaw.solve(answer.pieces, grid=4)
    assert torch.equal(answer.slots, again.slots)
    assert answer.probability == pytest.approx(again.probability, abs=0.1)
    assert np.array_equal(answer.truth, photograph)
    assert not np.array_equal(answer.scrambled, fr.jigsaw.solve(tmp_path / "a.png", grid=4, seed=4).scrambled)


def test_a_picture_is_resized_whole_and_then_cut(tmp_path):
    """Its answer is that for the pieces of the small picture, which the model reads as they are."""
    photograph = load_sample_image("china.jpg")
    Image.fromarray(photograph).save(tmp_path / "a.png")
    model = load(5)
    answer = solve(tmp_path / "a.png", model=model, seed=1)
    assert answer.pieces.shape[1:] == (85, 85, 3)
    small = torch.from_numpy(resized(square(photograph), 5 * model.context.piece))
    again = solve(cut(small, 5)[answer.true_slots], model=model)
    assert torch.equal(again.slots, answer.slots)
    assert again.probability == answer.probability


@pytest.mark.parametrize(
    ("pieces", "grid", "message"),
    [
        (np.zeros((10, 8, 8, 3), np.uint8), 3, "a 3×3 puzzle has 9 pieces, not 10"),
        (np.zeros((1, 8, 8, 3), np.uint8), 3, "a 3×3 puzzle has 9 pieces, not 1"),
        (np.zeros((9, 8, 1, 3), np.uint8), 3, "a piece has at least 2×2 pixels, not 8×1"),
        (np.zeros((9, 8, 8, 3), np.uint8), 21, "a puzzle has 2 to 400 pieces, not 21×21"),
        (np.zeros((9, 8, 8, 3), np.uint8), (0, 9), "a puzzle has 2 to 400 pieces, not 0×9"),
        (
            np.zeros((9, 8, 8, 3)),
            3,
            r"pieces uint8 \(n, height, width, 3\), not float64 \(9, 8, 8, 3\)",
        ),
        (np.zeros((9, 8, 8), np.uint8), 3, r"not uint8 \(9, 8, 8\)"),
        (np.zeros((9, 8, 8, 3), np.uint8), None, "solved with a grid or a model"),
        (None, 3, r"not object \(\)"),
    ],
)
def test_what_solve_refuses(pieces, grid, message, weights):
    with pytest.raises(fr.FactorankError, match=message):
        fr.jigsaw.solve(pieces, grid)
    with pytest.raises(fr.FactorankError, match="the model solves 2×2 puzzles, not 3×3"):
        fr.jigsaw.solve(pieces, 3, model=load(2, weights))


def test_what_else_solve_refuses(weights, tmp_path):
    with pytest.raises(fr.FactorankError, match="pieces that may be turned are square, not 8×9"):
        solve(np.zeros((9, 8, 9, 3), np.uint8), 3, turned=True)
    with pytest.raises(fr.FactorankError, match="the model for photographs takes one evaluation"):
        solve(np.zeros((9, 8, 8, 3), np.uint8), 3, nfe=2)
    with pytest.raises(fr.FactorankError, match="a model of one grid solves no puzzles of turned pieces"):
        solve(np.zeros((4, 8, 8, 3), np.uint8), 2, turned=True, model=load(2, weights))
    Image.fromarray(np.zeros((9, 30, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    with pytest.raises(fr.FactorankError, match="the picture has 30×9 pixels, too few for 5×5"):
        solve(tmp_path / "a.png", 5)


@pytest.mark.parametrize("grid", [(2, 2), (4, 4), (3, 5), (6, 9)])
def test_a_photograph_is_solved_at_any_grid(grid, tmp_path):
    """The whole of it but for a rim, at its own resolution."""
    photograph = load_sample_image("flower.jpg")
    Image.fromarray(photograph).save(tmp_path / "a.png")
    answer = fr.jigsaw.solve(tmp_path / "a.png", grid, seed=2)
    assert answer.wrong == []
    assert answer.grid == grid
    height, width = (length // count * count for length, count in zip(photograph.shape, grid, strict=False))
    top, left = (photograph.shape[0] - height) // 2, (photograph.shape[1] - width) // 2
    assert np.array_equal(answer.picture, photograph[top : top + height, left : left + width])
    again = fr.jigsaw.solve(answer.pieces.numpy(), grid)
    assert torch.equal(again.slots, answer.slots)
    assert again.probability == answer.probability
    assert torch.equal(fr.jigsaw.solve(photograph, grid, seed=2).pieces, answer.pieces)
    assert answer.piece_probability.shape == (grid[0] * grid[1],)


def test_turned_pieces_are_put_together_up_to_a_turn_of_the_whole(tmp_path):
    Image.fromarray(load_sample_image("flower.jpg")).save(tmp_path / "a.png")
    for grid in ((3, 3), (2, 4)):
        answer = fr.jigsaw.solve(tmp_path / "a.png", grid, turned=True, seed=1)
        assert len(answer.true_turns.unique()) > 2
        ways = [np.rot90(answer.picture, turn) for turn in range(4)]
        assert any(np.array_equal(way, answer.truth) for way in ways)


def test_slots_of_missing_pieces_stay_empty(tmp_path):
    Image.fromarray(load_sample_image("flower.jpg")).save(tmp_path / "a.png")
    whole = fr.jigsaw.solve(tmp_path / "a.png", 4, seed=1)
    answer = fr.jigsaw.solve(whole.pieces[:-2], 4)
    assert torch.equal(answer.slots, whole.slots[:-2])
    assert answer.empty == sorted(whole.slots[-2:].tolist())
    row, column = divmod(answer.empty[0], 4)
    height, width = answer.pieces.shape[1:3]
    assert (
        answer.picture[row * height : (row + 1) * height, column * width : (column + 1) * width] == 128
    ).all()
    assert answer.summary.startswith("2 of 16 slots empty, probability of the solution ")
