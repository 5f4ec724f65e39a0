"""Rows are shared out to threads whole and in order, and no thread is waited for in vain."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from factorank.kernels import threads
from factorank.kernels.threads import in_threads


def double(rows, out):
    out[:] = 2 * rows
    return len(rows)


@pytest.mark.parametrize(
    ("rows", "parts", "expected"), [(30, 9, 9), (30, 40, 12), (10, 2, 2), (2, 9, 2), (10, 0, 1)]
)
def test_slices(rows, parts, expected, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    numbers, out = np.arange(rows), np.empty(rows, np.int64)
    slices = in_threads(double, numbers, out, parts)
    assert (out == 2 * numbers).all()
    assert len(slices) == expected
    assert [first for first, _ in slices] == [rows * i // expected for i in range(expected)]
    assert sum(count for _, count in slices) == rows


def test_threads_share_the_slices(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    together = threading.Barrier(3, timeout=30)

    def kernel(rows, out):
        together.wait()  # passes only if three threads have a slice at the same time
        return threading.current_thread().name

    names = {name for _, name in in_threads(kernel, np.arange(3), np.empty(3), 3)}
    assert len(names) == 3
    assert threading.current_thread().name in names


def test_a_thread_that_does_not_wake_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    asleep = ThreadPoolExecutor(1)
    monkeypatch.setattr(threads, "_pool", lambda: asleep)
    wake = threading.Event()
    asleep.submit(wake.wait)
    numbers, out = np.arange(10), np.empty(10, np.int64)
    assert len(in_threads(double, numbers, out, 5)) == 5
    assert (out == 2 * numbers).all()
    wake.set()
    asleep.shutdown()


def test_what_a_thread_raises_is_raised(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)

    def kernel(rows, out):
        if rows[0] > 0:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        in_threads(kernel, np.arange(4), np.empty(4), 2)
