"""Jigsaw puzzles: pictures cut into a grid of square pieces and scrambled.

The slots of a grid are numbered row by row, 0..n-1 with n = grid². A puzzle is its n pieces in a scrambled
order, and its solution is a permutation that can be read in two directions:

* ``"slot-of-piece"``: ``order[i]`` is the slot of scrambled piece i. A network that has one token for each
  piece then predicts, at the token of piece i, what becomes of piece i.
* ``"piece-of-slot"``: ``order[s]`` is the scrambled piece that belongs in slot s: the pieces listed in
  reading order. The token at place s then has to find, among all the others, the piece that belongs there.

Each is the inverse of the other. The same network learns the first far sooner: in trials of a minute at 3×3,
78% of the puzzles were solved against 13%. Position i of an *insertion* code says where item i goes among the
items before it; it speaks of piece i when the order lists the pieces, so there the second is the direct one.

Pictures are uint8 ``(pictures, side, side, 3)``. A piece is ``side // grid`` pixels wide; what is left over
at the right and at the bottom is cut away (Zhang et al., "Symmetric Diffusers", 2025, do the same with the
32×32 pictures of CIFAR-10). Pieces stay bytes: an encoder turns them into numbers on the device.
"""

import functools
import os
import zlib
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from factorank.data.downloads import Published, find
from factorank.errors import FactorankError
from factorank.permutations import inverse

Direction = Literal["slot-of-piece", "piece-of-slot"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
AUGMENTATIONS = ("crop", "flip", "light")
SIDE = 32
"""Pixels in a row of a CIFAR-10 picture."""
PAD = 4
"""How far a random crop may move the picture, in pixels; what it uncovers is filled by reflection."""
HELD_OUT = 5000
"""How many training pictures are kept out for choices; the test pictures are for the final numbers."""

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

    def to(self, device: torch.device | str) -> "Pictures":
        """The same pictures on a device."""
        parts = self.train.to(device), self.held_out.to(device), self.test.to(device)
        return Pictures(*parts, source=self.source)

    @property
    def fingerprint(self) -> str:
        """Source and a checksum of all pixels, which tell whether a run goes on with the same pictures."""
        total = zlib.crc32(b"")
        for part in (self.train, self.held_out, self.test):
            total = zlib.crc32(part.cpu().numpy().tobytes(), total)
        return f"{self.source}, {len(self.train) + len(self.held_out) + len(self.test)} pictures, {total:08x}"


def cifar10(
    folder: str | os.PathLike[str] | None = None, *, held_out: int = HELD_OUT, seed: int = 0
) -> Pictures:
    """CIFAR-10: 50,000 training pictures, ``held_out`` of them kept out by the seed, and 10,000 for the test.

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
    """Pictures of your own: every picture under a folder, cropped to a square and scaled to ``side`` pixels.

    ``held_out`` and ``test`` are shares of them. Hidden files are passed over; pictures that cannot be read
    are named in one error, not left out. Needs Pillow.
    """
    from factorank.data.pictures import read_folder

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


# Cutting.


def check_grid(grid: int, side: int = SIDE) -> int:
    """The width of a piece in pixels, or an error if the grid does not fit."""
    if isinstance(grid, bool) or not isinstance(grid, int) or not 1 <= grid <= side:
        raise FactorankError(
            f"a picture of {side}×{side} pixels is cut by a grid from 1 to {side}, not {grid!r}"
        )
    return side // grid


def check_direction(direction: str) -> None:
    if direction not in DIRECTIONS:
        raise FactorankError(f"the direction is {' or '.join(map(repr, DIRECTIONS))}, not {direction!r}")


def cut(pictures: Tensor, grid: int) -> Tensor:
    """Pictures ``(*batch, side, side, channels)`` to pieces ``(*batch, n, piece, piece, channels)`` by slot.

    >>> cut(torch.arange(16).view(4, 4, 1), 2)[1].flatten()  # the upper right piece
    tensor([2, 3, 6, 7])
    """
    piece = check_grid(grid, min(pictures.shape[-3:-1]))
    used = pictures[..., : grid * piece, : grid * piece, :]
    parts = used.unflatten(-3, (grid, piece)).unflatten(-2, (grid, piece))
    return parts.transpose(-4, -3).flatten(-5, -4)


def join(pieces: Tensor, grid: int) -> Tensor:
    """Pieces by slot ``(*batch, n, piece, piece, channels)`` back to pictures: what :func:`cut` has cut."""
    return pieces.unflatten(-4, (grid, grid)).transpose(-4, -3).flatten(-5, -4).flatten(-3, -2)


def scrambled(
    pictures: Tensor, grid: int, *, direction: Direction = "slot-of-piece", seed: int = 0
) -> tuple[Tensor, Tensor]:
    """A puzzle of each picture, always the same for a seed: orders ``(pictures, n)`` and pieces.

    Pieces are uint8 ``(pictures, n, piece, piece, 3)``, in scrambled order. The scrambling is drawn on the
    CPU, so that every device gets the same puzzles.
    """
    check_direction(direction)
    by_slot = cut(pictures, grid)
    keys = torch.rand(by_slot.shape[:2], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    slot = keys.argsort(-1).to(pictures.device)
    pieces = by_slot[torch.arange(len(slot), device=slot.device)[:, None], slot]
    return (slot if direction == "slot-of-piece" else inverse(slot, check=False)), pieces


class Puzzles:
    """Makes batches of puzzles from pictures that are kept as bytes on the device.

    Called with a batch size and a generator it gives orders ``(batch, n)`` and pieces uint8
    ``(batch, n, piece, piece, 3)``. Each piece is gathered from its picture at once, with the crop, the flip
    and the scrambling all in the index: nothing else is copied. Tensor operations alone, all random numbers
    from the generator, so that it can be part of a captured CUDA graph.

    ``augment`` names what is done to the pictures, joined by ``+``: "crop" moves the picture by up to four
    pixels each way and fills up by reflection, "flip" mirrors every other one, "light" changes the
    brightness and the contrast of each a little; "none" leaves them as they are.

    Pieces with the same pixels can be exchanged, so that a puzzle with such pieces has several solutions.
    With ``ties=True`` the one is taken in which they have their slots in the order in which they are given:
    the answer is then a function of the puzzle, and can be learnt; otherwise it is drawn anew each time.

    >>> puzzles = Puzzles(torch.zeros(5, 32, 32, 3, dtype=torch.uint8), grid=3)
    >>> order, pieces = puzzles(8, torch.Generator().manual_seed(0))
    >>> order.shape, pieces.shape
    (torch.Size([8, 9]), torch.Size([8, 9, 10, 10, 3]))
    """

    capturable = True

    def __init__(
        self,
        pictures: Tensor,
        grid: int,
        *,
        direction: Direction = "slot-of-piece",
        augment: str = "crop+flip",
        ties: bool = True,
    ) -> None:
        if pictures.dtype != torch.uint8 or pictures.ndim != 4 or pictures.shape[1] != pictures.shape[2]:
            raise FactorankError(
                "pictures are bytes (pictures, side, side, channels), not"
                f" {pictures.dtype} {tuple(pictures.shape)}"
            )
        check_direction(direction)
        self.side, self.grid, self.direction = pictures.shape[1], grid, direction
        self.piece = check_grid(grid, self.side)
        self.augment, self.ties = augmentations(augment), ties
        if "crop" in self.augment and self.side <= PAD:
            raise FactorankError(f"a crop moves a picture by up to {PAD} pixels; these have only {self.side}")
        self.count = len(pictures)
        self.pixels = pictures.reshape(-1, pictures.shape[-1])
        self._at: Tensor | None = None

    def __call__(self, batch_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        device, n = generator.device, self.grid**2
        if self.pixels.device != device or self._at is None:
            self.pixels = self.pixels.to(device)
            self._at = torch.arange(self.piece, device=device)
        picture = torch.randint(self.count, (batch_size,), generator=generator, device=device)
        slot = torch.rand((batch_size, n), generator=generator, device=device).argsort(-1)
        down = (slot // self.grid)[..., None] * self.piece + self._at
        across = (slot % self.grid)[..., None] * self.piece + self._at
        if "flip" in self.augment:
            mirrored = torch.rand((batch_size, 1, 1), generator=generator, device=device) < 0.5
            across = torch.where(mirrored, self.side - 1 - across, across)
        if "crop" in self.augment:
            moved = torch.randint(-PAD, PAD + 1, (2, batch_size, 1, 1), generator=generator, device=device)
            down, across = (
                _reflect(at + by, self.side) for at, by in zip((down, across), moved, strict=True)
            )
        start = picture[:, None, None] * self.side + down
        index = start[..., :, None] * self.side + across[..., None, :]
        pieces = self.pixels.index_select(0, index.flatten()).view(*index.shape, -1)
        if "light" in self.augment:
            pieces = _relit(pieces, generator)
        if self.ties:
            slot = tied(slot, pieces)
        return (slot if self.direction == "slot-of-piece" else slot.argsort(-1)), pieces


def tied(slot: Tensor, pieces: Tensor) -> Tensor:
    """The slots ``(*batch, n)`` of pieces ``(*batch, n, piece, piece, channels)``, with identical pieces
    exchanged so that of these the first one given has the first slot, and so on.

    >>> tied(torch.tensor([2, 0, 1]), torch.tensor([7, 9, 7]).view(3, 1, 1, 1))
    tensor([1, 0, 2])
    """
    # Equal pieces have equal sums with weights of 64 bits, modulo 2**64; different ones all but never.
    size = pieces.shape[-3:].numel()
    sums = (pieces.flatten(-3).to(torch.int64) * _weights(size, pieces.device)).sum(-1)
    # The groups of equal pieces, one after the other, each in the order given and each in that of the slots.
    given, by_slot = sums.argsort(dim=-1, stable=True), slot.argsort(-1)
    placed = by_slot.gather(-1, sums.gather(-1, by_slot).argsort(dim=-1, stable=True))
    return torch.empty_like(slot).scatter_(-1, given, slot.gather(-1, placed))


@functools.lru_cache(8)
def _weights(size: int, device: torch.device) -> Tensor:
    bits = torch.randint(-(2**62), 2**62, (size,), generator=torch.Generator().manual_seed(size))
    return (2 * bits + 1).to(device)


def augmentations(text: str) -> tuple[str, ...]:
    """The names in an ``augment`` setting.

    >>> augmentations("crop+flip"), augmentations("none")
    (('crop', 'flip'), ())
    """
    names = () if text == "none" else tuple(text.split("+"))
    for name in names:
        if name not in AUGMENTATIONS:
            raise FactorankError(
                f"augment is 'none' or some of {', '.join(AUGMENTATIONS)} joined by +, not {text!r}"
            )
    return names


def _reflect(at: Tensor, side: int) -> Tensor:
    """Places beyond the border of 0..side-1, mirrored at the border pixel."""
    return side - 1 - (side - 1 - at.abs()).abs()


def _relit(pieces: Tensor, generator: torch.Generator) -> Tensor:
    """Bytes with another brightness and contrast, the same for all the pieces of a puzzle."""
    shape = (2, len(pieces), *[1] * (pieces.ndim - 1))
    change = torch.randn(shape, generator=generator, device=pieces.device)
    relit = (pieces.float() - 127.5) * (0.15 * change[0]).exp() + 127.5 + 16.0 * change[1]
    return relit.round().clamp(0, 255).to(torch.uint8)
