"""Rows shared out to threads, for compiled loops that hold no lock."""

import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

TURNS = 4
"""How often a thread that wakes at once takes a slice: enough that one which wakes late still finds some."""


def in_threads(
    kernel: Callable[[Any, Any], Any], rows: np.ndarray, out: np.ndarray, parts: int
) -> list[tuple[int, Any]]:
    """Run ``kernel(rows, out)`` on ``parts`` slices of the rows, or on fewer: ``TURNS`` for each thread.

    The threads, as many as torch has, take slices until none is left. The calling thread is one of them and
    waits for no thread that has not begun: other work, such as torch's own threads that wait for theirs, may
    keep it from waking in time. Returns the first row of each slice and what the kernel returned, in order.
    """
    parts = max(1, min(len(rows), parts, TURNS * torch.get_num_threads()))
    threads = min(torch.get_num_threads(), parts)
    if threads == 1:
        return [(0, kernel(rows, out))]
    bounds = [len(rows) * i // parts for i in range(parts + 1)]
    results: list[Any] = [None] * parts
    left, lock = iter(range(parts)), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                part = next(left, None)
            if part is None:
                return
            results[part] = kernel(
                rows[bounds[part] : bounds[part + 1]], out[bounds[part] : bounds[part + 1]]
            )

    helpers = [_pool().submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        failed = [helper.exception() for helper in helpers if not helper.cancel()]
    for error in failed:
        if error is not None:
            raise error
    return list(zip(bounds, results, strict=False))


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Threads of our own, made at first use: numba's are neither safe to enter twice nor to fork."""
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="factorank")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
