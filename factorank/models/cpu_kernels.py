"""The parts of a transformer block between its matrix products, as numba kernels.

Attention takes ``LANES`` lists at a time, a number of each in every lane of a vector: queries, keys and
values lie as ``(heads, size, tokens, lists)``, so that nothing is gathered and nothing summed across a
vector. The functions hold no lock and no state: callers may split tokens or groups of lists over threads. In
float32 the exponential and the tail of the normal distribution are polynomials that the compiler can
vectorise, exact to rounding; in float64 they are the library's.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

LANES = 16
_fast = {"contract", "nsz", "arcp", "reassoc"}
_jit = njit(cache=True, nogil=True, boundscheck=False, error_model="numpy", fastmath=_fast)
_f = np.float32


@intrinsic
def _dot(typing: Any, a: Any, step_a: Any, b: Any, step_b: Any, count: Any, out: Any, kind: Any) -> Any:
    """In every lane, the sum of ``count`` products of what lies at a and b, to out.

    These are addresses, and the steps are in bytes; ``kind`` is any number of the type meant. Written as LLVM
    vectors because the loop a compiler would vectorise by itself tests at every turn whether arrays overlap.
    """
    number = ir.FloatType() if kind == types.float32 else ir.DoubleType()
    vector, word = ir.VectorType(number, LANES), ir.IntType(64)
    signature = types.void(*(types.int64,) * 6, kind)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a, step_a, b, step_b, count, out, _ = args
        entry = builder.basic_block
        size = 4 if kind == types.float32 else 8

        def load(address: Any) -> Any:
            return builder.load(builder.inttoptr(address, vector.as_pointer()), align=size)

        loop = builder.append_basic_block("sum")
        done = builder.append_basic_block("summed")
        builder.branch(loop)
        builder.position_at_end(loop)
        total, at_a, at_b, left = (builder.phi(one) for one in (vector, word, word, word))
        product = builder.fmul(load(at_a), load(at_b), flags=("contract",))
        added = builder.fadd(total, product, flags=("contract",))
        rest = builder.sub(left, ir.Constant(word, 1))
        for phi, start, following in (
            (total, ir.Constant(vector, [0.0] * LANES), added),
            (at_a, a, builder.add(at_a, step_a)),
            (at_b, b, builder.add(at_b, step_b)),
            (left, count, rest),
        ):
            phi.add_incoming(start, entry)
            phi.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed(">", rest, ir.Constant(word, 0)), loop, done)
        builder.position_at_end(done)
        builder.store(added, builder.inttoptr(out, vector.as_pointer()), align=size)
        return cgutils.get_null_value(ir.IntType(8).as_pointer())

    return signature, generate


@intrinsic
def _whole(typing: Any, x: Any) -> Any:
    """A float32 without its fraction."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sitofp(builder.fptosi(args[0], ir.IntType(32)), ir.FloatType())

    return types.float32(types.float32), generate


@intrinsic
def _power_of_two(typing: Any, x: Any) -> Any:
    """2 to a whole float32 between -126 and 127."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = ir.IntType(32)
        biased = builder.add(builder.fptosi(args[0], bits), ir.Constant(bits, 127))
        return builder.bitcast(builder.shl(biased, ir.Constant(bits, 23)), ir.FloatType())

    return types.float32(types.float32), generate


def exp(x: Any) -> Any:
    """The exponential of a number that is not above 0."""
    raise AssertionError("only called from compiled code")


@overload(exp, inline="always")
def _exp_of(x: Any) -> Any:
    def wide(x: Any) -> Any:
        return math.exp(x)

    def narrow(x: Any) -> Any:
        x = max(x, _f(-87.0))
        whole = _whole(x * _f(1.4426950408889634) - _f(0.5))
        rest = x - whole * _f(0.693359375) + whole * _f(2.12194440e-4)  # ln 2, in two parts
        p = _f(1.0 / 5040)
        p = p * rest + _f(1.0 / 720)
        p = p * rest + _f(1.0 / 120)
        p = p * rest + _f(1.0 / 24)
        p = p * rest + _f(1.0 / 6)
        p = p * rest + _f(0.5)
        p = p * rest + _f(1.0)
        return (p * rest + _f(1.0)) * _power_of_two(whole)

    return narrow if x == types.float32 else wide


def tail(x: Any, density: Any) -> Any:
    """The normal probability of more than x ≥ 0, given exp(-x²/2)."""
    raise AssertionError("only called from compiled code")


@overload(tail, inline="always")
def _tail_of(x: Any, density: Any) -> Any:
    def wide(x: Any, density: Any) -> Any:
        return 0.5 * math.erfc(x * math.sqrt(0.5))

    def narrow(x: Any, density: Any) -> Any:
        # The ratio of tail to density, fitted in 1 / (1 + 0.3 x) on 0..14 to a relative error of 6e-8.
        t = _f(1.0) / (_f(1.0) + _f(0.3) * x)
        p = _f(0.03837829337110893)
        p = p * t + _f(-0.1691661296088157)
        p = p * t + _f(0.22866011710226275)
        p = p * t + _f(-0.07650651728803878)
        p = p * t + _f(0.14253555077283986)
        p = p * t + _f(0.0946835122785234)
        p = p * t + _f(0.1219203447828006)
        p = p * t + _f(0.11948768861159195)
        p = p * t + _f(7.1688943672772895e-06)
        return p * density

    return narrow if x == types.float32 else wide


@_jit
def close(
    x: Any, change: Any, bias: Any, noise: Any, adds: Any, drops: Any, out: Any,
    gain: Any, shift: Any, eps: Any, norms: Any, normed: Any, means: Any, scales: Any,
) -> None:  # fmt: skip
    """The end of a half block and the norm that begins the next, on ``(tokens, width)``.

    With ``adds``, ``out`` is x and what the half adds to it: the product ``change``, its bias, and dropout by
    ``noise``. With ``norms``, ``normed`` is the layer norm of that; its means and reciprocal deviations are
    kept for the gradient.
    """
    width = x.shape[1]
    kind = x.dtype.type
    share = kind(1.0 / width)
    for t in range(x.shape[0]):
        if adds:
            if drops:
                for w in range(width):
                    out[t, w] = x[t, w] + (change[t, w] + bias[w]) * noise[t, w]
            else:
                for w in range(width):
                    out[t, w] = x[t, w] + (change[t, w] + bias[w])
        if not norms:
            continue
        mean = kind(0)
        for w in range(width):
            mean += out[t, w]
        mean *= share
        square = kind(0)
        for w in range(width):
            square += (out[t, w] - mean) * (out[t, w] - mean)
        scale = kind(1.0) / kind(math.sqrt(square * share + kind(eps)))
        means[t], scales[t] = mean, scale
        for w in range(width):
            normed[t, w] = (out[t, w] - mean) * scale * gain[w] + shift[w]


@_jit
def through_norm(of_normed: Any, x: Any, means: Any, scales: Any, gain: Any, of_x: Any) -> None:
    """Add to ``of_x`` what comes back through a norm of x; ``of_normed`` becomes each token's part of the
    gradient of the gain."""
    width = x.shape[1]
    kind = x.dtype.type
    share = kind(1.0 / width)
    for t in range(x.shape[0]):
        mean, scale = means[t], scales[t]
        along, total = kind(0), kind(0)
        for w in range(width):
            total += of_normed[t, w] * gain[w]
            along += of_normed[t, w] * gain[w] * (x[t, w] - mean)
        total *= share
        along *= share * scale * scale
        for w in range(width):
            of_x[t, w] += (of_normed[t, w] * gain[w] - total - (x[t, w] - mean) * along) * scale
        for w in range(width):
            of_normed[t, w] *= (x[t, w] - mean) * scale


@_jit
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


@_jit
def _weights(qkv: Any, h: Any, first: Any, i: Any, hidden: Any, masked: Any, stop: Any, p: Any) -> None:
    """What token i of ``LANES`` lists gives to tokens 0..stop-1: to ``p (tokens, lanes)``, 0 after them."""
    _, _, size, n, lists = qkv.shape
    kind = qkv.dtype.type
    item = np.int64(qkv.itemsize)
    scale, lowest, zero = kind(1.0 / math.sqrt(size)), kind(-1e30), kind(0)
    base, across = qkv.ctypes.data, lists * item
    head = base + (h * size * n * lists + first) * item
    key = head + qkv.shape[1] * size * n * lists * item
    for j in range(stop):
        there = p.ctypes.data + j * LANES * item
        _dot(head + i * across, n * across, key + j * across, n * across, size, there, zero)
    highest, total = np.full(LANES, lowest, qkv.dtype), np.zeros(LANES, qkv.dtype)
    for j in range(stop):
        for lane in range(LANES):
            x = p[j, lane] * scale
            if masked and hidden[j, first + lane]:
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


@_jit
def attention(qkv: Any, hidden: Any, masked: Any, causal: Any, start: Any, end: Any, out: Any) -> None:
    """Self-attention of ``qkv (3, heads, size, tokens, lists)`` to ``out (heads, size, tokens, lists)``.

    For groups start..end-1 of ``LANES`` lists. ``hidden (tokens, lists)`` is true where no query may look.
    """
    _, heads, size, n, lists = qkv.shape
    item, zero = np.int64(qkv.itemsize), qkv.dtype.type(0)
    across = lists * item
    p = np.empty((n, LANES), qkv.dtype)
    for group in range(start, end):
        first = group * LANES
        for h in range(heads):
            value = qkv.ctypes.data + (((2 * heads + h) * size * n) * lists + first) * item
            there = out.ctypes.data + (h * size * n * lists + first) * item
            for i in range(n):
                stop = i + 1 if causal else n
                _weights(qkv, h, first, i, hidden, masked, stop, p)
                for d in range(size):
                    _dot(
                        p.ctypes.data, LANES * item, value + d * n * across, across, stop,
                        there + (d * n + i) * across, zero,
                    )  # fmt: skip


@_jit
def through_attention(
    of_out: Any, qkv: Any, hidden: Any, masked: Any, causal: Any, start: Any, end: Any, of_qkv: Any
) -> None:
    """``of_qkv`` is the gradient of ``qkv``; the rest as in :func:`attention`."""
    _, heads, size, n, lists = qkv.shape
    kind = qkv.dtype.type
    item, zero, scale = np.int64(qkv.itemsize), kind(0), kind(1.0 / math.sqrt(size))
    across, lane_step = lists * item, LANES * item
    whole = size * n * lists * item
    p, s = np.empty((n, n, LANES), qkv.dtype), np.empty((n, n, LANES), qkv.dtype)
    along = np.empty(LANES, qkv.dtype)
    for group in range(start, end):
        first = group * LANES
        for h in range(heads):
            query = qkv.ctypes.data + (h * size * n * lists + first) * item
            key, value = query + heads * whole, query + 2 * heads * whole
            of_query = of_qkv.ctypes.data + (h * size * n * lists + first) * item
            of_key, of_value = of_query + heads * whole, of_query + 2 * heads * whole
            mixed = of_out.ctypes.data + (h * size * n * lists + first) * item
            for i in range(n):
                stop = i + 1 if causal else n
                _weights(qkv, h, first, i, hidden, masked, stop, p[i])
                for j in range(stop):
                    there = s.ctypes.data + (i * n + j) * lane_step
                    _dot(mixed + i * across, n * across, value + j * across, n * across, size, there, zero)
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
            for d in range(size):
                line = d * n * across
                for i in range(n):
                    at, below = line + i * across, i * n * lane_step
                    _dot(slopes + below, lane_step, key + line, across, n, of_query + at, zero)
                    _dot(slopes + i * lane_step, n * lane_step, query + line, across, n, of_key + at, zero)
                    _dot(weights + i * lane_step, n * lane_step, mixed + line, across, n, of_value + at, zero)


@_jit
def embed(code: Any, values: Any, places: Any, out: Any) -> bool:
    """``out (tokens, width)``: the row of ``values`` that the token's code names, and that of its place.

    Says whether there is such a row for all of them."""
    n, width = places.shape
    for t in range(code.size):
        value, place = code[t], t % n
        if not 0 <= value < len(values):
            return False
        for w in range(width):
            out[t, w] = values[value, w] + places[place, w]
    return True


@_jit
def through_values(of_out: Any, code: Any, of_values: Any) -> None:
    """Add the gradient of each token to that of the row its code names."""
    for t in range(code.size):
        value = code[t]
        for w in range(of_out.shape[1]):
            of_values[value, w] += of_out[t, w]


@_jit
def choose(logits: Any, table: Any, allowed: Any, code: Any, chosen: Any) -> None:
    """``chosen`` is the log-probability of each token's value, among those allowed at its place.

    ``logits (tokens, n)`` lack the table's row ``(n, n)`` of the place; they become the probabilities.
    """
    n = logits.shape[1]
    kind = logits.dtype.type
    lowest, zero = kind(-np.inf), kind(0)
    for t in range(code.size):
        place = t % n
        if not 0 <= code[t] < n:
            chosen[t] = np.nan
            logits[t] = np.nan
            continue
        highest = lowest
        for v in range(n):
            x = logits[t, v] + table[place, v] if allowed[place, v] else lowest
            logits[t, v] = x
            highest = max(highest, x)
        mine = logits[t, code[t]] - highest
        total = zero
        for v in range(n):
            w = exp(max(logits[t, v] - highest, kind(-1e30))) if allowed[place, v] else zero
            logits[t, v] = w
            total += w
        chosen[t] = mine - kind(math.log(total))
        total = kind(1) / total
        for v in range(n):
            logits[t, v] *= total


@_jit
def through_choice(of_chosen: Any, probabilities: Any, code: Any, out: Any) -> None:
    """``out (tokens, n)`` is the gradient of the logits."""
    for t in range(code.size):
        g = of_chosen[t]
        for v in range(out.shape[1]):
            out[t, v] = -g * probabilities[t, v]
        if 0 <= code[t] < out.shape[1]:
            out[t, code[t]] += g
