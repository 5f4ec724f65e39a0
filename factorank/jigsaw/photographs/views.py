"""What the network sees of loose pieces: each piece at 32×32 pixels, and its four borders.

Pieces of any size come in. Each is resized by itself, so nothing of a neighbour is used. Its borders keep the
two outermost rows of pixels at their own depth, resized along the border only: across a border single pixels
tell most. For the same reason the distances of Gallagher's solver without learning (see
:mod:`factorank.baselines.edge_compatibility`) are computed here at the pieces' own resolution: the network
starts from them.

The sides of a piece are numbered 0 right, 1 top, 2 left, 3 bottom. Turning a piece clockwise k times brings
side k to the right; every border is read in this view, from top to bottom and from the edge inward.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

PIECE = 32
"""The side of a piece, in pixels, that the network reads."""
NATIVE = 160
"""The longest side of a piece that is kept before its borders are read; larger pieces are scaled down."""
DEPTH = 6
"""How many columns of the resized piece a border has."""
RIM = 2
"""How many columns of the piece at its own resolution a border has besides."""
BORDER = 3 * (DEPTH + RIM)
"""The numbers that describe one place along a border."""
FACING = ((0, 2), (3, 1))
"""The sides that meet: right and left, bottom and top."""
BESIDES = ((0, 0, 0), (1, 1, 1), (-1, -1, -1), *((sign, 0, 0) for sign in (1, -1)))
BESIDES += (*((0, sign, 0) for sign in (1, -1)), *((0, 0, sign) for sign in (1, -1)))
"""Changes, in grey levels, that are added to those of every border, so that flat ones vary as well."""


class Views(NamedTuple):
    """The four turns of each piece and their right borders, in units of 64 grey levels."""

    turned: Tensor
    """Pieces turned clockwise 0, 1, 2 and 3 times: ``(*batch, n, 4, 3, PIECE, PIECE)``."""
    borders: Tensor
    """The right border of each turn: ``(*batch, n, 4, BORDER, PIECE)``."""
    steps: Tensor
    """How unusual the step across two borders is for the first and for the second, as logarithms: for right
    with left and for bottom with top ``(*batch, 2, n, n, 2)``, or for all sides ``(*batch, 1, 4 n, 4 n, 2)``
    of pieces that may be turned."""


def views_of(pieces: Tensor, *, turned: bool = False) -> Views:
    """Views of pieces of 0 to 255, ``(*batch, n, height, width, 3)``; those that may be turned are square.

    >>> views = views_of(torch.zeros(9, 20, 30, 3, dtype=torch.uint8))
    >>> views.turned.shape, views.borders.shape, views.steps.shape
    (torch.Size([9, 4, 3, 32, 32]), torch.Size([9, 4, 24, 32]), torch.Size([2, 9, 9, 2]))
    """
    may_turn, batch = turned, pieces.shape[:-3]
    native = (scaled_down(pieces).flatten(0, -4).movedim(-1, 1) - 127.5) / 64
    small = resize(native, (PIECE, PIECE))
    views, borders, rims = [], [], []
    for turn in range(4):
        view = torch.rot90(small, -turn, (-2, -1))
        rim = torch.rot90(native, -turn, (-2, -1))
        rim = rim[..., -RIM:] if rim.shape[-1] >= RIM else rim[..., -1:].expand(*rim.shape[:-1], RIM)
        columns = torch.cat([view[..., -DEPTH:], resize(rim, (PIECE, RIM))], -1)
        views.append(view)
        borders.append(columns.flip(-1).movedim(-1, 1).flatten(1, 2))
        rims.append((64 * rim.double()).movedim(1, -1).unflatten(0, batch))  # (*batch, n, length, RIM, 3)
    if may_turn:
        every = torch.stack(rims, -4).flatten(-5, -4)
        steps = unusual_steps(every, every.flip(-3))[..., None, :, :, :]
    else:
        pairs = [unusual_steps(rims[first], rims[second].flip(-3)) for first, second in FACING]
        steps = torch.stack(pairs, -4)
    return Views(
        torch.stack(views, 1).unflatten(0, batch), torch.stack(borders, 1).unflatten(0, batch), steps
    )


def unusual_steps(first: Tensor, second: Tensor) -> Tensor:
    """Logarithms of the mean Mahalanobis distance of steps between borders ``(*batch, n, length, RIM, 3)``.

    The first border ends its piece, so its outermost column is the last; that of the second as well, because
    both are seen at the right. Gives ``(*batch, n, n, 2)``: by the changes inside the first, and the second.
    """
    after = _mahalanobis(first[..., -1, :], first[..., -2, :], second[..., -1, :])
    before = _mahalanobis(second[..., -1, :], second[..., -2, :], first[..., -1, :])
    return torch.stack([after, before.transpose(-1, -2)], -1)


def _mahalanobis(edge: Tensor, inside: Tensor, others: Tensor) -> Tensor:
    """Of the steps from ``edge`` of i to ``others`` of j, all ``(*batch, n, length, 3)``: ``(*batch, n, n)``.

    The square is multiplied out, so that no step is held for a pair; in double precision nothing is lost.
    """
    middle = edge.mean((-3, -2), keepdim=True)
    edge, inside, others = edge - middle, inside - middle, others - middle
    changes, length = edge - inside, edge.shape[-2]
    mean = changes.mean(-2, keepdim=True)
    besides = torch.tensor(BESIDES, dtype=edge.dtype, device=edge.device)
    every = torch.cat([changes, besides.expand(*changes.shape[:-2], -1, 3)], -2)
    centred = every - every.mean(-2, keepdim=True)
    precision = _inverse(centred.transpose(-1, -2) @ centred / (every.shape[-2] - 1))  # (*batch, n, 3, 3)
    expected = edge + mean
    weighted = expected @ precision
    own = (weighted * expected).sum((-2, -1))
    cross = weighted.flatten(-2) @ others.flatten(-2).transpose(-1, -2)
    square = precision.flatten(-2) @ (others.transpose(-1, -2) @ others).flatten(-2).transpose(-1, -2)
    distance = (square - 2 * cross + own[..., None]) / length
    return (distance.clamp(min=0) + 0.02).log().float()


def _inverse(matrices: Tensor) -> Tensor:
    """The inverses of ``(*batch, 3, 3)`` by Cramer's rule: one small formula instead of a solver's calls."""
    a, b, c = matrices.unbind(-1)
    columns = torch.stack([b.cross(c, dim=-1), c.cross(a, dim=-1), a.cross(b, dim=-1)], -2)
    return columns / (a * b.cross(c, dim=-1)).sum(-1)[..., None, None]


def scaled_down(pieces: Tensor) -> Tensor:
    """Pieces ``(*batch, n, height, width, 3)`` in float32, with no side longer than :data:`NATIVE`."""
    height, width = pieces.shape[-3:-1]
    size = min(height, NATIVE), min(width, NATIVE)
    if size == (height, width):
        return pieces.float()
    scaled = resize(pieces.flatten(0, -4).movedim(-1, 1).float(), size)
    return scaled.movedim(1, -1).unflatten(0, pieces.shape[:-3])


def resize(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Pixels ``(batch, channels, height, width)`` at another size, averaged where they get fewer."""
    if tuple(pixels.shape[-2:]) == size:
        return pixels
    return F.interpolate(pixels, size, mode="bilinear", antialias=True, align_corners=False)
