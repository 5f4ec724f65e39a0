"""What the experiments on MNIST share: distorted digits to train on, and a convolutional network."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorank.data.digits import SIDE

TURN, SCALE, SHEAR, SHIFT, BEND = math.radians(15), 0.12, 0.15, 2.5, 1.0
"""The largest distortion: radians, share of the size, share of the height, pixels, pixels of the bending."""
CONTROLS = 4
"""Points in a row that the bending moves; pixels between them are moved smoothly."""


def distorted(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Digits ``(*batch, 28, 28)``, uint8 or 0 to 255, each turned, scaled, sheared, moved and bent at random.

    Gives float32 of the same shape, from 0 to 1. Tensor operations only, all random numbers from the
    generator: a captured CUDA graph can hold it.
    """
    rows = pixels.reshape(-1, 1, SIDE, SIDE).float() / 255
    count, device = len(rows), pixels.device

    def uniform(*shape: int) -> Tensor:
        return 2 * torch.rand((count, *shape), generator=generator, device=device) - 1

    turn, shear, scale = TURN * uniform(), SHEAR * uniform(), 1 + SCALE * uniform(2)
    cos, sin, shift = turn.cos(), turn.sin(), (2 * SHIFT / SIDE) * uniform(2)
    across = torch.stack([scale[:, 0] * cos, -sin + shear, shift[:, 0]], -1)
    down = torch.stack([sin, scale[:, 1] * cos, shift[:, 1]], -1)
    grid = F.affine_grid(torch.stack([across, down], 1), [count, 1, SIDE, SIDE], align_corners=False)
    bend = F.interpolate(uniform(2, CONTROLS, CONTROLS), (SIDE, SIDE), mode="bilinear", align_corners=True)
    grid = grid + (2 * BEND / SIDE) * bend.permute(0, 2, 3, 1)
    return F.grid_sample(rows, grid, align_corners=False).view(pixels.shape)


def half_distorted(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """The same, with half of the digits left as they are."""
    changed = torch.rand(pixels.shape[:-2], generator=generator, device=pixels.device) < 0.5
    return torch.where(changed[..., None, None], distorted(pixels, generator), pixels.float() / 255)


class DigitNetwork(nn.Module):
    """Digits ``(*batch, 28, 28)`` to numbers ``(*batch, out)``: 3×3 convolutions without padding.

    Every layer has more channels than the one before, a batch norm and a ReLU; there is no pooling. Layers
    with stride 2 halve the side. Bytes count as 0 to 1.

    Args:
        out: how many numbers.
        channels: of each layer.
        strides: of each layer; 1 unless given.
    """

    def __init__(self, out: int, channels: tuple[int, ...], strides: tuple[int, ...] | None = None) -> None:
        super().__init__()
        strides = (1,) * len(channels) if strides is None else strides
        layers: list[nn.Module] = []
        before, side = 1, SIDE
        for count, stride in zip(channels, strides, strict=True):
            layers += [nn.Conv2d(before, count, 3, stride, bias=False), nn.BatchNorm2d(count)]
            layers.append(nn.ReLU(inplace=True))
            before, side = count, (side - 3) // stride + 1
        self.layers = nn.Sequential(*layers)
        self.linear = nn.Linear(before * side * side, out)

    def forward(self, digits: Tensor) -> Tensor:
        rows = digits.reshape(-1, 1, SIDE, SIDE)
        rows = rows.float() / 255 if rows.dtype == torch.uint8 else rows
        # Channels last: convolutions on a GPU take twice the time otherwise.
        hidden = self.layers[0](2 * rows - 1).contiguous(memory_format=torch.channels_last)
        hidden = self.layers[1:](hidden)
        with torch.autocast(rows.device.type, enabled=False):
            numbers = self.linear(hidden.flatten(1).float())
        return numbers.view(*digits.shape[:-2], -1)
