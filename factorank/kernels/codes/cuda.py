"""The operations on NVIDIA GPUs: picks the kernel by operation and n, and its launch shape.

``rows.cu`` gives a thread to each row, ``warps.cu`` a warp; ``walks.cu`` is what they share.
"""

import ctypes
import functools
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from factorank.kernels.codes.table import INSERTION, NO_FAULT, OPERATIONS, Domain, Walk
from factorank.kernels.gpu.nvrtc import Kernel, pointer

ROW_LIMIT = 256
"""The length up to which a thread keeps the set of a row in registers; beyond, warps measured faster."""
_elements = {
    torch.int64: "long long", torch.uint64: "unsigned long long",
    torch.int32: "int", torch.uint32: "unsigned int",
    torch.int16: "short", torch.uint16: "unsigned short",
    torch.int8: "signed char", torch.uint8: "unsigned char",
}  # fmt: skip
_sizes = {Domain.PERMUTATION: "n", Domain.SHRINKING: "n - (i)", Domain.GROWING: "(i) + 1"}
_cells = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int"}


class Shape(NamedTuple):
    """How the rows of a launch are laid out."""

    kernel: str
    """"rows" or "warps"."""
    cell: int
    """Bytes of a cell."""
    threads: int
    """Of a block."""
    per_block: int
    """Rows of a block."""
    stride: int
    """From one row to the next in fast memory: cells for "rows", bytes for "warps"."""
    bytes: int
    """Fast memory of a block."""


def transform(rows: Tensor, name: str, check: bool) -> tuple[Tensor, Tensor]:
    """``operator.transform`` for a CUDA tensor."""
    fault = torch.full((), NO_FAULT, device=rows.device) if check else rows.new_empty((), dtype=torch.int64)
    source = rows.contiguous()
    result = torch.empty_like(source)
    if rows.numel() == 0:
        return result, fault
    with torch.cuda.device(rows.device):
        _launch(source, result, name, fault if check else None)
    return result, fault


def _launch(source: Tensor, result: Tensor, name: str, fault: Tensor | None) -> None:
    count, n = source.shape
    most, processors = _machine(source.get_device())
    shape = _shape(name, n, most)
    grid, scratch, spilled = -(-count // shape.per_block), None, shape.bytes > most
    if spilled:  # rows too long for the fast memory: a few blocks take turns in a buffer of their own
        grid = min(grid, 4 * processors)
        scratch = torch.empty(grid * shape.bytes, dtype=torch.uint8, device=source.device)
    starts = (source.data_ptr(), result.data_ptr(), shape.per_block * n * source.element_size())
    defines = {"ELEMENT": _elements[source.dtype], "CELL": _cells[shape.cell], "THREADS": shape.threads}
    if shape.kernel == "rows":
        aligned = all(start % 16 == 0 for start in starts)
        words = 4 if 64 < n <= 256 else 1  # one is enough for walks without a set
        defines |= {"WORDS": words, "ALIGNED": int(aligned)}
    else:
        defines |= {"GROUP": _group(n), "SPILLED": int(spilled)}
    kernel = _kernel(source.get_device(), name, shape.kernel, tuple(defines.items()))
    kernel(
        min(grid, (1 << 31) - 1), shape.threads, 0 if spilled else shape.bytes,
        pointer(source), pointer(result),
        ctypes.c_longlong(count), ctypes.c_int(n), ctypes.c_int(shape.stride), ctypes.c_int(shape.per_block),
        pointer(scratch), pointer(fault),
    )  # fmt: skip


@functools.cache
def _shape(name: str, n: int, most: int) -> Shape:
    """``most``: the fast memory that a block may have."""
    walk, form = OPERATIONS[name].walk, OPERATIONS[name].form
    if n > ROW_LIMIT and walk in (Walk.COUNT, Walk.SELECT):
        return _warp_shape(n, form, most)
    cell = _cell(n)
    buffers = {Walk.SWAP_ENCODE: 3, Walk.SWAP_DECODE: 2, Walk.INVERT: 2}.get(walk, 1 + (form == INSERTION))
    # An odd number of 4-byte banks between rows, so that threads on neighbouring rows do not collide.
    stride = (-(-n * cell // 4) | 1) * 4 // cell
    # Threads, and rows unless they are too long: small blocks overlap better, large ones move long rows.
    per_block = threads = 64 if cell == 1 else 128
    while per_block > 1 and buffers * per_block * stride * cell > (48 << 10):
        per_block //= 2
    return Shape("rows", cell, threads, per_block, stride, buffers * per_block * stride * cell)


def _warp_shape(n: int, form: int, most: int) -> Shape:
    cell = _cell(n)
    # The words of the set, a count for each lane, 32 picks, and the row where results are scattered.
    stride = 4 * 32 * ((_group(n) | 1) + 1) + 32 * cell + (n * cell if form == INSERTION else 0)
    stride = -(-stride // 16) * 16
    per_block = next((warps for warps in (4, 2) if 4 * warps * stride <= most), 1)
    return Shape("warps", cell, 32 * per_block, per_block, stride, per_block * stride)


def _cell(n: int) -> int:
    """Bytes of a cell. One of its values is never that of an item: it stands for all that it cannot hold."""
    return 1 if n < 1 << 8 else 2 if n < 1 << 16 else 4


def _group(n: int) -> int:
    """32-bit words of a set of n for each lane of a warp."""
    return -(-n // (32 * 32))


@functools.cache
def _kernel(device: int, name: str, file: str, defines: tuple[tuple[str, object], ...]) -> Kernel:
    what = OPERATIONS[name]
    of_walk = (("WALK", int(what.walk)), ("FORM", what.form), ("SIZE(i)", _sizes[what.domain]))
    options = [f"--define-macro={key}={value}" for key, value in (*of_walk, *defines)]
    source = "".join(Path(__file__).with_name(f"{part}.cu").read_text() for part in ("walks", file))
    return Kernel(source, f"walk_{file}", options)


@functools.cache
def _machine(device: int) -> tuple[int, int]:
    """The fast memory that a block may have, and the number of multiprocessors."""
    properties = torch.cuda.get_device_properties(device)
    most = int(getattr(properties, "shared_memory_per_block_optin", 48 << 10))
    return most, properties.multi_processor_count
