"""``factorank jigsaw`` from end to end: train, eval and solve at a tiny size, and what they refuse."""

import json

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_image

import factorank as fr
from factorank.experiments import jigsaw
from factorank.jigsaw import new_model, setting
from tests.jigsaw.small import SMALL


@pytest.fixture
def folder(tmp_path):
    """A folder with a few small pictures."""
    chooser = np.random.default_rng(0)
    (tmp_path / "pictures").mkdir()
    for i in range(12):
        pixels = chooser.integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{i}.png")
    return tmp_path / "pictures"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(jigsaw, "puzzles_per_second", lambda *arguments, **options: 1.0)


def test_train_eval_and_solve(folder, run, tmp_path, monkeypatch):
    train = ["jigsaw", "train", "--grid", 2, "--width", 16, "--depth", 1, "--batch-size", 8, "--steps", 3]
    monkeypatch.setattr("sys.argv", ["factorank", *map(str, train), "--pictures", "pictures"])
    code, out, err = run(*train, "--pictures", folder)
    assert code == 0, err
    place = tmp_path / "runs" / "jigsaw" / "default-2x2-lehmer-masked-0"
    assert "default-2x2-lehmer-masked-0: 3 steps in " in out
    assert "; finished\n" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "written to runs/jigsaw: default-2x2-lehmer-masked-0, jigsaw.jsonl" in out
    (row,) = map(json.loads, (tmp_path / "runs" / "jigsaw" / "jigsaw.jsonl").read_text().splitlines())
    assert (row["grid"], row["width"], row["trained_steps"], row["puzzles"]) == (2, 16, 3, 1)
    expected = "factorank jigsaw train --grid 2 --width 16 --depth 1 --batch-size 8 --steps 3"
    assert row["command"] == f"{expected} --pictures pictures"
    assert row["data"] == "pictures"

    code, out, err = run(*train, "--pictures", folder)
    assert "finished already, nothing is trained" in out
    assert "To train longer: more --steps, and another --label or --out" in out
    code, out, err = run(*train, "--pictures", folder, "--split", "held_out")
    assert code == 0, err
    (row,) = map(json.loads, (place / "held_out.jsonl").read_text().splitlines())
    assert (row["split"], row["trained_steps"]) == ("held_out", 3)
    code, out, err = run(*train[:-1], 4, "--pictures", folder)
    assert code == 2
    assert "holds a run with another steps; choose another --label or --out, or say --steps 3" in err

    code, out, err = run(
        "jigsaw", "eval", place, "--pictures", folder, "--split", "held_out", "--out", "e.jsonl"
    )
    assert code == 0, err
    assert "2×2, lehmer, masked: 1 puzzle, in percent" in out
    (row,) = map(json.loads, (tmp_path / "e.jsonl").read_text().splitlines())
    assert (row["split"], row["label"], row["batch_size"]) == ("held_out", "default", 8)

    code, out, err = run("jigsaw", "solve", folder / "3.png", "--weights", place)
    assert code == 0, err
    assert "3.png, 2×2: " in out
    assert "pieces right, probability of the solution" in out
    assert (tmp_path / "3-solved.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def flower(tmp_path):
    """A photograph on its side, as a phone stores one that was held upright."""
    photograph = Image.fromarray(load_sample_image("flower.jpg")).resize((320, 214))
    exif = photograph.getexif()
    exif[0x0112] = 6
    lying = photograph.transpose(Image.Transpose.ROTATE_90)
    lying.save(tmp_path / "flower.jpg", exif=exif, quality=95)
    return tmp_path / "flower.jpg"


def test_solve_a_photograph_at_any_grid(flower, run, tmp_path):
    code, out, err = run("jigsaw", "solve", flower, "--grid", "3x5", "--steps", "a.gif")
    assert code == 0, err
    assert "flower.jpg, 3×5: all 15 pieces right, probability of the solution " in out
    assert "drawn to flower-solved.png\nrevealed step by step in a.gif" in out
    assert size_of(tmp_path / "flower-solved.png") == (320, 213)
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames > 15
    code, out, err = run("jigsaw", "solve", flower, "--grid", "3", "--turned", "--out", "b.jpg")
    assert code == 0, err
    assert size_of(tmp_path / "b.jpg") == (213, 213)


def size_of(path):
    with Image.open(path) as image:
        return image.size


def test_solve_pieces_in_files(flower, run, tmp_path):
    """Their names do not help, and one is missing."""
    photograph = np.asarray(Image.open(flower).convert("RGB").transpose(Image.Transpose.ROTATE_270))
    (tmp_path / "puzzle").mkdir()
    for name, (y, x) in zip("hbdagcfe", list(np.ndindex(3, 3))[1:], strict=True):
        part = photograph[70 * y : 70 * (y + 1), 100 * x : 100 * (x + 1)]
        Image.fromarray(part).save(tmp_path / "puzzle" / f"{name}.png")
    code, out, err = run("jigsaw", "solve", "--pieces", "puzzle", "--grid", "3")
    assert code == 0, err
    assert "puzzle, 3×3: 1 of 9 slots empty, probability of the solution " in out
    drawn = np.asarray(Image.open(tmp_path / "puzzle-solved.png"))
    assert drawn.shape == (210, 300, 3)
    assert (drawn[:70, :100] == 128).all()
    Image.new("RGB", (9, 9)).save(tmp_path / "puzzle" / "z.png")
    code, _, err = run("jigsaw", "solve", "--pieces", "puzzle", "--grid", "3")
    assert code == 2
    assert "z.png: a piece of 9×9 pixels, but most have 100×70; all pieces have one size" in err


def test_eval_the_model_for_photographs(flower, run, tmp_path):
    (tmp_path / "some").mkdir()
    flower.rename(tmp_path / "some" / "flower.jpg")
    code, out, err = run(
        "jigsaw", "eval", "--pictures", "some", "--grid", "3x2", "--scrambles", "2", "--out", "rows.jsonl"
    )
    assert code == 0, err
    assert "3×2: 2 puzzles, in percent; identical pieces are equal" in out
    assert "model loaded in " in out
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["method"] for row in rows] == ["factorank", "factorank", "edge-compatibility"]
    assert (rows[0]["grid"], rows[0]["columns"], rows[0]["puzzles"], rows[0]["data"]) == (3, 2, 2, "some")
    assert rows[0]["warm_seconds"] > 0


def test_a_run_that_its_time_ends_is_finished(folder, run):
    train = ["jigsaw", "train", "--grid", 2, "--width", 16, "--depth", 1, "--batch-size", 8]
    code, out, err = run(*train, "--max-seconds", 0.2, "--pictures", folder)
    assert code == 0, err
    assert "finished: its 0.2 seconds are up" in out
    assert "same c" not in out
    assert "To train longer: more --max-seconds" in out
    _, again, _ = run(*train, "--seconds", 0.2, "--pictures", folder)
    assert "finished already, nothing is trained" in again


def test_a_run_goes_on_with_the_pictures_that_it_has_seen(folder, run):
    train = ["jigsaw", "train", "--grid", 2, "--width", 16, "--depth", 1, "--batch-size", 8, "--steps", 3]
    assert run(*train, "--pictures", folder)[0] == 0
    Image.fromarray(np.zeros((9, 9, 3), dtype=np.uint8)).save(folder / "5.png")
    code, _, err = run(*train, "--pictures", folder)
    assert code == 2
    assert "holds a run on other pictures (pictures, 12 pictures, " in err


def test_a_refused_setting_leaves_nothing(folder, run, tmp_path):
    train = ["jigsaw", "train", "--grid", 2, "--width", 16, "--depth", 1, "--batch-size", 8]
    for wrong in (["--steps", "-3"], ["--lr", "-1"], ["--heads", "3"]):
        assert run(*train, "--pictures", folder, *wrong)[0] == 2
        assert not (tmp_path / "runs").exists()


def test_a_baseline_is_scored_again(folder, run, tmp_path):
    train = ["jigsaw", "train", "--preset", "gumbel-sinkhorn", "--grid", 2, "--width", 16, "--depth", 1]
    code, _, err = run(*train, "--batch-size", 8, "--steps", 2, "--pictures", folder)
    assert code == 0, err
    place = tmp_path / "runs" / "jigsaw" / "gumbel-sinkhorn-2x2-gumbel-sinkhorn-0"
    code, out, err = run("jigsaw", "eval", place, "--pictures", folder)
    assert code == 0, err
    assert "2×2, gumbel-sinkhorn: 1 puzzle, in percent" in out
    (place / "setting.json").unlink()
    code, _, err = run("jigsaw", "eval", place, "--pictures", folder)
    assert code == 2
    assert "has no setting.json, which says how its baseline was trained" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve", "none.png"], "there is no picture none.png"),
        (["solve", "picture.png", "--grid", "1"], "at least 2 pieces in a row, not --grid 1"),
        (["solve", "picture.png", "--out", "no/x.png"], "there is no folder no for --out no/x.png"),
        (["solve", "text.png"], "text.png: not a picture that can be read"),
        (["solve", "picture.png", "--weights", "."], ". is not a run, but holds some: plain, riffle, w"),
        (["eval", "."], ". is not a run, but holds some: plain, riffle, w"),
        (["solve", "picture.png", "--grid", "21"], "a puzzle has 2 to 400 pieces, not 21×21"),
        (["solve", "picture.png", "--grid", "axb"], "a number such as 8, or rows and columns such as 6x9"),
        (
            ["solve", "picture.png", "--weights", "w", "--grid", "2x3"],
            "solves square puzzles, not --grid 2x3",
        ),
        (["solve"], "give a picture, or the --pieces of a puzzle in a folder"),
        (["solve", "picture.png", "--pieces", "."], "give a picture, or the --pieces of a puzzle"),
        (["solve", "--pieces", "none"], "there is no folder none"),
        (["solve", "--pieces", "w"], "w has no pictures"),
        (["solve", "picture.png", "--steps", "a.png"], "the picture is written as .gif, not --steps a.png"),
        (["eval", "--grid", "2x3"], "models of one grid solve square puzzles, not --grid 2x3"),
        (["eval", "--grid", "2", "--turned"], "are for the model for photographs"),
        (["eval", "--grid", "2", "--pictures", ".", "--scrambles", "0"], "--scrambles is at least 1, not 0"),
        (["solve", "picture.png", "--weights", "w", "--grid", "3"], "solves 2×2 puzzles, not 3×3"),
        (["solve", "picture.png", "--weights", "nowhere"], "nowhere does not hold a factorank model: "),
        (["solve", "picture.png", "--weights", "plain"], "the model in plain does not solve jigsaw puzzles"),
        (
            ["solve", "tiny.png", "--weights", "w"],
            "tiny.png: the picture has 3 pixels on its shorter side, too",
        ),
        (["solve", "text.png", "--weights", "w"], "text.png: not a picture that can be read"),
        (
            ["solve", "picture.png", "--weights", "w", "--nfe", "2"],
            "others than --nfe 1 are for those trained with --masks any",
        ),
        (["eval"], "give the folder of a run, or --grid for a shipped model"),
        (["eval", "w", "--nfe", "7"], "--nfe is from 1 to 4 for this grid, not 7"),
        (["eval", "w", "--nfe", "2"], "others than --nfe 1 are for those trained with --masks any"),
        (["train", "--nfe", "2"], "others than --nfe 1 are for those trained with --masks any"),
        (["train", "--grid", "50"], "a grid from 1 to 32, not 50"),
        (["train", "--augment", "blur"], "augment is 'none' or some of crop, flip, light"),
        (["train", "--most", "0"], "--most is at least 1, not 0"),
        (["train", "--steps", "0"], "steps is 1 or more, not 0"),
        (["train", "--watch-every", "0"], "--watch-every is at least 1, not 0"),
        (["train", "--max-seconds", "-1"], "seconds is above 0, not -1.0"),
        (["train", "--lr", "nan"], "lr is above 0, not nan"),
        (["train", "--ema", "1"], "ema is from 0 to below 1, not 1.0"),
        (["train", "--hints", "-1"], "hints is 0 or more, not -1.0"),
        (["train", "--width", "0"], "width is 1 or more, not 0"),
        (["train", "--seed", str(2**63)], "seed is from 0 to 2**63 - 1, not 9223372036854775808"),
        (["train", "--label", "../a"], "--label is the name of a folder, without slashes, not '../a'"),
        (["train", "--nfe"], "--nfe takes one number of evaluations or more"),
        (["train", "--objective", "autoregressive", "--nfe", "2"], "--nfe is for masked models"),
        (["train", "--preset", "riffle-diffusion", "--nfe", "2"], "--nfe is for masked models"),
        (["train", "--preset", "riffle-diffusion", "--code", "lehmer"], "riffle-diffusion has no code"),
        (["eval", "w", "--beam", "4"], "--beam is for autoregressive models and riffle diffusion"),
        (["solve", "picture.png", "--seed", "-1"], "--seed is from 0 to 2**63 - 1, not -1"),
        (["solve", "picture.png", "--out", "picture.png"], "picture.png is the picture itself"),
        (["solve", "picture.png", "--out", "."], "--out . is a folder"),
        (["solve", "picture.png", "--out", "a.svg"], "written as .png, .jpg, .webp, .pdf, not --out a.svg"),
        (["solve", "picture.png", "--weights", "riffle"], "holds a baseline, riffle-diffusion"),
    ],
)
def test_what_the_command_refuses(arguments, message, run, tmp_path):
    new_model(setting(**SMALL)).save_pretrained(tmp_path / "w")
    new_model(setting("riffle-diffusion", **SMALL)).save_pretrained(tmp_path / "riffle")
    fr.PermutationModel(4, "lehmer", width=8, depth=1, heads=1).save_pretrained(tmp_path / "plain")
    Image.fromarray(np.zeros((20, 30, 3), dtype=np.uint8)).save(tmp_path / "picture.png")
    Image.fromarray(np.zeros((3, 30, 3), dtype=np.uint8)).save(tmp_path / "tiny.png")
    (tmp_path / "text.png").write_text("text")
    code, _, err = run("jigsaw", *arguments)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1
