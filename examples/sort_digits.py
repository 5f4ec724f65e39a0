"""Sort lists of pictures of digits with an encoder of one's own: sort_digits.py [FOLDER of MNIST]."""

import sys
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

import factorank as fr


def digits(folder: str | None, part: str) -> list[Tensor]:
    """Pictures ``(count, 14, 14)`` of each digit: of MNIST, or without it noisy bars as long as the digit."""
    if folder is None:
        bars = (torch.arange(14) < torch.arange(10)[:, None] + 3).float()
        return list(bars[:, None, :, None] + 0.5 * torch.randn(10, 500, 14, 14))
    pixels = np.fromfile(f"{folder}/{part}-images-idx3-ubyte", np.uint8)[16:].reshape(-1, 14, 2, 14, 2)
    labels = np.fromfile(f"{folder}/{part}-labels-idx1-ubyte", np.uint8)[8:]
    return [torch.from_numpy(pixels[labels == digit].mean((2, 4)) / 128 - 1).float() for digit in range(10)]


def lists_of(pictures: list[Tensor], n: int, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Orders that sort lists of n different digits, and the pictures ``(rows, n, 14, 14)``."""
    labels = fr.random_permutations(10, (rows,), generator=generator)[:, :n]
    lists = torch.empty(rows, n, 14, 14)
    for digit, known in enumerate(pictures):
        here = labels == digit
        lists[here] = known[torch.randint(len(known), (int(here.sum()),), generator=generator)]
    return labels.argsort(-1), lists


class Digits(nn.Module):
    """A token for each picture, which depends on nothing else."""

    aligned = exchangeable = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(196, 256), nn.GELU(), nn.Linear(256, width))

    def forward(self, lists: Tensor) -> Tensor:
        return self.layers(lists.flatten(0, -3)).unflatten(0, lists.shape[:-2])


def main(folder: str | None = None, n: int = 5, steps: int = 2000) -> dict[str, float]:
    """The share of test lists that a masked model of each code sorts without an error, at one evaluation."""
    torch.manual_seed(0)
    train = digits(folder, "train")
    order, lists = lists_of(digits(folder, "t10k"), n, 2000, torch.Generator().manual_seed(1))
    shares, net = {}, partial(fr.PermutationModel, n, width=64, depth=2, heads=4)
    for model in (net("insertion", context=Digits(64)), net("lehmer", context=Digits(64), target="rank")):
        fr.train(model, partial(lists_of, train, n), steps=steps, batch_size=64, lr=1e-3, device="cpu")
        right = (model.distribution(lists, nfe=1).mode == order).all(-1)
        shares[model.code.name] = float(right.float().mean())
    return shares


if __name__ == "__main__":
    print(main(sys.argv[1] if len(sys.argv) > 1 else None))
