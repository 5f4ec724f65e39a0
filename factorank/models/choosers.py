"""What is put at the positions being revealed: a draw, a code to be scored, or the likeliest values."""

import torch
from torch import Tensor

from factorank.models.categorical import draw, draw_many


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
