"""The operations on the CPU: picks a numba kernel by n and splits the rows over torch's threads."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.kernels.codes import lists, packed, sets, trees
from factorank.kernels.codes.bits import WORD
from factorank.kernels.codes.table import NO_FAULT, OPERATIONS, Walk
from factorank.kernels.threads import in_threads

GRAIN = 1 << 16
"""Elements that a thread takes at a time: some ten microseconds of work, as long as it takes to wake it."""


def transform(rows: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """``operator.transform`` for a CPU tensor; always checks, since the walks do so as they go."""
    if rows.numel() == 0:
        return rows.clone(), torch.tensor(NO_FAULT)
    # Two dtypes have kernels; the narrower ones, and the unsigned ones, take a detour through int64.
    native = rows.dtype in (torch.int64, torch.int32)
    source = (rows if native else rows.to(torch.int64)).contiguous()
    result = torch.empty_like(source)
    kernel = _kernel(name, source.shape[1])
    parts = in_threads(kernel, source.detach().numpy(), result.numpy(), source.numel() // GRAIN)
    fault = next((first + row for first, row in parts if row >= 0), NO_FAULT)
    return (result if native else result.to(rows.dtype)), torch.tensor(fault)


def longest_increasing(rows: Tensor) -> Tensor:
    """``operator.longest_increasing`` for a CPU tensor."""
    source = rows.to(torch.int64).contiguous()
    result = torch.empty(len(source), dtype=torch.int64)
    in_threads(lists.longest_increasing, source.numpy(), result.numpy(), source.numel() // GRAIN)
    return result


def _kernel(name: str, n: int) -> Callable[[Any, Any], int]:
    """Computes ``out`` from ``rows`` and returns the first faulty row, or -1."""
    walk = OPERATIONS[name].walk
    if walk is Walk.INVERT:
        return lists.invert
    if walk is Walk.SWAP_DECODE:
        return lists.swap_decode_nibbles if n <= 16 else lists.swap_decode
    if walk is Walk.SWAP_ENCODE:
        if n <= 16:
            return lists.swap_encode_nibbles
        kind = np.uint16 if n <= 1 << 16 else np.uint64
        return lambda rows, out: lists.swap_encode(rows, out, np.empty(n, kind), np.empty(n, kind))
    counts = walk is Walk.COUNT
    if n <= WORD:
        kernel = sets.count_word if counts else sets.select_word
    elif n <= packed.LIMIT:
        kernel = packed.count_packed if counts else packed.select_packed
    elif n <= sets.BITSET_LIMIT:
        kernel = sets.count_bitset if counts else sets.select_bitset
    else:
        kernel = trees.count_tree if counts else trees.select_tree
    form = (0,) * OPERATIONS[name].form  # the length of a tuple is a constant to numba
    return lambda rows, out: kernel(rows, out, form)
