"""Puzzles to learn from: random crops of photographs, spoiled as files of the web are, and cut."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from factorank.jigsaw.photographs.views import Views, views_of

LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
"""The example table of quantisation in the JPEG standard (ITU T.81, table K.1)."""


@dataclass(frozen=True)
class Kind:
    """What a batch of puzzles has in common."""

    grid: tuple[int, int]
    size: tuple[int, int]
    """Height and width of a piece in pixels."""
    puzzles: int
    turned: bool = False
    missing: float = 0.0
    """The share of the pieces that are taken away."""

    @property
    def on_blocks(self) -> bool:
        """Whether pieces can be cut on the 8×8 blocks of JPEG files; such puzzles always are."""
        return self.size[0] % 8 == 0 == self.size[1] % 8


class Batch(NamedTuple):
    """Puzzles with their solutions."""

    views: Views
    slots: Tensor
    """The slot of each piece, ``(puzzles, pieces)``."""
    turns: Tensor
    """How often each piece is to be turned clockwise, ``(puzzles, pieces)``."""


def random_kind(budget: int, generator: torch.Generator, *, largest: int = 13, most: int = 64) -> Kind:
    """Draw a kind: larger grids more often, with as many puzzles as ``budget`` pairs of borders allow."""

    def uniform(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator))

    turned = uniform(0, 1) < 0.25
    top = min(largest, 7 if turned else largest)
    rows = round(math.sqrt(uniform(2**2, top**2)))
    columns = rows if uniform(0, 1) < 0.5 else round(uniform(2, top))
    if uniform(0, 1) < 0.5:
        rows, columns = columns, rows
    height = math.exp(uniform(math.log(14), math.log(max(20, min(110, 480 / max(rows, columns))))))
    width = height if turned or uniform(0, 1) < 0.3 else height * math.exp(uniform(-0.45, 0.45))
    if uniform(0, 1) < 0.25:  # cut on the blocks of JPEG files, where colours jump
        height, width = (max(16, 8 * round(length / 8)) for length in (height, width))
    missing = uniform(0.02, 0.2) if uniform(0, 1) < 0.2 else 0.0
    pieces = rows * columns
    pairs = (16 if turned else 2) * pieces**2
    return Kind(
        (rows, columns),
        (round(height), round(max(12, width))),
        max(4, min(most, budget // pairs)),
        turned,
        missing,
    )


def random_batch(photographs: Sequence[Tensor], kind: Kind, generator: torch.Generator) -> Batch:
    """Puzzles of a kind, made of random photographs ``(3, height, width)`` of bytes on the device.

    ``generator`` is one of the CPU.
    """
    (rows, columns), (height, width) = kind.grid, kind.size
    size = rows * height, columns * width
    grain = 8 if kind.on_blocks else 1
    crops = torch.stack([_crop(photographs, size, grain, generator) for _ in range(kind.puzzles)])
    device = crops.device
    flip = torch.rand(kind.puzzles, generator=generator).to(device) < 0.5
    crops = torch.where(flip[:, None, None, None], crops.flip(-1), crops)
    crops = spoiled(tinted(crops, generator), grain, generator)
    if kind.turned:  # such pictures lie in any way that fits the grid
        turn = int(torch.randint(4, (), generator=generator))
        crops = torch.rot90(crops, turn if rows == columns else 2 * turn, (-2, -1))
    pieces = (
        crops.unflatten(-1, (columns, width)).unflatten(-3, (rows, height)).permute(0, 2, 4, 3, 5, 1)
    ).flatten(1, 2)
    return scramble(pieces, kind, generator)


def scramble(pieces: Tensor, kind: Kind, generator: torch.Generator) -> Batch:
    """Pieces ``(puzzles, n, height, width, 3)`` in the order of the slots to a batch of puzzles."""
    puzzles, n = pieces.shape[:2]
    kept = max(2, n - round(kind.missing * n))
    slots = torch.rand((puzzles, n), generator=generator).argsort(-1)[:, :kept].to(pieces.device)
    given = pieces[torch.arange(puzzles, device=pieces.device)[:, None], slots]
    turns = torch.zeros_like(slots)
    if kind.turned:
        turns = torch.randint(4, slots.shape, generator=generator).to(pieces.device)
        turns[:, 0] = 0  # the first piece says how the picture lies
        # A piece that must be turned clockwise t times was turned the other way t times.
        every = torch.stack([torch.rot90(given, turn, (2, 3)) for turn in range(4)])
        index = turns[None, ..., None, None, None].expand(1, *given.shape)
        given = every.gather(0, index)[0]
    return Batch(views_of(given, turned=kind.turned), slots, turns)


def _crop(
    photographs: Sequence[Tensor], size: tuple[int, int], grain: int, generator: torch.Generator
) -> Tensor:
    """A random part of a random photograph at a size, floats ``(3, *size)`` of 0 to 255.

    Half of them are cut out at their own resolution where a photograph is large enough, and some of those
    are the whole picture but for a rim. They begin at a multiple of ``grain`` pixels. The others are scaled.
    """

    def below(bound: int) -> int:
        return int(torch.randint(bound, (), generator=generator))

    for _ in range(8):
        photograph = photographs[below(len(photographs))]
        height, width = photograph.shape[-2:]
        native = below(2) == 0
        if native and (height < size[0] or width < size[1]):
            continue
        if native:
            top, left = below(height - size[0] + 1), below(width - size[1] + 1)
            top, left = top - top % grain, left - left % grain
            return photograph[:, top : top + size[0], left : left + size[1]].float()
        break
    zoom = math.exp(float(torch.empty(()).uniform_(math.log(0.45), 0.0, generator=generator)))
    stretch = math.exp(float(torch.empty(()).uniform_(-0.2, 0.2, generator=generator)))
    ratio = size[0] / size[1] * stretch
    cut_height = min(height, round(width * ratio)) * zoom
    cut_width = min(width, round(cut_height / ratio))
    cut_height = round(max(8, cut_height))
    cut_width = max(8, cut_width)
    top, left = below(max(1, height - cut_height + 1)), below(max(1, width - cut_width + 1))
    part = photograph[None, :, top : top + cut_height, left : left + cut_width].float()
    return F.interpolate(part, size, mode="bilinear", antialias=True, align_corners=False)[0].clamp(0, 255)


def tinted(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Pictures with other contrast, brightness and colours, some of them grey."""

    def each(low: float, high: float, *shape: int) -> Tensor:
        values = low + (high - low) * torch.rand((len(pictures), *shape, 1, 1), generator=generator)
        return values.to(pictures.device)

    contrast = torch.where(each(0, 1, 1) < 0.5, each(0.5, 1.2, 1) * each(0.95, 1.05, 3), 1.0)
    bright = torch.where(each(0, 1, 1) < 0.5, each(-25, 25, 1) + each(-8, 8, 3), 0.0)
    pictures = (pictures - 127.5) * contrast + 127.5 + bright
    pictures = torch.where(each(0, 1, 1) < 0.05, pictures.mean(1, keepdim=True), pictures)
    return pictures.clamp(0, 255)


def spoiled(pictures: Tensor, grain: int, generator: torch.Generator) -> Tensor:
    """Bytes of pictures, some with noise and JPEG blocks, which begin at multiples of ``grain`` pixels."""

    def share(probability: float) -> Tensor:
        chosen = torch.rand((len(pictures), 1, 1, 1), generator=generator) < probability
        return chosen.to(pictures.device)

    level = 4 * torch.rand((len(pictures), 1, 1, 1), generator=generator).square().to(pictures.device)
    noisy = pictures + level * torch.randn_like(pictures)
    pictures = torch.where(share(0.3), noisy, pictures)
    quality = 35 + 60 * torch.rand((len(pictures), 1, 1, 1, 1, 1), generator=generator)
    top, left = (grain * int(torch.randint(8 // grain, (), generator=generator)) for _ in range(2))
    chosen = share(0.3)
    pictures = torch.where(chosen, jpeg_blocks(pictures, quality.to(pictures.device), (top, left)), pictures)
    return pictures.round().clamp(0, 255).to(torch.uint8)


def jpeg_blocks(pictures: Tensor, quality: Tensor, offset: tuple[int, int] = (0, 0)) -> Tensor:
    """Pictures ``(batch, 3, height, width)`` of 0 to 255 after the quantisation of JPEG at a quality.

    The blocks begin ``offset`` pixels before the picture. Colours are quantised twice as coarsely.
    """
    height, width = pictures.shape[-2:]
    top, left = offset
    bottom, right = -(height + top) % 8, -(width + left) % 8
    padded = F.pad(pictures, (left, right, top, bottom), mode="replicate")
    red, green, blue = padded.unbind(1)
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    planes = torch.stack([luma - 128, 0.564 * (blue - luma), 0.713 * (red - luma)], 1)
    blocks = planes.unflatten(-1, (-1, 8)).unflatten(-3, (-1, 8)).transpose(-3, -2)
    place = torch.arange(8, device=pictures.device)
    cosines = torch.cos(math.pi / 8 * (place + 0.5) * place[:, None]) / 2
    cosines[0] /= math.sqrt(2)
    table = torch.tensor(LUMINANCE, device=pictures.device, dtype=torch.float32)
    table = torch.stack([table, 2 * table, 2 * table])[:, None, None]
    scale = torch.where(quality < 50, 50 / quality, 2 - quality / 50)
    steps = (table * scale).clamp(min=1)
    quantised = ((cosines @ blocks @ cosines.T) / steps).round() * steps
    planes = (cosines.T @ quantised @ cosines).transpose(-3, -2).flatten(-4, -3).flatten(-2)
    luma, blue_shift, red_shift = planes.unbind(1)
    luma = luma + 128
    blue, red = luma + blue_shift / 0.564, luma + red_shift / 0.713
    green = (luma - 0.299 * red - 0.114 * blue) / 0.587
    joined = torch.stack([red, green, blue], 1)[..., top : top + height, left : left + width]
    return joined.clamp(0, 255)
