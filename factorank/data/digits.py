"""MNIST: pictures of handwritten digits, to train on, held out, and for the test."""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from factorank.data.downloads import VARIABLE, data_folder
from factorank.errors import FactorankError
from factorank.reading import read_bytes, read_gzip

SIDE = 28
"""Pixels in a row of a digit."""
FOLDER = "mnist"
LARGEST = 1 << 26
"""The most bytes of a file that are read."""
FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
"""The files of LeCun, Cortes and Burges, "The MNIST database of handwritten digits", and their SHA-256."""


class Digits(NamedTuple):
    """Pictures of digits, uint8 ``(digits, 28, 28)``, and what they show, int64 ``(digits,)``."""

    pixels: Tensor
    labels: Tensor

    def to(self, device: torch.device | str) -> "Digits":
        """The same digits on a device."""
        return Digits(self.pixels.to(device), self.labels.to(device))

    def __len__(self) -> int:
        return len(self.pixels)


class DigitSets(NamedTuple):
    """The digits of an experiment: choices are made on those held out, the test is for the results."""

    train: Digits
    held_out: Digits
    test: Digits


def mnist(folder: str | os.PathLike[str] | None = None, *, held_out: int = 5000, seed: int = 0) -> DigitSets:
    """MNIST: 60,000 training digits, of which the seed holds ``held_out`` out, and 10,000 for the test.

    Read from the folder ``mnist`` in ``folder``, ``$FACTORANK_DATA`` or the cache, packed by gzip or not.
    """
    place = data_folder(folder) / FOLDER
    images, labels, test_images, test_labels = (_read(place, name) for name in FILES)
    rows = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    kept, out = rows[held_out:], rows[:held_out]
    return DigitSets(
        Digits(images[kept], labels[kept].long()),
        Digits(images[out], labels[out].long()),
        Digits(test_images, test_labels.long()),
    )


def _read(folder: Path, name: str) -> Tensor:
    """A file of bytes in the IDX format: two zeros, the type, the number of dimensions, their sizes."""
    if (folder / name).is_file():
        data = read_bytes(folder / name, most=LARGEST)
    elif (folder / f"{name}.gz").is_file():
        data = read_gzip(folder / f"{name}.gz", most=LARGEST)
    else:
        raise FactorankError(
            f"{folder} lacks {name} of MNIST, packed or not; put its four files there, or set {VARIABLE} to"
            f" the folder that holds {FOLDER}/"
        )
    if hashlib.sha256(data).hexdigest() != FILES[name]:
        raise FactorankError(f"{folder / name} is not the file that MNIST is published with")
    sizes = np.frombuffer(data, ">i4", count=data[3], offset=4)
    pixels = np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(sizes)
    return torch.from_numpy(pixels.copy())
