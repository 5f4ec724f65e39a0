"""Bits of machine words and blocks of 16-bit counters, as numba intrinsics, and the words they work on.

The counter blocks are written as LLVM vectors, because the loop a compiler would vectorise by itself pays
for run-time alias checks at every element. LLVM lowers them to whatever the processor has.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic, overload

WORD = 64
"""Bits in a machine word."""
LANES = 32
"""Counters in a block; arrays of counters hold a multiple of this."""
u64 = np.uint64
ZERO, ONE, SIX = u64(0), u64(1), u64(6)
LOW_4, LOW_6, EVERYTHING = u64(15), u64(63), ~ZERO
"""The lowest bits of a word, and all of them."""
jit = njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")

_word, _lane = ir.IntType(64), ir.IntType(16)
_block = ir.VectorType(_lane, LANES)


@intrinsic
def popcount(typing: Any, word: Any) -> Any:
    return types.uint64(types.uint64), lambda context, builder, signature, args: builder.ctpop(args[0])


@intrinsic
def trailing_zeros(typing: Any, word: Any) -> Any:
    """64 for a word without a set bit."""
    no = ir.Constant(ir.IntType(1), 0)
    return types.uint64(types.uint64), lambda context, builder, signature, args: builder.cttz(args[0], no)


def kth_bit(word: Any, k: Any) -> Any:
    """The k-th lowest set bit of a word, alone; 0 when there are not that many."""
    raise AssertionError("only called from compiled code")


@overload(kth_bit)
def _kth_bit_for_this_machine(word: Any, k: Any) -> Any:
    # Decided when numba compiles: its cache is keyed by processor and features, so either choice is safe
    # to keep. The first two generations of AMD Zen have the instruction, but in slow microcode.
    _, name, features = cpu_target.target_context.codegen().magic_tuple()
    fast = "+bmi2" in features.split(",") and name not in ("znver1", "znver2")

    def deposit(word: Any, k: Any) -> Any:
        return _deposit(np.uint64(1) << (k & np.uint64(63)), word)

    def search(word: Any, k: Any) -> Any:
        return _search(word, k)

    return deposit if fast else search


@intrinsic
def _deposit(typing: Any, bits: Any, mask: Any) -> Any:
    """x86's PDEP: the low bits of one word, spread over the set bits of another."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_word, [_word, _word])
        return builder.call(builder.module.declare_intrinsic("llvm.x86.bmi.pdep.64", (), kind), args)

    return types.uint64(types.uint64, types.uint64), generate


@njit(cache=True, nogil=True)
def _search(word: Any, k: Any) -> Any:
    """The k-th bit by halving, for processors without PDEP."""
    rest, left, at = word, k, np.uint64(0)
    for width in (np.uint64(32), np.uint64(16), np.uint64(8), np.uint64(4), np.uint64(2), np.uint64(1)):
        low = popcount(rest & ((np.uint64(1) << width) - np.uint64(1)))
        up = left >= low
        left -= low if up else np.uint64(0)
        rest >>= width if up else np.uint64(0)
        at += width if up else np.uint64(0)
    return (rest & np.uint64(1)) << at if left == np.uint64(0) else np.uint64(0)


@intrinsic
def add_above(typing: Any, counters: Any, word: Any) -> Any:
    """``counters[j] += 1`` for every j > word."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        blocks, count = _blocks(context, builder, signature, args)
        limit = _splat(builder, builder.trunc(args[1], _lane))
        with cgutils.for_range(builder, count) as loop:
            first = builder.trunc(builder.mul(loop.index, ir.Constant(_word, LANES)), _lane)
            index = builder.add(ir.Constant(_block, list(range(LANES))), _splat(builder, first))
            place = builder.gep(blocks, [loop.index])
            above = builder.sext(builder.icmp_unsigned(">", index, limit), _block)
            builder.store(builder.sub(builder.load(place, align=2), above), place, align=2)
        return context.get_dummy_value()

    return types.void(counters, types.uint64), generate


@intrinsic
def take_above(typing: Any, counters: Any, k: Any) -> Any:
    """``counters[j] -= 1`` wherever ``counters[j] > k``; how many were not."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        blocks, count = _blocks(context, builder, signature, args)
        limit = _splat(builder, builder.trunc(args[1], _lane))
        total = cgutils.alloca_once_value(builder, builder.mul(count, ir.Constant(_word, LANES)))
        with cgutils.for_range(builder, count) as loop:
            place = builder.gep(blocks, [loop.index])
            values = builder.load(place, align=2)
            above = builder.icmp_unsigned(">", values, limit)
            builder.store(builder.add(values, builder.sext(above, _block)), place, align=2)
            many = builder.zext(builder.ctpop(builder.bitcast(above, ir.IntType(LANES))), _word)
            builder.store(builder.sub(builder.load(total), many), total)
        return builder.load(total)

    return types.uint64(counters, types.uint64), generate


def _blocks(context: Any, builder: Any, signature: Any, args: Any) -> tuple[Any, Any]:
    """A pointer to the blocks of a uint16 array, and how many there are."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.bitcast(array.data, _block.as_pointer()), builder.udiv(
        array.nitems, ir.Constant(_word, LANES)
    )


def _splat(builder: Any, value: Any) -> Any:
    nothing = ir.Constant(_block, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, nothing, zeros)
