"""What is put at the positions of a block: values drawn, those of a given code, or the most likely ones."""

import torch
from torch import Tensor

from factorank.sampling.categorical import BELOW_ONE, draw, draw_many, looked_up


class Chooser:
    """What is put at the positions being revealed."""

    def shared(self, logits: Tensor, samples: int) -> Tensor:
        """Values ``(samples, rows, n)`` where the samples of a row share its logits ``(rows, n, values)``."""
        raise NotImplementedError

    def values(self, logits: Tensor, positions: Tensor) -> Tensor:
        """Values ``(samples, rows, size)`` at positions of that shape with logits ``(…, size, values)``."""
        raise NotImplementedError


class Draw(Chooser):
    """Draws from the predictions."""

    def __init__(self, generator: torch.Generator | None) -> None:
        self.generator = generator

    def shared(self, logits: Tensor, samples: int) -> Tensor:
        return draw_many(logits, samples, generator=self.generator)

    def values(self, logits: Tensor, positions: Tensor) -> Tensor:
        return draw(logits, generator=self.generator)


class StratifiedDraw(Chooser):
    r"""Draws that are spread evenly over the samples of a row, position by position: a Latin hypercube.

    Sample s of a row has at position i the uniform number :math:`(\pi_i(s) + u_{is}) / S`, with a random
    permutation :math:`\pi_i` of the S samples and :math:`u_{is}` uniform on [0, 1), and takes the value whose
    share of [0, 1) holds it. Each sample by itself follows the law; together, where they share predictions
    with cumulative probabilities F, the values up to v are less than one off :math:`S F(v)` draws, so that
    what a position does by itself to a mean over the samples hardly varies.

    ``part`` is for samples that are drawn in chunks: those of all chunks are spread together.

    Reference: McKay, Beckman, Conover (1979). A comparison of three methods for selecting values of input
    variables in the analysis of output from a computer code. Technometrics 21.
    """

    def __init__(
        self,
        samples: int,
        rows: int,
        positions: int,
        generator: torch.Generator | None = None,
        device: torch.device | None = None,
    ) -> None:
        def rand() -> Tensor:
            return torch.rand(
                (rows, positions, samples), dtype=torch.float64, device=device, generator=generator
            )

        stratum = rand().argsort(-1)
        uniform = rand().add_(stratum).div_(samples).clamp_(max=BELOW_ONE)  # the sum may round up
        self.uniform = uniform.movedim(-1, 0)

    def part(self, samples: slice) -> "StratifiedDraw":
        """Some of the samples."""
        some = object.__new__(StratifiedDraw)
        some.uniform = self.uniform[samples]
        return some

    def shared(self, logits: Tensor, samples: int) -> Tensor:
        return looked_up(logits, self.uniform.movedim(0, -1).contiguous()).movedim(-1, 0)

    def values(self, logits: Tensor, positions: Tensor) -> Tensor:
        return looked_up(logits, self.uniform.gather(-1, positions)[..., None]).squeeze(-1)


class Replay(Chooser):
    """The values of given codes ``(samples, rows, n)``."""

    def __init__(self, code: Tensor) -> None:
        self.code = code

    def shared(self, logits: Tensor, samples: int) -> Tensor:
        return self.code

    def values(self, logits: Tensor, positions: Tensor) -> Tensor:
        return self.code.gather(-1, positions)


class Greedy(Chooser):
    """The most likely values."""

    def shared(self, logits: Tensor, samples: int) -> Tensor:
        return logits.argmax(-1).expand(samples, *logits.shape[:-1])

    def values(self, logits: Tensor, positions: Tensor) -> Tensor:
        return logits.argmax(-1)
