"""Bits of machine words, tiles of rows and blocks of 16-bit counters, as numba intrinsics.

Tiles and blocks are written as LLVM vectors, because the loop a compiler would vectorise by itself pays for
run-time alias checks at every element. LLVM lowers them to whatever the processor has.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic, overload

from factorank.kernels.codes.table import INSERTION, LEFT, RIGHT

WORD = 64
"""Bits in a machine word."""
LANES = 32
"""Counters in a block; arrays of counters hold a multiple of this."""
TILE = 8
"""Rows, and places of each, that :func:`count_tile` walks at once."""
u64 = np.uint64
ZERO, ONE, SIX = u64(0), u64(1), u64(6)
LOW_4, LOW_6, EVERYTHING = u64(15), u64(63), ~ZERO
"""The lowest bits of a word, and all of them."""
jit = njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")

_word, _lane = ir.IntType(64), ir.IntType(16)
_block = ir.VectorType(_lane, LANES)
_words = ir.VectorType(_word, TILE)


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
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Bring the cache line of an element near, by its index in the flat array; it may lie outside."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        hints = [ir.Constant(ir.IntType(32), hint) for hint in (0, 3, 1)]  # to read, to keep, data
        function = ir.FunctionType(ir.VoidType(), [place.type, *(hint.type for hint in hints)])
        builder.call(builder.module.declare_intrinsic("llvm.prefetch.p0", (), function), [place, *hints])
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


@intrinsic
def count_tile(typing: Any, rows: Any, row: Any, place: Any, met: Any, out: Any, form: Any) -> Any:
    """Count the smaller values met before those at ``TILE`` places of ``TILE`` rows from ``row, place`` on.

    ``met`` holds a word for each row, to which the values below n are added. What a count means for the form
    goes to the same places of ``out``; for insertion codes ``out`` is a tile and takes the counts. Places
    beyond the last are left alone; in the place of rows beyond the last, that one is walked again.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = [context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 3, 4)]
        row, place, kind = args[1], args[2], len(signature.args[5])
        height, n = (builder.extract_value(arrays[0].shape, i) for i in (0, 1))
        lanes = ir.Constant(_words, list(range(TILE)))
        live = builder.icmp_unsigned(
            "<", builder.add(lanes, _splat(builder, place, _words)), _splat(builder, n, _words)
        )
        starts = []
        for j in range(TILE):
            lower, last = builder.add(row, ir.Constant(_word, j)), builder.sub(height, ir.Constant(_word, 1))
            lower = builder.select(builder.icmp_unsigned("<", lower, height), lower, last)
            starts.append(builder.add(builder.mul(lower, n), place))
        columns = _transposed(
            builder, [_masked_load(builder, arrays[0].data, start, live) for start in starts]
        )
        state = builder.bitcast(arrays[1].data, _words.as_pointer())
        seen, one = builder.load(state, align=8), ir.Constant(_words, [1] * TILE)
        for step, x in enumerate(columns):
            inside = builder.icmp_unsigned("<", x, _splat(builder, n, _words))
            shift = builder.and_(x, ir.Constant(_words, [WORD - 1] * TILE))
            bit = builder.select(inside, builder.shl(one, shift), ir.Constant(_words, None))
            smaller = _intrinsic(builder, "ctpop", _words, builder.and_(seen, builder.sub(bit, one)))
            seen = builder.or_(seen, bit)
            here = _splat(builder, builder.add(place, ir.Constant(_word, step)), _words)
            columns[step] = {RIGHT: builder.sub(x, smaller), LEFT: builder.sub(here, smaller)}.get(
                kind, smaller
            )
        builder.store(seen, state, align=8)
        for j, result in enumerate(_transposed(builder, columns)):
            start = ir.Constant(_word, TILE * j) if kind == INSERTION else starts[j]
            _masked_store(builder, result, arrays[2].data, start, live)
        return context.get_dummy_value()

    number = types.uint64
    return types.void(rows, number, number, met, out, form), generate


def _masked_load(builder: Any, data: Any, start: Any, live: Any) -> Any:
    """``TILE`` elements of an array as words; all bits are set where they are not live."""
    kind = ir.VectorType(data.type.pointee, TILE)
    place = builder.bitcast(builder.gep(data, [start]), kind.as_pointer())
    align, missing = ir.Constant(ir.IntType(32), 4), ir.Constant(kind, [-1] * TILE)
    return builder.sext(_intrinsic(builder, "masked.load", kind, place, align, live, missing), _words)


def _masked_store(builder: Any, words: Any, data: Any, start: Any, live: Any) -> None:
    kind = ir.VectorType(data.type.pointee, TILE)
    place = builder.bitcast(builder.gep(data, [start]), kind.as_pointer())
    align, values = ir.Constant(ir.IntType(32), 4), builder.trunc(words, kind)
    _intrinsic(builder, "masked.store", ir.VoidType(), values, place, align, live)


def _intrinsic(builder: Any, name: str, result: Any, *args: Any) -> Any:
    """Call a function that LLVM has for vectors: its name ends with their type, and with that of pointers."""
    vector = result if isinstance(result, ir.VectorType) else args[0].type
    name = f"llvm.{name}.v{vector.count}i{vector.element.width}" + ".p0" * name.startswith("masked")
    function = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(builder.module.declare_intrinsic(name, (), function), args)


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """The columns of a square of vectors: blocks of half the size change places, in ever smaller squares."""
    rows, half = list(rows), TILE // 2
    while half:
        low = [i + TILE - half if i & half else i for i in range(TILE)]
        high = [i + TILE if i & half else i + half for i in range(TILE)]
        masks = [ir.Constant(ir.VectorType(ir.IntType(32), TILE), mask) for mask in (low, high)]
        for i in range(TILE):
            if not i & half:
                pair = rows[i], rows[i + half]
                rows[i], rows[i + half] = (builder.shuffle_vector(*pair, mask) for mask in masks)
        half //= 2
    return rows


@intrinsic
def add_above(typing: Any, counters: Any, blocks: Any, word: Any) -> Any:
    """``counters[j] += 1`` for every j > word, in that many blocks."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place_of = _blocks(context, builder, signature, args)
        limit = _splat(builder, builder.trunc(args[2], _lane))
        with cgutils.for_range(builder, args[1]) as loop:
            first = builder.trunc(builder.mul(loop.index, ir.Constant(_word, LANES)), _lane)
            index = builder.add(ir.Constant(_block, list(range(LANES))), _splat(builder, first))
            place = builder.gep(place_of, [loop.index])
            above = builder.sext(builder.icmp_unsigned(">", index, limit), _block)
            builder.store(builder.sub(builder.load(place, align=2), above), place, align=2)
        return context.get_dummy_value()

    return types.void(counters, types.uint64, types.uint64), generate


@intrinsic
def take_above(typing: Any, counters: Any, blocks: Any, k: Any) -> Any:
    """``counters[j] -= 1`` wherever ``counters[j] > k``, in that many blocks; how many were not."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place_of = _blocks(context, builder, signature, args)
        limit = _splat(builder, builder.trunc(args[2], _lane))
        total = cgutils.alloca_once_value(builder, builder.mul(args[1], ir.Constant(_word, LANES)))
        with cgutils.for_range(builder, args[1]) as loop:
            place = builder.gep(place_of, [loop.index])
            values = builder.load(place, align=2)
            above = builder.icmp_unsigned(">", values, limit)
            builder.store(builder.add(values, builder.sext(above, _block)), place, align=2)
            many = builder.zext(builder.ctpop(builder.bitcast(above, ir.IntType(LANES))), _word)
            builder.store(builder.sub(builder.load(total), many), total)
        return builder.load(total)

    return types.uint64(counters, types.uint64, types.uint64), generate


def _blocks(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """A pointer to the blocks of a uint16 array."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.bitcast(array.data, _block.as_pointer())


def _splat(builder: Any, value: Any, kind: Any = _block) -> Any:
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(first, nothing, zeros)
