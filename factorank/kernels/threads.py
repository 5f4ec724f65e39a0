"""Rows shared out to threads, for compiled loops that hold no lock."""

import functools
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch


def in_threads(
    kernel: Callable[[Any, Any], Any], rows: np.ndarray, out: np.ndarray, parts: int
) -> list[tuple[int, Any]]:
    """Run ``kernel(rows, out)`` on ``parts`` slices of the rows, or on fewer if torch has fewer threads.

    Returns the first row of each slice and what the kernel returned for it, in order.
    """
    parts = max(1, min(torch.get_num_threads(), len(rows), parts))
    if parts == 1:
        return [(0, kernel(rows, out))]
    bounds = [len(rows) * i // parts for i in range(parts + 1)]
    slices = [slice(start, stop) for start, stop in itertools.pairwise(bounds)]
    others = [_pool().submit(kernel, rows[part], out[part]) for part in slices[1:]]
    results = [kernel(rows[slices[0]], out[slices[0]]), *(other.result() for other in others)]
    return list(zip(bounds, results, strict=False))


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Threads of our own, made at first use: numba's are neither safe to enter twice nor to fork."""
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="factorank")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
