"""Jigsaw puzzles: pictures cut into a grid of square pieces and scrambled.

The slots of a grid are numbered row by row, 0..n-1 with n = grid². A puzzle is its n pieces in a scrambled
order. Its solution is a permutation that can be read in two directions:

* ``"slot-of-piece"``: ``order[i]`` is the slot of scrambled piece i. A network that has one token for each
  piece then predicts, at the token of piece i, the slot of piece i.
* ``"piece-of-slot"``: ``order[s]`` is the scrambled piece that belongs in slot s: the pieces listed in
  reading order. The token at place s then has to find, among all the others, the piece that belongs there.

Each is the inverse of the other. The same network learns the first far sooner: in trials of a minute at 3×3,
78% of the puzzles were solved against 13%. Position i of an *insertion* code says where item i goes among the
items before it. It is about piece i when the order lists the pieces, so the second is the direct one there.

Pictures are uint8 ``(pictures, side, side, 3)``. A piece is ``side // grid`` pixels wide. The pixels that are
left over at the right and at the bottom are cut off (Zhang et al., "Symmetric Diffusers", 2025, do the same
with the 32×32 pictures of CIFAR-10). Pieces stay bytes: an encoder turns them into numbers on the device.
"""

import functools
from typing import Literal, get_args

import torch
from torch import Tensor

from factorank.data.picture_sets import SIDE
from factorank.errors import FactorankError
from factorank.permutations import inverse

Direction = Literal["slot-of-piece", "piece-of-slot"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
AUGMENTATIONS = ("crop", "flip", "light")
PAD = 4
"""How far a random crop may move the picture, in pixels; uncovered parts are filled by reflection."""


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
    """Pieces by slot ``(*batch, n, piece, piece, channels)`` back to pictures: the inverse of :func:`cut`."""
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
    ``(batch, n, piece, piece, 3)``. One index holds the crop, the flip and the scrambling, and the pieces are
    gathered by it: nothing else is copied. Tensor operations alone are used, and all random numbers come from
    the generator, so that a captured CUDA graph can hold them.

    ``augment`` names changes to the pictures, joined by ``+``: "crop" moves a picture by up to four pixels
    each way and fills up by reflection, "flip" mirrors half of the pictures, "light" changes the brightness
    and the contrast a little; "none" leaves the pictures as they are.

    Pieces with the same pixels can be exchanged, so a puzzle with such pieces has several solutions. With
    ``ties=True`` the solution is the one of :func:`settle_ties`. It is then a function of the puzzle and can
    be learnt; otherwise it is drawn at random.

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
            down, across = _reflect(down + moved[0], self.side), _reflect(across + moved[1], self.side)
        start = picture[:, None, None] * self.side + down
        index = start[..., :, None] * self.side + across[..., None, :]
        pieces = self.pixels.index_select(0, index.flatten()).view(*index.shape, -1)
        if "light" in self.augment:
            pieces = _relit(pieces, generator)
        if self.ties:
            slot = settle_ties(slot, pieces)
        return (slot if self.direction == "slot-of-piece" else slot.argsort(-1)), pieces


def settle_ties(slot: Tensor, pieces: Tensor) -> Tensor:
    """Slots ``(*batch, n)`` of pieces ``(*batch, n, piece, piece, channels)``, with one order for identical
    pieces: their slots rise in the order in which the pieces are listed.

    >>> settle_ties(torch.tensor([2, 0, 1]), torch.tensor([7, 9, 7]).view(3, 1, 1, 1))
    tensor([1, 0, 2])
    """
    # Equal pieces have equal sums with weights of 64 bits, modulo 2**64; different ones all but never.
    size = pieces.shape[-3:].numel()
    sums = (pieces.flatten(-3).to(torch.int64) * _weights(size, pieces.device)).sum(-1)
    # Groups of equal pieces, one after the other: within a group in the listed order, or by slot.
    listed, by_slot = sums.argsort(dim=-1, stable=True), slot.argsort(-1)
    placed = by_slot.gather(-1, sums.gather(-1, by_slot).argsort(dim=-1, stable=True))
    return torch.empty_like(slot).scatter_(-1, listed, slot.gather(-1, placed))


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
    if not {*names} <= {*AUGMENTATIONS}:
        raise FactorankError(
            f"{{parameter}} is 'none' or some of {', '.join(AUGMENTATIONS)} joined by +, not {text!r}",
            parameter="augment",
        )
    return names


def _reflect(at: Tensor, side: int) -> Tensor:
    """Coordinates, where those beyond the border of 0..side-1 are mirrored at the border pixel."""
    return side - 1 - (side - 1 - at.abs()).abs()


def _relit(pieces: Tensor, generator: torch.Generator) -> Tensor:
    """Bytes with another brightness and contrast, the same for all the pieces of a puzzle."""
    shape = (2, len(pieces), *[1] * (pieces.ndim - 1))
    change = torch.randn(shape, generator=generator, device=pieces.device)
    relit = (pieces.float() - 127.5) * (0.15 * change[0]).exp() + 127.5 + 16.0 * change[1]
    return relit.round().clamp(0, 255).to(torch.uint8)


def check_grid(grid: int, side: int = SIDE) -> int:
    """The width of a piece in pixels, or an error if the grid does not fit."""
    if isinstance(grid, bool) or not isinstance(grid, int) or not 1 <= grid <= side:
        raise FactorankError(
            f"a picture of {side}×{side} pixels is cut by a grid from 1 to {side}, not {grid!r}",
            parameter="grid",
        )
    return side // grid


def check_direction(direction: str) -> None:
    if direction not in DIRECTIONS:
        raise FactorankError(
            f"the direction is {' or '.join(map(repr, DIRECTIONS))}, not {direction!r}",
            parameter="direction",
        )
