"""Which way up a picture stands: a network that scores the picture in each of its turns.

Pieces that may be turned can be put together up to a turn of the whole only, because neighbours fit in all of
its turns alike. What a photograph shows tells which turn is right: light comes from above, things stand.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorank.jigsaw.photographs.views import resize

SIDE = 96
"""The side, in pixels, of a square picture that a network learns from. Others have as many pixels."""
READ = 112
"""The side of one that it is asked about. The shipped one has learnt from 64 pixels, but knows more of larger
pictures: of 100 and 200 held-out photographs (BSDS500, ImageNet) 84.0 and 77.5% at 64 pixels, 91.0 and 79.5%
at 112, and 86.0 and 81.5% at 192. The likelihood is best at 112."""
GREY = 127.5
"""What an empty slot shows."""


class WayUp(nn.Module):
    """A residual network from a small picture to a score of how well it stands.

    The picture is scored in each of its turns with the same weights, so that a turned picture has the same
    scores in another order.

    Args:
        widths: channels at the first resolution, at half of it, a quarter, and so on.
        blocks: residual blocks at each.
        dropout: of the features that are averaged over the picture.
        stride: how many pixels, down and across, become one place of the first resolution.
        temperature: what logits are divided by to make probabilities. It is fitted to held-out photographs,
            as the pictures to learn from are made harder than those.
    """

    def __init__(
        self,
        widths: Sequence[int] = (96, 160, 208),
        blocks: Sequence[int] = (2, 3, 2),
        dropout: float = 0.1,
        stride: int = 4,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        self.options: dict[str, Any] = {"widths": list(widths), "blocks": list(blocks)}
        self.options |= {"dropout": dropout, "stride": stride, "temperature": temperature}
        self.begin = nn.Conv2d(
            3 + PLACES, widths[0], 2 * stride, stride=stride, padding=stride // 2, bias=False
        )
        self.norm = nn.BatchNorm2d(widths[0])
        stages: list[nn.Module] = []
        for at, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            if at:
                stages.append(Smaller(widths[at - 1], width))
            stages += [Block(width) for _ in range(count)]
        self.stages = nn.Sequential(*stages)
        self.score = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(widths[-1], 128), nn.GELU(), nn.Linear(128, 1, bias=False)
        )

    def forward(self, pictures: Tensor) -> Tensor:
        """Scores ``(batch,)`` of pictures ``(batch, 3, height, width)``, in units of 64 grey levels."""
        state = self.stages(F.relu(self.norm(self.begin(_with_places(pictures)))))
        scores: Tensor = self.score(state.mean((-2, -1)))[:, 0].float()
        return scores

    def logits(self, pictures: Tensor, *, mirrored: bool = False) -> Tensor:
        """Logits of how often a picture must be turned clockwise to stand: ``(batch, 4)``.

        Those of a picture that is not square are ``(batch, 2)``, of no turn and of a half. With ``mirrored``
        they are means over the picture and its mirror image, which stands the same way.
        """
        turned = torch.cat(in_its_turns(pictures))  # at once: they share the statistics of a batch
        every = torch.cat([turned, turned.flip(-1)]) if mirrored else turned
        scores: Tensor = self(every.contiguous(memory_format=torch.channels_last))
        return scores.unflatten(0, (1 + mirrored, -1, len(pictures))).mean(0).T

    @torch.no_grad()
    def turns_of(self, picture: Tensor) -> tuple[int, float]:
        """How often a picture ``(height, width, 3)`` of 0 to 255 must be turned clockwise to stand, and the
        probability that it stands then.

        A picture that is not square is left as it is or turned by half.
        """
        weight = self.begin.weight
        pixels = picture.to(weight).movedim(-1, 0)[None]
        small = as_read(resize(pixels, read_size(len(picture), picture.shape[1], READ)))
        logits = self.logits(small, mirrored=True)[0] / self.options["temperature"]
        return int(logits.argmax()) * 4 // len(logits), float(logits.softmax(-1).max())


class Block(nn.Module):
    """Two convolutions beside the way that leaves all as it is."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        nn.init.zeros_(self.second_norm.weight)

    def forward(self, state: Tensor) -> Tensor:
        inner = F.relu(self.first_norm(self.first(state)))
        return F.relu(state + self.second_norm(self.second(inner)))


class Smaller(nn.Module):
    """Half the resolution, with other channels, which know again where in the picture they are."""

    def __init__(self, width: int, to: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(width + PLACES, to, 1, bias=False)
        self.norm = nn.BatchNorm2d(to)

    def forward(self, state: Tensor) -> Tensor:
        return F.relu(self.norm(self.mix(_with_places(F.avg_pool2d(state, 2)))))


PLACES = 2
"""Channels that say where a pixel is."""


def _with_places(state: Tensor) -> Tensor:
    """Channels with the height above the middle and the distance from the middle column besides."""
    height, width = state.shape[-2:]
    longest = max(height, width)
    down = (torch.arange(height, device=state.device) - (height - 1) / 2) * (2 / longest)
    right = (torch.arange(width, device=state.device) - (width - 1) / 2) * (2 / longest)
    places = torch.stack([down[:, None].expand(-1, width), right.abs().expand(height, -1)])
    return torch.cat([state, places.to(state.dtype).expand(len(state), -1, -1, -1)], 1)


def in_its_turns(pictures: Tensor) -> list[Tensor]:
    """Pictures ``(…, height, width)`` turned clockwise 0 to 3 times; 0 and 2 if they are not square."""
    step = 1 if pictures.shape[-2] == pictures.shape[-1] else 2
    return [torch.rot90(pictures, -turn, (-2, -1)) for turn in range(0, 4, step)]


def as_read(pixels: Tensor) -> Tensor:
    """Pixels of 0 to 255 in the units of the network."""
    return (pixels - GREY) / 64


def read_size(height: int, width: int, side: int = SIDE) -> tuple[int, int]:
    """Height and width at which a picture is read: multiples of 8, and about side × side pixels in all.

    >>> read_size(500, 500), read_size(200, 300), read_size(200, 300, 112)
    ((96, 96), (80, 120), (88, 136))
    """
    if height == width:
        return side, side
    ratio = min(max(height / width, 1 / 16), 16.0)
    size = (max(16, 8 * round(side * math.sqrt(r) / 8)) for r in (ratio, 1 / ratio))
    first, second = size
    return (
        (first, second) if first != second else (first, second + 8) if height < width else (first + 8, second)
    )


def assembled(pieces: Tensor, slots: Tensor, turns: Tensor, grid: tuple[int, int]) -> Tensor:
    """The picture of a solution at a few hundred pixels, floats ``(height, width, 3)``.

    ``pieces`` ``(n, side, side, 3)`` of 0 to 255 are scaled down one by one, turned clockwise as often as
    ``turns`` ``(n,)`` says and laid into ``slots`` ``(n,)``. Empty slots are grey.
    """
    rows, columns = grid
    side = min(pieces.shape[1], -(-3 * SIDE // max(grid)))
    small = resize(pieces.movedim(-1, 1).float(), (side, side))
    turned = torch.stack([torch.rot90(small, -turn, (-2, -1)) for turn in range(4)])
    board = small.new_full((rows * columns, 3, side, side), GREY)
    board[slots] = turned[turns, torch.arange(len(small), device=small.device)]
    return board.unflatten(0, (rows, columns)).permute(0, 3, 1, 4, 2).flatten(2, 3).flatten(0, 1)
