"""MNIST files: read packed or not, split by a seed, refused when they are others."""

import gzip
import hashlib
import struct

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.data import digits


def write_digits(folder, monkeypatch, *, packed=(), train=40, test=20, seed=0):
    """Small files in the format of MNIST; the checksums that are expected become theirs."""
    place, random = folder / "mnist", np.random.default_rng(seed)
    place.mkdir()
    sums = {}
    for name, count in zip(digits.FILES, (train, train, test, test), strict=True):
        shape = (count, 28, 28) if "images" in name else (count,)
        values = random.integers(0, 256, shape) if "images" in name else np.arange(count) % 10
        data = (
            struct.pack(f">BBBB{len(shape)}i", 0, 0, 8, len(shape), *shape)
            + values.astype(np.uint8).tobytes()
        )
        sums[name] = hashlib.sha256(data).hexdigest()
        path = place / (f"{name}.gz" if name in packed else name)
        path.write_bytes(gzip.compress(data) if name in packed else data)
    monkeypatch.setattr(digits, "FILES", sums)
    return place


def test_packed_files_are_the_same_digits(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    write_digits(tmp_path / "a", monkeypatch)
    plain = digits.mnist(tmp_path / "a", held_out=10)
    write_digits(tmp_path / "b", monkeypatch, packed=("train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"))
    packed = digits.mnist(tmp_path / "b", held_out=10)
    for some, others in zip(plain, packed, strict=True):
        assert torch.equal(some.pixels, others.pixels)
        assert torch.equal(some.labels, others.labels)
    assert [len(each) for each in plain] == [30, 10, 20]
    assert plain.train.pixels.dtype == torch.uint8
    together = torch.cat([plain.train.labels, plain.held_out.labels])
    assert together.bincount().tolist() == [4] * 10
    assert torch.equal(plain.test.labels, torch.arange(20) % 10)


def test_another_seed_holds_out_others(tmp_path, monkeypatch):
    write_digits(tmp_path, monkeypatch)
    first, second = (digits.mnist(tmp_path, held_out=10, seed=seed) for seed in (0, 1))
    assert not torch.equal(first.held_out.pixels, second.held_out.pixels)


def test_missing_and_other_files_are_refused(tmp_path, monkeypatch):
    with pytest.raises(fr.FactorankError, match="lacks train-images-idx3-ubyte of MNIST"):
        digits.mnist(tmp_path)
    place = write_digits(tmp_path, monkeypatch)
    path = place / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(fr.FactorankError, match="t10k-labels-idx1-ubyte is not the file"):
        digits.mnist(tmp_path)


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-9], lambda data: b"none" + data[4:], lambda data: data + b"?"]
)
def test_what_gzip_cannot_unpack_is_refused(spoil, tmp_path, monkeypatch):
    name = "t10k-labels-idx1-ubyte"
    path = write_digits(tmp_path, monkeypatch, packed=(name,)) / f"{name}.gz"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(fr.FactorankError, match=r"labels-idx1-ubyte\.gz: damaged, or not packed by gzip"):
        digits.mnist(tmp_path)


def test_no_more_is_unpacked_than_the_file_can_hold(tmp_path, monkeypatch):
    name = "t10k-labels-idx1-ubyte"
    path = write_digits(tmp_path, monkeypatch, packed=(name,)) / f"{name}.gz"
    path.write_bytes(gzip.compress(bytes(digits.LARGEST + 1)))
    with pytest.raises(fr.FactorankError, match="unpacks to more than the 67,108,864 bytes"):
        digits.mnist(tmp_path)
