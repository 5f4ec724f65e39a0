"""Clipping, AdamW and the average of all weights in one call, on a CPU.

Small models spend much of a step on calling torch's optimizer for tensors of a few hundred numbers. Here a
table of addresses, a row for each weight, leads one compiled loop over all of them.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic
from torch import Tensor

from factorank.training.update import Named, OwnUpdate, Rule, decays

WEIGHT, GRADIENT, FIRST, SECOND, AVERAGE, LENGTH, DECAYS = range(7)
"""Columns of the table: addresses, 0 where there is none; how many numbers; whether it decays."""


class CompiledUpdate(OwnUpdate):
    """The same as :class:`factorank.training.update.TorchUpdate`, for float32 weights on the CPU."""

    def __init__(self, named: Named, rule: Rule) -> None:
        super().__init__(named, rule)
        self._lr = rule.lr
        self._weights = [weight for _, weight in named]
        self._counts = torch.zeros(len(named))
        self._table = np.zeros((len(named), 7), np.int64)
        for i, (_, weight) in enumerate(named):
            kept = (*self.moments[i], None if rule.average is None else rule.average.tensors[i])
            self._table[i, FIRST : AVERAGE + 1] = [0 if one is None else one.data_ptr() for one in kept]
            self._table[i, LENGTH:] = weight.numel(), decays(weight)

    def counts(self) -> Sequence[Tensor]:
        return list(self._counts)

    def set_lr(self, lr: float) -> None:
        self._lr = lr

    @torch.no_grad()
    def apply(self, norm: Tensor) -> None:
        weights, average, rule, table = self._weights, self.average, self.rule, self._table
        held = [None if weight.grad is None else weight.grad.contiguous() for weight in weights]
        table[:, WEIGHT] = [weight.data_ptr() for weight in weights]
        table[:, GRADIENT] = [0 if gradient is None else gradient.data_ptr() for gradient in held]
        size = _change(
            table, self._counts.numpy(), self._lr, *rule.betas, rule.eps, rule.weight_decay,
            math.inf if rule.clip is None else rule.clip, average is not None,
            1.0 if average is None else float(average.pull),
        )  # fmt: skip
        norm.fill_(size)
        torch.autograd.graph.increment_version(weights)


@intrinsic
def _pointer(typing: Any, address: Any) -> Any:
    """An address as that of float32 numbers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(types.int64), generate


_loose = {"contract", "nsz", "arcp", "reassoc"}


@njit(cache=True, nogil=True, boundscheck=False, error_model="numpy", fastmath=_loose)
def _change(
    table: Any, counts: Any, lr: Any, beta1: Any, beta2: Any, eps: Any, weight_decay: Any, clip: Any,
    averages: Any, pull: Any,
) -> float:  # fmt: skip
    total = 0.0
    for i in range(len(table)):
        length = table[i, LENGTH] if table[i, GRADIENT] else 0
        gradient = carray(_pointer(table[i, GRADIENT]), (length,))
        for k in range(length):
            total += np.float64(gradient[k]) * np.float64(gradient[k])
    size = math.sqrt(total)
    factor = np.float32(min(clip / (size + 1e-6), 1.0))
    b1, b2, one = np.float32(1.0 - beta1), np.float32(beta2), np.float32(1.0)
    c2, small, toward = np.float32(1.0 - beta2), np.float32(eps), np.float32(pull)
    for i in range(len(table)):
        length = table[i, LENGTH]
        if table[i, GRADIENT]:
            counts[i] += 1
            weight = carray(_pointer(table[i, WEIGHT]), (length,))
            gradient = carray(_pointer(table[i, GRADIENT]), (length,))
            first = carray(_pointer(table[i, FIRST]), (length,))
            second = carray(_pointer(table[i, SECOND]), (length,))
            rate = np.float32(lr / (1.0 - beta1 ** counts[i]))
            root = np.float32(1.0 / math.sqrt(1.0 - beta2 ** counts[i]))
            kept = np.float32(1.0 - lr * weight_decay) if table[i, DECAYS] else one
            for k in range(length):
                g = gradient[k] * factor
                m = first[k] + b1 * (g - first[k])
                v = b2 * second[k] + c2 * g * g
                first[k], second[k] = m, v
                weight[k] = weight[k] * kept - rate * m / (np.float32(math.sqrt(v)) * root + small)
    if averages:
        for i in range(len(table)):
            length = table[i, LENGTH]
            weight = carray(_pointer(table[i, WEIGHT]), (length,))
            average = carray(_pointer(table[i, AVERAGE]), (length,))
            for k in range(length):
                average[k] += toward * (weight[k] - average[k])
    return size
