"""How positions are revealed: what may be asked for, and the values that are put there.

A *chooser* gives the values of the positions of a block: drawn from the predictions, the values of a code
that is scored, or the most likely ones. Draws have no bias from float32 noise. The usual Gumbel or
exponential noise has 24 bits: values less likely than about 1e-7 are never drawn and the rest are drawn a
little too often. Here the cumulative probabilities are float64 and a 53-bit uniform number is looked up in
them. A value of probability zero is never drawn: it holds no interval.
"""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from factorank.errors import ModelError
from factorank.kernels import dispatch

if TYPE_CHECKING:
    from factorank.models.model import PermutationModel

UNMASK = ("random", "left-to-right", "right-to-left", "confident")
"""The orders in which a masked model can reveal its positions."""
BELOW_ONE = 1 - 2**-53
"""The largest float64 below 1."""


@dataclasses.dataclass
class Step:
    """The state of a walk that reveals codes ``(samples, rows, n)``; hidden positions hold ``mask_value``."""

    code: Tensor
    log_prob: Tensor
    """Of what has been revealed so far, where it was asked for."""
    nfe: Tensor
    """How many network evaluations each code took so far."""


def last(steps: Iterator[Step]) -> Step:
    """The end of a walk; what came before is not kept."""
    for step in steps:  # noqa: B007
        pass
    return step


@dataclasses.dataclass(frozen=True)
class Unmasking:
    """How a law reveals its positions: in ``nfe`` blocks, or in as many as an ``entropy_bound`` allows."""

    nfe: int | None
    unmask: str
    entropy_bound: float | None = None


def checked_unmasking(
    model: "PermutationModel", nfe: int | None, unmask: str | None, entropy_bound: float | None
) -> Unmasking:
    """What was asked for, with the defaults filled in; what the model has not learnt is refused."""
    if unmask is not None and unmask not in UNMASK:
        raise ModelError(f"{{parameter}} is one of {', '.join(UNMASK)}, not {unmask!r}", parameter="unmask")
    if nfe is not None and (isinstance(nfe, bool) or not isinstance(nfe, int) or not 1 <= nfe <= model.n):
        raise ModelError(
            f"the model has {model.n} positions, so {{parameter}} is a whole number from 1 to {model.n}, not"
            f" {nfe!r}",
            parameter="nfe",
        )
    if model.causal:
        options = {"nfe": nfe, "unmask": unmask, "entropy_bound": entropy_bound}
        allowed: dict[str, Any] = {"nfe": model.n, "unmask": "left-to-right", "entropy_bound": None}
        for name, value in options.items():
            if value is not None and value != allowed[name]:
                raise ModelError(
                    f"an autoregressive model reveals its positions left to right, one at a time:"
                    f" nfe={model.n}, unmask='left-to-right' and no entropy_bound;"
                    f" {{parameter={value!r}}} needs a masked model",
                    parameter=name,
                )
        return Unmasking(model.n, "left-to-right")
    if model.masks == "all":
        if nfe not in (None, 1) or entropy_bound is not None:
            raise ModelError(
                "a model with masks='all' has learnt 1 NFE only; masks='any' learns every other",
                parameter="nfe",
            )
        return Unmasking(1, unmask or "random")
    if model.masks == "suffix" and nfe != 1:
        if unmask not in (None, "left-to-right"):
            raise ModelError(
                f"a model with masks='suffix' has learnt to reveal left to right; {{parameter={unmask!r}}}"
                " needs masks='any'",
                parameter="unmask",
            )
        unmask = "left-to-right"
    if entropy_bound is None:
        return Unmasking(model.n if nfe is None else nfe, unmask or "random")
    if nfe is not None:
        raise ModelError(
            f"with an entropy_bound the NFE is what it takes, but {{parameter={nfe}}} was given too",
            parameter="nfe",
        )
    if unmask == "random" or not entropy_bound >= 0:  # which NaN is not either
        raise ModelError(
            "an entropy_bound is 0 or more nats and goes with unmask='confident' (the default with it),"
            f" 'left-to-right' or 'right-to-left', but {entropy_bound=} and {unmask=} were given"
        )
    return Unmasking(None, unmask or "confident", entropy_bound)


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


def cumulative(logits: Tensor) -> Tensor:
    """Cumulative probabilities ``(*batch, values)`` in float64; the last one is exactly 1."""
    total = dispatch.cumulative_sums(torch.softmax(logits.double(), -1))
    return total / total[..., -1:]


def draw(logits: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """One value for each row of logits ``(*batch, values)``: int64 ``(*batch,)``.

    >>> draw(torch.tensor([-torch.inf, 0.0, -torch.inf]))
    tensor(1)
    """
    return draw_many(logits, 1, generator=generator)[0]


def draw_many(logits: Tensor, count: int, *, generator: torch.Generator | None = None) -> Tensor:
    """``count`` values for each row of logits ``(*batch, values)``: int64 ``(count, *batch)``.

    >>> draw_many(torch.tensor([[-torch.inf, 0.0], [0.0, -torch.inf]]), 3)
    tensor([[1, 0],
            [1, 0],
            [1, 0]])
    """
    uniform = torch.rand(
        (*logits.shape[:-1], count), dtype=torch.float64, device=logits.device, generator=generator
    )
    return looked_up(logits, uniform).movedim(-1, 0)


def looked_up(logits: Tensor, uniform: Tensor) -> Tensor:
    """The values that uniform numbers ``(*batch, count)``, float64 in [0, 1), stand for in logits
    ``(*batch, values)``: int64 ``(*batch, count)``.

    >>> looked_up(torch.zeros(4), torch.tensor([0.0, 0.3, 0.6, 0.9], dtype=torch.float64))
    tensor([0, 1, 2, 3])
    """
    return torch.searchsorted(cumulative(logits), uniform, right=True)
