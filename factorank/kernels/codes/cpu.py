"""The operations on the CPU: picks a numba kernel by n and splits the rows over torch's threads."""

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.kernels.codes import walks
from factorank.kernels.codes.table import NO_FAULT, Walk, operation

GRAIN = 1 << 15
"""Elements that a thread should have at least: waking one costs tens of microseconds."""


def transform(rows: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """``kernels.transform`` for a CPU tensor; always checks, as that is done in passing."""
    if rows.numel() == 0:
        return rows.clone(), torch.tensor(NO_FAULT)
    # Two dtypes have kernels; the narrower ones, and the unsigned ones, take a detour through int64.
    native = rows.dtype in (torch.int64, torch.int32)
    source = (rows if native else rows.to(torch.int64)).contiguous()
    result = torch.empty_like(source)
    kernel = _kernel(name, source.shape[1])
    fault = _in_threads(kernel, source.detach().numpy(), result.numpy())
    return (result if native else result.to(rows.dtype)), torch.tensor(fault)


def longest_increasing(rows: Tensor) -> Tensor:
    source = rows.to(torch.int64).contiguous()
    result = torch.empty(len(source), dtype=torch.int64)
    _in_threads(walks.longest_increasing, source.numpy(), result.numpy())
    return result


Kernel = Callable[[Any, Any], int]
"""Does rows into out and answers the first faulty row, or -1."""


def _kernel(name: str, n: int) -> Kernel:
    walk, form = operation(name).walk, operation(name).form
    if walk is Walk.INVERT:
        return walks.invert
    if walk is Walk.SWAP_DECODE:
        return walks.swap_decode_nibbles if n <= 16 else walks.swap_decode
    if walk is Walk.SWAP_ENCODE:
        if n <= 16:
            return walks.swap_encode_nibbles
        kind = np.uint16 if n <= 1 << 16 else np.uint64
        return lambda rows, out: walks.swap_encode(rows, out, np.empty(n, kind), np.empty(n, kind))
    counting = walk is Walk.COUNT
    if n <= walks.WORD:
        return (walks.count_word if counting else walks.select_word)(form)
    if n <= walks.BITSET_LIMIT:
        return (walks.count_bitset if counting else walks.select_bitset)(form)
    return (walks.count_tree if counting else walks.select_tree)(form)


def _in_threads(kernel: Kernel, rows: np.ndarray, out: np.ndarray) -> int:
    """Run a kernel over all rows; the first faulty row, or NO_FAULT."""
    parts = min(torch.get_num_threads(), len(rows), max(rows.size // GRAIN, 1))
    if parts == 1:
        row = kernel(rows, out)
        return NO_FAULT if row < 0 else row
    bounds = [len(rows) * i // parts for i in range(parts + 1)]
    spans = list(itertools.pairwise(bounds))
    pool = _pool()
    rest = [pool.submit(kernel, rows[a:b], out[a:b]) for a, b in spans[1:]]
    found = [kernel(rows[: bounds[1]], out[: bounds[1]]), *(one.result() for one in rest)]
    return next((a + row for (a, _), row in zip(spans, found, strict=True) if row >= 0), NO_FAULT)


_the_pool: ThreadPoolExecutor | None = None


def _pool() -> ThreadPoolExecutor:
    """Threads of our own, made at first use: numba's are neither safe to enter twice nor to fork."""
    global _the_pool
    if _the_pool is None:
        _the_pool = ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="factorank")
    return _the_pool


def _forget_pool() -> None:
    global _the_pool
    _the_pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)  # threads do not survive a fork
