"""Rows are shared out to threads whole, in order, and in no more slices than allowed."""

import threading

import numpy as np
import pytest
import torch

from factorank.kernels.threads import in_threads


def double(rows, out):
    out[:] = 2 * rows
    return len(rows), threading.current_thread().name


@pytest.mark.parametrize(("rows", "parts", "expected"), [(10, 9, 3), (10, 2, 2), (2, 9, 2), (10, 0, 1)])
def test_slices(rows, parts, expected, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    numbers, out = np.arange(rows), np.empty(rows, np.int64)
    slices = in_threads(double, numbers, out, parts)
    assert (out == 2 * numbers).all()
    assert len(slices) == expected
    assert [first for first, _ in slices] == [rows * i // expected for i in range(expected)]
    assert sum(count for _, (count, _) in slices) == rows
    names = [name for _, (_, name) in slices]
    assert names[0] == threading.current_thread().name
    assert all(name.startswith("factorank") for name in names[1:])


def test_what_a_thread_raises_is_raised(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)

    def kernel(rows, out):
        if rows[0] > 0:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        in_threads(kernel, np.arange(4), np.empty(4), 2)
