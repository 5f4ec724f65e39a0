"""How well puzzles are solved: whole puzzles and single pieces, exact and with identical pieces as equals."""

import math

import torch
from torch import Tensor

from factorank.errors import FactorankError
from factorank.jigsaw.puzzles import Direction
from factorank.permutations import inverse, is_permutation


def pieces_alike(order: Tensor, solution: Tensor, pieces: Tensor, direction: Direction) -> Tensor:
    """Which entries of a solution give the pixels of the true picture: bool ``(*batch, n)``.

    A piece in another piece's slot counts as right if the two have the same pixels. ``order`` is the truth;
    it and the ``solution`` are read in the direction, ``(*batch, n)``. ``pieces``
    ``(*batch, n, piece, piece, channels)`` are in scrambled order.

    >>> pieces = torch.tensor([7, 7, 9]).view(3, 1, 1, 1)  # two pieces of one colour
    >>> pieces_alike(torch.tensor([0, 1, 2]), torch.tensor([1, 0, 2]), pieces, "slot-of-piece")
    tensor([True, True, True])
    """
    pixels = pieces.flatten(-3)
    if direction == "slot-of-piece":
        # Entry i: piece i was put into slot solution[i], where the piece of that slot belongs.
        placed, belongs = pixels, _take(pixels, inverse(order, check=False).gather(-1, solution))
    else:
        placed, belongs = _take(pixels, solution), _take(pixels, order)
    return (placed == belongs).all(-1)


def _take(pixels: Tensor, at: Tensor) -> Tensor:
    return pixels.gather(-2, at[..., None].expand(*at.shape, pixels.shape[-1]))


class Scores:
    """Counts over puzzles, added up batch by batch; :meth:`summary` gives the numbers of a row of results."""

    def __init__(self) -> None:
        self.solved: dict[str, list[Tensor]] = {"solved": [], "solved_identical": []}
        self.pieces: dict[str, list[Tensor]] = {"pieces": [], "pieces_identical": []}

    def add(self, order: Tensor, solution: Tensor, pieces: Tensor, direction: Direction) -> None:
        """Count the puzzles of a batch ``(batch, n)``. A solution that is no permutation solves nothing."""
        if solution.shape != order.shape:
            raise FactorankError(
                f"there are {tuple(order.shape)} truths but {tuple(solution.shape)} solutions"
            )
        right = order == solution
        alike = pieces_alike(order, solution, pieces, direction)
        self.solved["solved"].append(right.all(-1))
        self.solved["solved_identical"].append(alike.all(-1) & is_permutation(solution))
        self.pieces["pieces"].append(right.double().mean(-1))
        self.pieces["pieces_identical"].append(alike.double().mean(-1))

    def summary(self) -> dict[str, float | int]:
        """Shares, with 95% intervals: Wilson's for puzzles, for pieces from the spread over the puzzles.

        The pieces of one puzzle are right or wrong together, so they are not independent trials.
        """
        puzzles = sum(map(len, self.solved["solved"]))
        if not puzzles:
            raise FactorankError("no puzzle was scored")
        result: dict[str, float | int] = {"puzzles": puzzles}
        for name, batches in self.solved.items():
            count = int(torch.cat(batches).sum())
            low, high = wilson(count, puzzles)
            result |= {name: count / puzzles, f"{name}_low": low, f"{name}_high": high}
        for name, batches in self.pieces.items():
            shares = torch.cat(batches)
            mean = float(shares.mean())
            half = 1.96 * float(shares.std(correction=0)) / math.sqrt(puzzles)
            low, high = max(mean - half, 0.0), min(mean + half, 1.0)
            result |= {name: mean, f"{name}_low": low, f"{name}_high": high}
        return result


def wilson(count: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95% interval of a share, by Wilson's score.

    Wilson, "Probable inference, the law of succession, and statistical inference", 1927.

    >>> [round(bound, 4) for bound in wilson(98, 100)]
    [0.93, 0.9945]
    """
    share = count / total
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max((middle - half) / scale, 0.0), min((middle + half) / scale, 1.0)
