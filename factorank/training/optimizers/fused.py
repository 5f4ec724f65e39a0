"""Clipping, AdamW and the average of all weights in two launches, on a GPU.

Torch's kernels for lists of tensors take a pass over memory for each operation: norm, clipping, AdamW, and
three for the average. Here a table of addresses, a row for each chunk of each weight, leads one kernel to
the squares of the gradients and a second one to everything else.
"""

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from factorank.training.optimizers.adamw import Named, OwnUpdate, Rule, decays

CHUNK = 2048
COLUMNS = 7
"""Of the table: addresses of weight, gradient, both moments and average; length; whether it decays."""


class FusedUpdate(OwnUpdate):
    """The same as :class:`factorank.training.optimizers.adamw.TorchUpdate`, for float32 weights on one
    GPU."""

    def __init__(self, named: Named, device: torch.device, rule: Rule) -> None:
        super().__init__(named, rule)
        self._lr = torch.tensor(rule.lr, device=device)
        self._count = torch.zeros((), device=device)
        rows = sum(triton.cdiv(weight.numel(), CHUNK) for _, weight in named)
        self._host = torch.zeros((rows, COLUMNS), dtype=torch.int64)
        self._table = torch.zeros((rows, COLUMNS), dtype=torch.int64, device=device)
        self._squares = torch.zeros(rows, device=device)
        self._none = torch.zeros((), device=device)

    def counts(self) -> Sequence[Tensor]:
        return [self._count] * len(self.named)

    def set_lr(self, lr: float) -> None:
        self._lr.fill_(lr)

    @torch.no_grad()
    def apply(self, norm: Tensor) -> None:
        gradients = [weight.grad for _, weight in self.named]
        self._held = [one if one is None else one.contiguous() for one in gradients]
        self._fill()
        if not torch.cuda.is_current_stream_capturing():
            self.captured()
        rows, average, rule = len(self._host), self.average, self.rule
        (beta1, beta2), clip = rule.betas, rule.clip
        log1, log2 = (math.log(beta) if beta > 0 else -math.inf for beta in rule.betas)
        _sum_squares[(rows,)](self._table, self._squares, self._count, CHUNK=CHUNK)
        _change[(rows,)](
            self._table, self._squares, self._count, norm, self._lr,
            self._none if average is None else average.pull, rows, rule.weight_decay, rule.eps,
            0.0 if clip is None else clip, CHUNK=CHUNK, CLIPS=clip is not None,
            AVERAGES=average is not None, BETA1=beta1, BETA2=beta2, LOG1=log1, LOG2=log2,
        )  # fmt: skip

    def captured(self) -> None:
        """Send the table to the device: a recorded step finds its gradients at the addresses it had then."""
        self._table.copy_(self._host)

    def _fill(self) -> None:
        at, host = 0, self._host.numpy()
        averages = self.average.tensors if self.average is not None else [None] * len(self.named)
        parts = zip(self.named, self._held, self.moments, averages, strict=True)
        for (_, weight), gradient, moments, average in parts:
            tensors = (weight, gradient, *moments, average)
            starts = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
            for first in range(0, weight.numel(), CHUNK):
                length = 0 if gradient is None else min(CHUNK, weight.numel() - first)
                host[at, :5] = [start + first * 4 for start in starts]
                host[at, 5:] = length, decays(weight)
                at += 1


@triton.jit
def _address(table, row, column):  # type: ignore[no-untyped-def]
    return tl.load(table + row * 7 + column).to(tl.pointer_type(tl.float32))


@triton.jit
def _sum_squares(table, squares, count, CHUNK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, i = tl.program_id(0), tl.arange(0, CHUNK)
    g = tl.load(_address(table, row, 1) + i, mask=i < tl.load(table + row * 7 + 5), other=0.0)
    tl.store(squares + row, tl.sum(g * g))
    if row == 0:
        tl.store(count, tl.load(count) + 1.0)


@triton.jit
def _change(  # type: ignore[no-untyped-def]
    table, squares, count, norm, lr, pull, rows, weight_decay, eps, clip,
    CHUNK: tl.constexpr, CLIPS: tl.constexpr, AVERAGES: tl.constexpr,
    BETA1: tl.constexpr, BETA2: tl.constexpr, LOG1: tl.constexpr, LOG2: tl.constexpr,
):  # fmt: skip
    row, i = tl.program_id(0), tl.arange(0, CHUNK)
    total = tl.zeros((CHUNK,), tl.float32)
    for first in range(0, rows, CHUNK):
        total += tl.load(squares + first + i, mask=first + i < rows, other=0.0)
    size = tl.sqrt(tl.sum(total))
    if row == 0:
        tl.store(norm, size)
    live = i < tl.load(table + row * 7 + 5)
    w_at, m_at, v_at = _address(table, row, 0) + i, _address(table, row, 2) + i, _address(table, row, 3) + i
    g = tl.load(_address(table, row, 1) + i, mask=live, other=0.0)
    if CLIPS:
        g *= tl.minimum(clip / (size + 1e-6), 1.0)
    rate, steps = tl.load(lr), tl.load(count).to(tl.float64)
    w, m = tl.load(w_at, mask=live, other=0.0), tl.load(m_at, mask=live, other=0.0)
    v = tl.load(v_at, mask=live, other=0.0)
    m += (1.0 - BETA1) * (g - m)
    v = BETA2 * v + (1.0 - BETA2) * g * g
    w *= 1.0 - rate * weight_decay * tl.load(table + row * 7 + 6).to(tl.float32)
    first, second = (1.0 - tl.exp(steps * LOG1)).to(tl.float32), (1.0 - tl.exp(steps * LOG2)).to(tl.float32)
    w -= rate / first * m / (tl.sqrt(v) / tl.sqrt(second) + eps)
    tl.store(w_at, w, mask=live)
    tl.store(m_at, m, mask=live)
    tl.store(v_at, v, mask=live)
    if AVERAGES:
        a_at = _address(table, row, 4) + i
        a = tl.load(a_at, mask=live, other=0.0)
        tl.store(a_at, a + tl.load(pull) * (w - a), mask=live)
