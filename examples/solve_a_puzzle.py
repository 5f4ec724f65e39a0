"""A scrambled picture put together: where each piece goes, and how sure that is.

    python examples/solve_a_puzzle.py [PICTURE] [ROWS COLUMNS]

Without a picture one is drawn. The pieces are all that the solver sees.
"""

import sys
from typing import Any

import numpy as np
import torch

import factorank as fr


def drawn_picture(height: int = 240, width: int = 320) -> np.ndarray:
    """Hills under a sky, uint8 (height, width, 3)."""
    y, x = np.mgrid[0:height, 0:width] / height
    picture = np.stack([0.4 + 0.5 * y, 0.55 + 0.3 * y, 0.9 - 0.2 * y], -1)
    for k in range(4):
        hill = 0.45 + 0.14 * k + 0.08 * np.sin((3 + k) * x + 2 * k) + 0.03 * np.sin((11 - k) * x)
        picture[y > hill] = np.array([0.2, 0.5, 0.3]) * (1 - 0.18 * k)
    sun = (x - 1) ** 2 + (y - 0.2) ** 2 < 0.01
    picture[sun] = (1.0, 0.9, 0.5)
    grain = np.random.default_rng(0).normal(0, 0.02, picture.shape)
    return (255 * np.clip(picture + 0.05 * np.sin(7 * x + 5 * y)[..., None] + grain, 0, 1)).astype(np.uint8)


def main(picture: Any = None, grid: tuple[int, int] = (6, 8), seed: int = 0) -> fr.jigsaw.Answer:
    """Scramble and solve; the answer."""
    answer = fr.jigsaw.solve(drawn_picture() if picture is None else picture, grid=grid, seed=seed)
    assert answer.true_slots is not None
    assert answer.piece_probability is not None
    right = int((answer.slots == answer.true_slots).sum())
    print(f"{right} of {len(answer.slots)} pieces in place; said to be right with {answer.probability:.1%}")
    print("how sure each piece is, in percent, by slot:")
    by_slot = torch.empty(len(answer.slots))
    by_slot[answer.slots] = answer.piece_probability.float()
    for row in by_slot.view(grid):
        print("  " + " ".join(f"{100 * p:3.0f}" for p in row.tolist()))
    return answer


if __name__ == "__main__":
    path, rows, columns = [*sys.argv[1:], *[None, "6", "8"][len(sys.argv) - 1 :]][:3]
    main(path, (int(rows or 6), int(columns or 8)))
