"""CIFAR-10 and folders of pictures: read byte by byte, split by the seed, refused where damaged."""

import hashlib
import itertools

import numpy as np
import pytest
import torch
from PIL import Image

import factorank as fr
from factorank.data import picture_sets
from factorank.data.downloads import Published
from factorank.data.picture_sets import CIFAR10, cifar10, picture_folder


@pytest.fixture
def small_cifar(tmp_path, monkeypatch):
    """CIFAR-10's layout with ten pictures a file."""
    chooser = np.random.default_rng(0)
    folder = tmp_path / "data" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    records, sums = [], {}
    for name in CIFAR10.files:
        rows = chooser.integers(0, 256, (10, 3073), dtype=np.uint8)
        (folder / name).write_bytes(rows.tobytes())
        sums[name] = hashlib.sha256(rows.tobytes()).hexdigest()
        records.append(rows)
    monkeypatch.setattr(picture_sets, "CIFAR10", Published("CIFAR-10", CIFAR10.url, CIFAR10.folder, sums))
    return tmp_path / "data", records


def test_cifar_is_read_and_split(small_cifar, monkeypatch):
    folder, records = small_cifar
    pictures = cifar10(folder, held_out=7)
    assert (len(pictures.train), len(pictures.held_out), len(pictures.test)) == (43, 7, 10)
    for row, picture in zip(records[-1], pictures.test, strict=True):
        for channel, y, x in itertools.product(range(3), (0, 5, 31), (0, 9, 31)):
            assert picture[y, x, channel] == row[1 + 1024 * channel + 32 * y + x]
    every = {
        bytes(row[1:].reshape(3, 32, 32).transpose(1, 2, 0).tobytes()) for row in np.concatenate(records[:5])
    }
    both = [p.numpy().tobytes() for p in torch.cat([pictures.train, pictures.held_out])]
    assert set(both) == every
    assert len(set(both)) == 50
    monkeypatch.setenv("FACTORANK_DATA", str(folder))
    assert torch.equal(cifar10(held_out=7).held_out, pictures.held_out)
    assert not torch.equal(cifar10(held_out=7, seed=1).held_out, pictures.held_out)
    assert torch.equal(cifar10(folder / "cifar-10-batches-bin", held_out=7).train, pictures.train)
    with pytest.raises(fr.FactorankError, match="50 of 50 training pictures cannot be held out"):
        cifar10(folder, held_out=50)


def test_a_damaged_file_is_noticed(small_cifar):
    folder, _ = small_cifar
    path = folder / "cifar-10-batches-bin" / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(
        fr.FactorankError, match=r"data_batch_3.bin is not the file that CIFAR-10 is published"
    ):
        cifar10(folder)
    path.unlink()
    with pytest.raises(
        fr.FactorankError, match=r"lacks data_batch_3.bin of CIFAR-10; download https://www.cs.tor"
    ):
        cifar10(folder)


def test_a_folder_of_pictures(tmp_path):
    for i in range(10):
        pixels = np.full((40 + i, 60, 3), 20 * i, dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    (tmp_path / "notes.txt").write_text("not a picture")
    pictures = picture_folder(tmp_path, held_out=0.2, test=0.3)
    assert pictures.train.shape == (5, 32, 32, 3)
    shades = [int(p[0, 0, 0]) for part in (pictures.train, pictures.held_out, pictures.test) for p in part]
    assert sorted(shades) == [20 * i for i in range(10)]
    (tmp_path / "._0.png").write_bytes(b"what macOS leaves behind")
    (tmp_path / "more.png").mkdir()
    assert torch.equal(picture_folder(tmp_path, held_out=0.2, test=0.3).train, pictures.train)
    (tmp_path / "10.png").write_bytes(b"broken")
    (tmp_path / "11.png").write_bytes(b"broken")
    with pytest.raises(fr.FactorankError, match=r": 2 of 12 pictures cannot be read.*: 10\.png: .*; 11\.png"):
        picture_folder(tmp_path)
    with pytest.raises(fr.FactorankError, match="has no pictures: no file in it, hidden ones aside, ends in"):
        picture_folder(tmp_path / "more.png")
    with pytest.raises(fr.FactorankError, match=r"0\.png is a file; give the folder"):
        picture_folder(tmp_path / "0.png")
    with pytest.raises(fr.FactorankError, match=r"^there is no folder .*nowhere$"):
        picture_folder(tmp_path / "nowhere")
