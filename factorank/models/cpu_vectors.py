"""What the kernels for CPUs are made of: products of vectors, the exponential, the tail of the normal law.

A vector holds a number of each of ``LANES`` lists. Products are written as LLVM vectors because the loops
that a compiler would vectorise by itself test at every turn whether arrays overlap. In float32 the
exponential and the tail are polynomials that the compiler can vectorise, exact to rounding; in float64 they
are the library's.
"""

import math
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

LANES = 16
_fast = {"contract", "nsz", "arcp", "reassoc"}
jit = njit(cache=True, nogil=True, boundscheck=False, error_model="numpy", fastmath=_fast)
_f = np.float32


def _tile(height: int, vectors: int) -> Any:
    """Sums of products that stay in registers: ``height`` rows of ``vectors`` vectors.

    To the numbers at ``out`` is added the sum over ``count`` terms of a number at a times vectors at b. These
    are addresses; the steps, in bytes, lead from row to row and from term to term. ``kind`` is any number of
    the type meant.
    """

    @intrinsic
    def tile(
        typing: Any, a: Any, a_row: Any, a_step: Any, b: Any, b_step: Any, count: Any, out: Any, out_row: Any,
        kind: Any,
    ) -> Any:  # fmt: skip
        number = ir.FloatType() if kind == types.float32 else ir.DoubleType()
        size = 4 if kind == types.float32 else 8
        vector, word = ir.VectorType(number, LANES), ir.IntType(64)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            a, a_row, a_step, b, b_step, count, out, out_row, _ = args
            each = [(i, j) for i in range(height) for j in range(vectors)]

            def pointer(address: Any, step: Any, i: int, j: int, kind: Any) -> Any:
                address = builder.add(address, builder.mul(step, ir.Constant(word, i)))
                address = builder.add(address, ir.Constant(word, j * LANES * size))
                return builder.inttoptr(address, kind.as_pointer())

            def spread(value: Any) -> Any:
                first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, word(0))
                zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
                return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zeros)

            ends = [pointer(out, out_row, i, j, vector) for i, j in each]
            starts = [builder.load(end, align=size) for end in ends]
            entry = builder.basic_block
            loop, done = builder.append_basic_block("sum"), builder.append_basic_block("summed")
            builder.branch(loop)
            builder.position_at_end(loop)
            totals = [builder.phi(vector) for _ in each]
            at_a, at_b, left = (builder.phi(word) for _ in range(3))
            right = [builder.load(pointer(at_b, b_step, 0, j, vector), align=size) for j in range(vectors)]
            left_side = [
                spread(builder.load(pointer(at_a, a_row, i, 0, number), align=size)) for i in range(height)
            ]
            sums = []
            for total, (i, j) in zip(totals, each, strict=True):
                product = builder.fmul(left_side[i], right[j], flags=("contract",))
                sums.append(builder.fadd(total, product, flags=("contract",)))
            rest = builder.sub(left, word(1))
            walks = [(at_a, a, builder.add(at_a, a_step)), (at_b, b, builder.add(at_b, b_step))]
            for phi, start, following in [
                *zip(totals, starts, sums, strict=True), *walks, (left, count, rest)
            ]:  # fmt: skip
                phi.add_incoming(start, entry)
                phi.add_incoming(following, loop)
            builder.cbranch(builder.icmp_signed(">", rest, word(0)), loop, done)
            builder.position_at_end(done)
            for value, end in zip(sums, ends, strict=True):
                builder.store(value, end, align=size)
            return cgutils.get_null_value(ir.IntType(8).as_pointer())

        return types.void(*(types.int64,) * 8, kind), generate

    return tile


HIGH, WIDE = (8, 2) if binding.get_host_cpu_features().get("avx512f") else (4, 1)
"""Rows and vectors of a tile: sums that fill the registers."""
_whole_tile, _high_tile, _wide_tile, _one = _tile(HIGH, WIDE), _tile(HIGH, 1), _tile(1, WIDE), _tile(1, 1)


@jit
def add_product(left: Any, right: Any, result: Any) -> None:
    """Add to ``result (rows, columns)`` the product of ``left (rows, count)`` and ``right (count, columns)``.

    The columns are a multiple of ``LANES``; right may have more.
    """
    item, kind = np.int64(right.itemsize), right[0, 0]
    rows, vectors, count = result.shape[0], result.shape[1] // LANES, right.shape[0]
    line, row, step, out_row = LANES * item, count * item, right.shape[1] * item, result.shape[1] * item
    j = 0
    while j < vectors:
        wide = WIDE if j + WIDE <= vectors else 1
        b = right.ctypes.data + j * line
        i = 0
        while i < rows:
            high = HIGH if i + HIGH <= rows else 1
            a, out = left.ctypes.data + i * row, result.ctypes.data + i * out_row + j * line
            if high == HIGH and wide == WIDE:
                _whole_tile(a, row, item, b, step, count, out, out_row, kind)
            elif high == HIGH:
                _high_tile(a, row, item, b, step, count, out, out_row, kind)
            elif wide == WIDE:
                _wide_tile(a, row, item, b, step, count, out, out_row, kind)
            else:
                _one(a, row, item, b, step, count, out, out_row, kind)
            i += high
        j += wide


def _dots(height: int) -> Any:
    """Sums of ``height`` lines at once, so that no addition waits for the one before: see :func:`dots`."""

    @intrinsic
    def some(
        typing: Any, a: Any, a_step: Any, b: Any, b_line: Any, b_step: Any, count: Any, out: Any,
        out_line: Any, kind: Any,
    ) -> Any:  # fmt: skip
        number = ir.FloatType() if kind == types.float32 else ir.DoubleType()
        size = 4 if kind == types.float32 else 8
        vector, word = ir.VectorType(number, LANES), ir.IntType(64)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            a, a_step, b, b_line, b_step, count, out, out_line, _ = args

            def pointer(address: Any, step: Any, i: int) -> Any:
                address = builder.add(address, builder.mul(step, word(i)))
                return builder.inttoptr(address, vector.as_pointer())

            entry = builder.basic_block
            loop, done = builder.append_basic_block("sum"), builder.append_basic_block("summed")
            builder.branch(loop)
            builder.position_at_end(loop)
            totals = [builder.phi(vector) for _ in range(height)]
            at_a, at_b, left = (builder.phi(word) for _ in range(3))
            shared = builder.load(pointer(at_a, a_step, 0), align=size)
            sums = []
            for i, total in enumerate(totals):
                line = builder.load(pointer(at_b, b_line, i), align=size)
                product = builder.fmul(shared, line, flags=("contract",))
                sums.append(builder.fadd(total, product, flags=("contract",)))
            rest = builder.sub(left, word(1))
            zero = ir.Constant(vector, [0.0] * LANES)
            walks = [(at_a, a, builder.add(at_a, a_step)), (at_b, b, builder.add(at_b, b_step))]
            for phi, start, following in [
                *((total, zero, made) for total, made in zip(totals, sums, strict=True)),
                *walks,
                (left, count, rest),
            ]:
                phi.add_incoming(start, entry)
                phi.add_incoming(following, loop)
            builder.cbranch(builder.icmp_signed(">", rest, word(0)), loop, done)
            builder.position_at_end(done)
            for i, value in enumerate(sums):
                builder.store(value, pointer(out, out_line, i), align=size)
            return cgutils.get_null_value(ir.IntType(8).as_pointer())

        return types.void(*(types.int64,) * 8, kind), generate

    return some


_eight_dots, _one_dot = _dots(8), _dots(1)


@jit
def dots(
    a: Any, a_step: Any, b: Any, b_line: Any, b_step: Any, count: Any, lines: Any, out: Any, out_line: Any,
    kind: Any,
) -> None:  # fmt: skip
    """In every lane, sums of ``count`` products of what lies at a and on each of some lines at b, to out.

    The rest as in :func:`_tile`.
    """
    line = 0
    while line + 8 <= lines:
        _eight_dots(
            a, a_step, b + line * b_line, b_line, b_step, count, out + line * out_line, out_line, kind
        )
        line += 8
    while line < lines:
        _one_dot(a, a_step, b + line * b_line, b_line, b_step, count, out + line * out_line, out_line, kind)
        line += 1


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
