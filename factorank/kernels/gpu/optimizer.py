"""Clipping, AdamW and the average of all weights in two launches.

Torch's kernels for lists of tensors take a pass over memory for each operation: norm, clipping, AdamW, and
three for the average. Here a table of addresses, a row for each chunk of each weight, leads one kernel to
the squares of the gradients and a second one to everything else. The plain twin is torch's AdamW.
"""

import math

import triton
import triton.language as tl
from torch import Tensor

CHUNK = 2048
"""Numbers of a weight that a row of the table stands for, at most."""
COLUMNS = 7
"""Of the table: addresses of weight, gradient, both moments and average; length; whether it decays."""


def adamw(
    table: Tensor,
    squares: Tensor,
    count: Tensor,
    norm: Tensor,
    lr: Tensor,
    pull: Tensor | None,
    *,
    betas: tuple[float, float],
    weight_decay: float,
    eps: float,
    clip: float | None,
) -> None:
    """Change the weights in place by their gradients, both at the addresses of the table.

    The table is int64 ``(rows, COLUMNS)``, and ``squares (rows,)`` takes the sum of squares of each row's
    gradients. The rest is 0-d: ``count`` of the steps, which goes up by one; ``norm``, which takes that of
    all gradients; the learning rate; and how far the average moves towards the weights, None for no average.
    ``clip`` is the largest norm of the gradients.
    """
    rows = len(table)
    log1, log2 = (math.log(beta) if beta > 0 else -math.inf for beta in betas)
    _sum_squares[(rows,)](table, squares, count, CHUNK=CHUNK)
    _change[(rows,)](
        table, squares, count, norm, lr, lr if pull is None else pull, rows, weight_decay,
        eps, 0.0 if clip is None else clip, CHUNK=CHUNK, CLIPS=clip is not None, AVERAGES=pull is not None,
        BETA1=betas[0], BETA2=betas[1], LOG1=log1, LOG2=log2,
    )  # fmt: skip


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
