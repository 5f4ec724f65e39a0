"""Pictures to learn from and to test on: CIFAR-10, or a folder of the user's pictures.

Pictures are square and of one size, uint8 ``(pictures, side, side, 3)``.
"""

import os
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from factorank.data.downloads import Published, find
from factorank.data.pictures import read_folder
from factorank.errors import FactorankError

SIDE = 32
"""Pixels in a row of a CIFAR-10 picture."""

CIFAR10 = Published(
    title="CIFAR-10 (binary version)",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    folder="cifar-10-batches-bin",
    files={
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
)
"""Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009."""


class Pictures:
    """The pictures of an experiment, uint8 ``(pictures, side, side, 3)``: to train on, held out, and test.

    ``source`` is what results call them.
    """

    def __init__(self, train: Tensor, held_out: Tensor, test: Tensor, source: str = "pictures") -> None:
        self.train, self.held_out, self.test, self.source = train, held_out, test, source

    @property
    def side(self) -> int:
        """Pixels in a row of a picture."""
        return self.train.shape[1]

    @property
    def fingerprint(self) -> str:
        """Source and a checksum of all pixels. A run that is resumed compares it."""
        total = zlib.crc32(b"")
        for part in (self.train, self.held_out, self.test):
            total = zlib.crc32(part.cpu().numpy().tobytes(), total)
        return f"{self.source}, {len(self.train) + len(self.held_out) + len(self.test)} pictures, {total:08x}"


def cifar10(folder: str | os.PathLike[str] | None = None, *, held_out: int = 5000, seed: int = 0) -> Pictures:
    """CIFAR-10: 50,000 training pictures, of which the seed holds ``held_out`` out, and 10,000 for the test.

    The pictures held out are for choices; the test pictures are for the final numbers.
    Read from ``folder``, ``$FACTORANK_DATA`` or the cache, else downloaded: :mod:`factorank.data.downloads`.
    """
    place = find(CIFAR10, folder)
    *batches, test = (_read_batch(place / name) for name in CIFAR10.files)
    return _split(torch.cat(batches), test, held_out, seed, "cifar-10")


def picture_folder(
    folder: str | os.PathLike[str],
    *,
    side: int = SIDE,
    held_out: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
) -> Pictures:
    """Every picture under a folder, cropped to a square and scaled to ``side`` pixels.

    ``held_out`` and ``test`` are shares of them. Hidden files are skipped. One error names the pictures that
    cannot be read. Needs Pillow.
    """
    every = read_folder(folder, side)
    if len(every) < 3:
        raise FactorankError(f"{folder} has {len(every)} pictures; 3 or more are needed to train and to test")
    shuffled = every[torch.randperm(len(every), generator=torch.Generator().manual_seed(seed))]
    kept = max(1, round(test * len(every)))
    out = max(1, round(held_out * len(every)))
    return _split(shuffled[kept:], shuffled[:kept], out, seed, Path(folder).resolve().name)


def _read_batch(path: Path) -> Tensor:
    """One file of CIFAR-10: a byte for the label, then red, green and blue, 1,024 bytes each, row by row."""
    rows = np.fromfile(path, dtype=np.uint8).reshape(-1, 1 + 3 * SIDE * SIDE)
    pixels = rows[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return torch.from_numpy(np.ascontiguousarray(pixels))


def _split(train: Tensor, test: Tensor, held_out: int, seed: int, source: str) -> Pictures:
    if not 0 < held_out < len(train):
        raise FactorankError(f"{held_out} of {len(train)} training pictures cannot be held out")
    rows = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    return Pictures(train[rows[held_out:]], train[rows[:held_out]], test, source)
