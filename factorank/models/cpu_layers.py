"""The layers of a transformer as numba kernels, there and back, for the lists of one group.

What a group has lies as ``(features, tokens, lanes)``, tokens and lanes also taken as one axis of columns:
see ``cpu_kernels``. In float32 the exponential and the tail of GELU are polynomials: see ``cpu_vectors``.
"""

import math
from typing import Any

import numpy as np

from factorank.models.cpu_vectors import LANES, dots, exp, jit, tail


@jit
def enter(x: Any, first: Any, out: Any) -> None:
    """Lists first.. of ``x (rows, n, width)`` as columns; lanes without a list are 0."""
    rows, n, width = x.shape
    if first + LANES > rows:
        out[:] = 0
    for t in range(n):
        for lane in range(min(LANES, rows - first)):
            for f in range(width):
                out[f, t * LANES + lane] = x[first + lane, t, f]


@jit
def leave(x: Any, first: Any, out: Any) -> None:
    rows, n, width = out.shape
    for t in range(n):
        for lane in range(min(LANES, rows - first)):
            for f in range(width):
                out[first + lane, t, f] = x[f, t * LANES + lane]


@jit
def turn_matrix(x: Any, out: Any) -> None:
    for c in range(x.shape[1]):
        for f in range(len(x)):
            out[c, f] = x[f, c]


@jit
def fill(out: Any, bias: Any) -> None:
    for f in range(len(out)):
        out[f] = bias[f]


@jit
def add_bias(out: Any, bias: Any) -> None:
    for f in range(len(out)):
        out[f] += bias[f]


@jit
def add_columns(x: Any, out: Any) -> None:
    """Add the columns to lanes."""
    for f in range(len(x)):
        for t in range(x.shape[1] // LANES):
            for lane in range(LANES):
                out[f, lane] += x[f, t * LANES + lane]


@jit
def add_change(stream: Any, change: Any, noise: Any, drops: Any, half: Any, first: Any) -> None:
    """Add to the stream what a half block made of it, with its dropout."""
    if not drops:
        stream += change
        return
    _, rows, n, width = noise.shape
    for t in range(n):
        for lane in range(min(LANES, rows - first)):
            c = t * LANES + lane
            for f in range(width):
                stream[f, c] += change[f, c] * noise[half, first + lane, t, f]


@jit
def norm(x: Any, eps: Any, mean: Any, normed: Any, scale: Any) -> None:
    """The columns of x, centred and scaled to a variance of one; the scale is kept."""
    width, columns = x.shape
    kind = x.dtype.type
    share = kind(1.0 / width)
    mean[:] = 0
    scale[:] = 0
    for f in range(width):
        for c in range(columns):
            mean[c] += x[f, c]
    for c in range(columns):
        mean[c] *= share
    for f in range(width):
        for c in range(columns):
            away = x[f, c] - mean[c]
            normed[f, c] = away
            scale[c] += away * away
    for c in range(columns):
        scale[c] = kind(1.0) / kind(math.sqrt(scale[c] * share + kind(eps)))
    for f in range(width):
        for c in range(columns):
            normed[f, c] *= scale[c]


@jit
def through_norm(of_normed: Any, normed: Any, scale: Any, total: Any, along: Any, of_x: Any) -> None:
    """Add to ``of_x`` what comes back through :func:`norm`."""
    width, columns = normed.shape
    share = normed.dtype.type(1.0 / width)
    total[:] = 0
    along[:] = 0
    for f in range(width):
        for c in range(columns):
            total[c] += of_normed[f, c]
            along[c] += of_normed[f, c] * normed[f, c]
    for c in range(columns):
        total[c] *= share
        along[c] *= share
    for f in range(width):
        for c in range(columns):
            of_x[f, c] += (of_normed[f, c] - total[c] - normed[f, c] * along[c]) * scale[c]


@jit
def gelu(u: Any, out: Any, keeps: Any) -> None:
    """``out`` is GELU of a flat u; with ``keeps`` its derivative is left in u."""
    kind = u.dtype.type
    zero, one, half, root = kind(0.0), kind(1.0), kind(0.5), kind(1 / math.sqrt(2 * math.pi))
    if keeps:
        for i in range(u.size):
            x = u[i]
            density = exp(-half * x * x)
            above = tail(abs(x), density)
            below = above if x < zero else one - above
            out[i] = x * below
            u[i] = below + x * density * root
    else:
        for i in range(u.size):
            x = u[i]
            above = tail(abs(x), exp(-half * x * x))
            out[i] = x * (above if x < zero else one - above)


@jit
def _weights(query: Any, key: Any, n: Any, size: Any, hidden: Any, masked: Any, stop: Any, p: Any) -> None:
    """What a token of each list gives to tokens 0..stop-1: to ``p (tokens, lanes)``, 0 after them.

    ``query`` and ``key`` are the addresses of the token's query and of the first key."""
    kind = p.dtype.type
    item = np.int64(p.itemsize)
    scale, lowest, zero = kind(1.0 / math.sqrt(size)), kind(-1e30), kind(0)
    across = LANES * item
    dots(query, n * across, key, across, n * across, size, stop, p.ctypes.data, across, zero)
    highest, total = np.full(LANES, lowest, p.dtype), np.zeros(LANES, p.dtype)
    for j in range(stop):
        for lane in range(LANES):
            x = p[j, lane] * scale
            if masked and hidden[j, lane]:
                x = lowest
            p[j, lane] = x
            highest[lane] = max(highest[lane], x)
    for j in range(stop):
        for lane in range(LANES):
            x = p[j, lane]
            w = exp(x - highest[lane])
            w = zero if x <= lowest else w
            p[j, lane] = w
            total[lane] += w
    for lane in range(LANES):
        total[lane] = kind(1) / total[lane] if total[lane] > zero else zero
    for j in range(stop):
        for lane in range(LANES):
            p[j, lane] *= total[lane]
    p[stop:] = zero


@jit
def attention(qkv: Any, hidden: Any, masked: Any, causal: Any, out: Any) -> None:
    """Self-attention of ``qkv (3, heads, size, tokens, LANES)`` to ``out (heads, size, tokens, LANES)``."""
    _, heads, size, n, _ = qkv.shape
    item, zero = np.int64(qkv.itemsize), qkv.dtype.type(0)
    across = LANES * item
    line, whole = n * across, size * n * across
    p = np.empty((n, LANES), qkv.dtype)
    for h in range(heads):
        query, there = qkv.ctypes.data + h * whole, out.ctypes.data + h * whole
        key, value = query + heads * whole, query + 2 * heads * whole
        for i in range(n):
            stop = i + 1 if causal else n
            _weights(query + i * across, key, n, size, hidden, masked, stop, p)
            at = i * across
            dots(p.ctypes.data, across, value, line, across, stop, size, there + at, line, zero)


@jit
def through_attention(of_out: Any, qkv: Any, hidden: Any, masked: Any, causal: Any, of_qkv: Any) -> None:
    """``of_qkv`` is the gradient of ``qkv``; the rest as in :func:`attention`."""
    _, heads, size, n, _ = qkv.shape
    kind = qkv.dtype.type
    item, zero, scale = np.int64(qkv.itemsize), kind(0), kind(1.0 / math.sqrt(size))
    across = LANES * item
    line, whole = n * across, size * n * across
    p, s = np.empty((n, n, LANES), qkv.dtype), np.empty((n, n, LANES), qkv.dtype)
    along = np.empty(LANES, qkv.dtype)
    for h in range(heads):
        query, of_query = qkv.ctypes.data + h * whole, of_qkv.ctypes.data + h * whole
        key, value = query + heads * whole, query + 2 * heads * whole
        of_key, of_value = of_query + heads * whole, of_query + 2 * heads * whole
        mixed = of_out.ctypes.data + h * whole
        for i in range(n):
            stop = i + 1 if causal else n
            _weights(query + i * across, key, n, size, hidden, masked, stop, p[i])
            there = s.ctypes.data + i * line
            dots(mixed + i * across, line, value, across, line, size, stop, there, across, zero)
            for lane in range(LANES):
                along[lane] = zero
            for j in range(stop):
                for lane in range(LANES):
                    along[lane] += p[i, j, lane] * s[i, j, lane]
            for j in range(stop):
                for lane in range(LANES):
                    s[i, j, lane] = p[i, j, lane] * (s[i, j, lane] - along[lane]) * scale
            s[i, stop:] = zero
        weights, slopes = p.ctypes.data, s.ctypes.data
        for i in range(n):
            at = i * across
            dots(slopes + i * line, across, key, line, across, n, size, of_query + at, line, zero)
            dots(slopes + at, line, query, line, across, n, size, of_key + at, line, zero)
            dots(weights + at, line, mixed, line, across, n, size, of_value + at, line, zero)
