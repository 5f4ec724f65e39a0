"""How benchmarks take times and show them."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

LONG = 1.5
"""Seconds from which two runs are measure enough."""


def seconds(call: Callable[[], Any], device: str = "cpu", enough: float = 0.25, least: int = 3) -> float:
    """The best time of one call: at least ``least`` runs and ``enough`` seconds, after one to warm up; or
    the better of two, if they are long.

    On a GPU a run is as many calls in a row as fill a few milliseconds, timed by the device, so that what
    the host takes to launch them is hidden as it is in use. On the CPU with one thread it is the time that
    the thread ran, which other programs on the machine do not lengthen.
    """
    took = _once(call, device, 1)
    if took > LONG:
        return min(took, _once(call, device, 1))
    many = 1
    if device == "cuda":
        many = max(1, min(50, int(5e-3 / _once(call, device, 1))))
    best, spent, runs = float("inf"), 0.0, 0
    while runs < least or spent < enough:
        took = _once(call, device, many)
        best, spent, runs = min(best, took / many), spent + took, runs + 1
    return best


def alternating(call: Callable[[], Any], other: Callable[[], Any], enough: float = 0.25) -> float:
    """The median time of one call on the CPU, each after another operation, as in use: caches and threads are
    those that the other one leaves behind."""
    took: list[float] = []
    while len(took) < 9 or sum(took) < enough:
        other()
        took.append(_once(call, "cpu", 1))
    return sorted(took)[len(took) // 2]


def _once(call: Callable[[], Any], device: str, many: int) -> float:
    if device != "cuda":
        clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        start = clock()
        for _ in range(many):
            call()
        return clock() - start
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(many):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


def show(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: the first two columns to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    for row in (header, *rows):
        cells = [
            cell.ljust(w) if i < 2 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
