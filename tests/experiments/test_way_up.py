"""Packs of small pictures, and training from them."""

import numpy as np
import pytest
import torch
from PIL import Image

from factorank.experiments import way_up_pictures
from factorank.experiments.way_up import WINDOWS, scores_by_size, squares_of, train
from factorank.experiments.way_up_pictures import (
    NO_WAY_UP,
    make_packs,
    pack_photographs,
    pack_thumbnails,
    read_packs,
    unsquashed,
    windows,
    write_pack,
)
from factorank.jigsaw import PhotographModel
from factorank.jigsaw.photographs.way_up import WayUp
from tests.jigsaw.photographs.small import photograph, small_model


def drawn(folder, count, height, width):
    """Smooth pictures as files, and what they show."""
    folder.mkdir()
    pictures = [photograph(height, width, seed).numpy() for seed in range(count)]
    paths = [folder / f"{seed}.png" for seed in range(count)]
    for path, picture in zip(paths, pictures, strict=True):
        Image.fromarray(picture).save(path)
    return paths, pictures


def apart(one, other):
    return np.abs(one.astype(float) - other).mean()


@pytest.fixture
def packs(tmp_path):
    thumbnails, _ = drawn(tmp_path / "thumbnails", 20, 64, 64)
    photographs, _ = drawn(tmp_path / "photographs", 3, 150, 100)
    write_pack(tmp_path / "a.npz", {"thumbnails": pack_thumbnails(thumbnails, quality=90)})
    groups = {
        "photographs": pack_photographs(photographs[:1]),
        "held-photographs": pack_photographs(photographs[1:]),
        "thumbnails": pack_thumbnails(thumbnails[:1]),
    }
    write_pack(tmp_path / "b.npz", groups)
    return [tmp_path / "a.npz", tmp_path / "b.npz"]


def test_packed_pictures_come_back_upright(tmp_path, packs):
    """Each thumbnail is one that was packed, and no turn of it is nearer."""
    pictures = [photograph(64, 64, seed).numpy() for seed in range(20)]
    groups = read_packs(packs)
    assert {name: len(group) for name, group in groups.items()} == {
        "thumbnails": 21,
        "photographs": 1,
        "held-photographs": 2,
    }
    found = set()
    for thumbnail in groups["thumbnails"][:20]:
        every = [[apart(thumbnail, np.rot90(picture, turn)) for turn in range(4)] for picture in pictures]
        which, turn = np.unravel_index(np.argmin(every), (20, 4))
        assert turn == 0
        assert every[which][0] < 6
        found.add(which)
    assert len(found) == 20
    with np.load(packs[0]) as pack:
        assert len(set(pack["thumbnails/turns"].tolist())) == 4, "they are stored in every turn"
    (whole,) = groups["photographs"]
    assert whole.shape == (150 * 128 // 150, round(100 * 128 / 150), 3) or whole.shape[1] == 100
    exact = np.array(Image.fromarray(photograph(150, 100, 0).numpy()).resize(whole.shape[1::-1]))
    assert apart(whole, exact) < 6


def test_windows_are_squares_of_the_photograph():
    picture = photograph(128, 200).numpy()
    found = windows((picture, 5, 0))
    assert found.shape == (5, 96, 96, 3)
    middle = np.array(Image.fromarray(picture[:, 36:164]).resize((96, 96), Image.Resampling.LANCZOS))
    assert np.abs(found[0].astype(int) - middle).max() <= 2
    assert np.array_equal(found, windows((picture, 5, 0)))
    assert not np.array_equal(found[1:], windows((picture, 5, 1))[1:])


def test_half_of_the_squashed_pictures_are_made_wide_again():
    stripes = np.zeros((256, 256, 3), np.uint8)
    stripes[:, ::64], stripes[:, 1::64] = 255, 255  # four thin lines, 64 pixels apart
    chooser, apart_by = np.random.default_rng(0), []
    for _ in range(200):
        small = unsquashed(stripes, chooser)
        assert small.shape == (96, 96, 3)
        lines = np.flatnonzero(small[0, :, 0] > 60)
        apart_by.append(int(np.diff(lines)[np.diff(lines) > 1].max()))
    assert set(apart_by) <= {24, 31, 32, 33}
    assert 0.35 < np.mean(np.array(apart_by) > 24) < 0.65


def test_squashed_pictures_have_packs_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(way_up_pictures, "HELD_OUT", 4)
    for number in range(10):
        Image.new("RGB", (256, 256), (25 * number, 0, 0)).save(tmp_path / f"{number}.jpg")
    for part in ("tiny/val/images", "tiny/train", "bsds/train", "bsds/val"):
        (tmp_path / part).mkdir(parents=True)
    (tmp_path / "tiny/val/val_annotations.txt").write_text("")
    (tmp_path / "photographs").mkdir()
    make_packs(tmp_path / "tiny", tmp_path / "photographs", tmp_path / "bsds", tmp_path, squashed=tmp_path)
    groups = read_packs([tmp_path / f"{name}.npz" for name in "cde"])
    assert {name: len(group) for name, group in groups.items()} == {"held-squashed": 4, "squashed": 6}
    reds = sorted(round(float(picture[..., 0].mean()) / 25) for some in groups.values() for picture in some)
    assert reds == list(range(10))


def test_what_is_held_out_is_not_learned_from(packs):
    learn, held = squares_of(read_packs(packs))
    assert learn.shape == (21 + WINDOWS, 3, 96, 96)
    assert {name: tuple(some.shape) for name, some in held.items()} == {"held-photographs": (2, 3, 96, 96)}


def test_a_network_is_trained_and_goes_on(tmp_path, packs):
    said = []
    options = {"seconds": 600, "device": "cpu", "batch": 2, "max_steps": 1, "threads": 2, "say": said.append}
    for step in (1, 2):
        torch.manual_seed(0)
        network = WayUp((8,), (1,))
        model = train(packs, tmp_path / "run", model=small_model(), network=network, **options)
        assert (tmp_path / "run" / "checkpoints" / str(step)).is_dir()
    again = PhotographModel.load(tmp_path / "run" / "model")
    for name, value in model.way_up.state_dict().items():
        assert torch.equal(again.way_up.state_dict()[name], value), name
    assert any(line.startswith("held-photographs: plain") for line in said)
    assert f"temperature {model.way_up.options['temperature']}" in said
    assert again.way_up.options == model.way_up.options


def test_scores_by_size_are_those_of_the_middle_squares():
    class Bright(WayUp):
        """Knows that pictures are bright above."""

        def forward(self, pictures):
            half = pictures.shape[-2] // 2
            return pictures[..., :half, :].mean((-3, -2, -1)) - pictures[..., half:, :].mean((-3, -2, -1))

    upright = torch.zeros(100, 120, 3, dtype=torch.uint8)
    upright[:50] = 255
    upright[:, :10] = upright[:, -10:] = 128  # outside of the middle square
    rows = list(scores_by_size(Bright((8,), (1,)), [upright, upright.flip(0)], (32, 64)))
    assert [(row["side"], row["pictures"], row["upright"]) for row in rows] == [(32, 2, 0.5), (64, 2, 0.5)]
    assert all(row["nats"] > 1 for row in rows)  # it is sure, and wrong of one of the two


def test_packs_are_made_of_what_has_a_way_up(tmp_path):
    """Of 40 thumbnails of a class and 40 of one without a way up, and of photographs, each fifth held out."""
    kept, left = "n01443537", "n07873807"
    assert left in NO_WAY_UP
    assert len(NO_WAY_UP) == 54
    tiny = tmp_path / "tiny"
    (tiny / "val" / "images").mkdir(parents=True)
    lines = []
    for number, name in enumerate([kept, left] * 520):
        Image.new("RGB", (64, 64), (number % 256, 0, 0)).save(tiny / "val" / "images" / f"{number}.JPEG")
        lines.append(f"{number}.JPEG\t{name}\t0\t0\t1\t1\n")
    (tiny / "val" / "val_annotations.txt").write_text("".join(lines))
    for name in (kept, left):
        (tiny / "train" / name / "images").mkdir(parents=True)
        for number in range(8):
            Image.new("RGB", (64, 64)).save(tiny / "train" / name / "images" / f"{number}.JPEG")
    (tmp_path / "samples").mkdir()
    for number in range(6):
        Image.new("RGB", (150, 140)).save(tmp_path / "samples" / f"{number}.JPEG")
    for part in ("train", "val", "test"):
        (tmp_path / "bsds" / part).mkdir(parents=True)
        Image.new("RGB", (150, 140)).save(tmp_path / "bsds" / part / "0.jpg")
    make_packs(tiny, tmp_path / "samples", tmp_path / "bsds", tmp_path)
    groups = read_packs([tmp_path / "a.npz", tmp_path / "b.npz"])
    assert {name: len(group) for name, group in groups.items()} == {
        "photographs": 5,
        "held-photographs-bsds": 1,
        "held-photographs-imagenet": 2,
        "held-thumbnails": 520,
        "thumbnails": 8,
    }
