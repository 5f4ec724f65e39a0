"""Small settings and drawn pictures for the tests of jigsaw puzzles."""

import torch
import torch.nn.functional as F

from factorank.data.picture_sets import Pictures

SMALL = {"grid": 2, "width": 16, "depth": 1, "heads": 2}
TINY = SMALL | {"batch_size": 32, "warmup": 5, "steps": 20}


def fields(count, side=16, seed=0):
    """Smooth random pictures that get redder to the right and greener downwards."""
    coarse = torch.rand((count, 3, 5, 5), generator=torch.Generator().manual_seed(seed)) / 2
    ramp = torch.linspace(0, 0.5, 5)
    coarse += torch.stack([ramp.expand(5, 5), ramp[:, None].expand(5, 5), torch.zeros(5, 5)])
    smooth = F.interpolate(coarse, size=(side, side), mode="bicubic", align_corners=True)
    return (255 * smooth).round().clamp(0, 255).to(torch.uint8).movedim(1, -1).contiguous()


PICTURES = Pictures(fields(400), fields(60, seed=1), fields(80, seed=2))
