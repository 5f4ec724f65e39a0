"""The operations on NVIDIA GPUs: picks the kernel of walks.cu by operation and n, and its launch shape."""

import ctypes
import functools
from pathlib import Path

import torch
from torch import Tensor

from factorank.kernels.codes.table import NO_FAULT, OPERATIONS, Domain, Walk
from factorank.kernels.gpu.nvrtc import Kernel, pointer

_elements = {
    torch.int64: "long long", torch.uint64: "unsigned long long",
    torch.int32: "int", torch.uint32: "unsigned int",
    torch.int16: "short", torch.uint16: "unsigned short",
    torch.int8: "signed char", torch.uint8: "unsigned char",
}  # fmt: skip
_sizes = {Domain.PERMUTATION: "n", Domain.SHRINKING: "n - (i)", Domain.GROWING: "(i) + 1"}
_cells = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int"}
_scratch_dtypes = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


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
    what = OPERATIONS[name]
    # One value of a cell is never that of an item: it stands for all that a cell cannot hold.
    cell = 1 if n < 1 << 8 else 2 if n < 1 << 16 else 4
    # Sets of up to 256 in registers, or 1,024 where nothing is scattered; beyond, merging measured faster.
    most_words = 16 if what.walk is Walk.COUNT and _buffers(name) == 1 else 4
    words = next((words for words in (1, 4, 16) if n <= 64 * words <= 64 * most_words), 0)
    merge = what.walk in (Walk.COUNT, Walk.SELECT) and not words
    words = words if merge or words else 1  # swaps and inverses keep no set
    most = _most_shared(source.get_device())
    arguments = [pointer(source), pointer(result), ctypes.c_longlong(count), ctypes.c_int(n)]
    aligned, threads = False, 128
    if merge:
        block = 128 if n <= 512 else 256 if n <= 2048 else 1024
        per_block, shared = 1, 5 * n * cell
    else:
        buffers = _buffers(name)
        # An odd number of 4-byte banks between rows, so that threads on neighbouring rows do not collide.
        stride = (-(-n * cell // 4) | 1) * 4 // cell
        # Threads, and rows unless they are too long: small blocks overlap better, large ones move long rows.
        block = per_block = threads = 64 if cell == 1 else 128
        while per_block > 1 and buffers * per_block * stride * cell > (48 << 10):
            per_block //= 2
        shared = buffers * per_block * stride * cell
        starts = (source.data_ptr(), result.data_ptr(), per_block * n * source.element_size())
        aligned = all(start % 16 == 0 for start in starts)
        arguments += [ctypes.c_int(stride), ctypes.c_int(per_block)]
    grid, scratch = -(-count // per_block), None
    if shared > most:  # rows too long for the fast memory: a few blocks take turns in a buffer of their own
        grid = min(grid, 4 * torch.cuda.get_device_properties(source.device).multi_processor_count)
        scratch = torch.empty(grid * shared // cell, dtype=_scratch_dtypes[cell], device=source.device)
        shared = 0
    kernel = _kernel(source.get_device(), name, source.dtype, cell, words, aligned, threads)
    kernel(min(grid, (1 << 31) - 1), block, shared, *arguments, pointer(scratch), pointer(fault))


def _buffers(name: str) -> int:
    """Rows of cells a walk needs: as BUFFERS in walks.cu."""
    what = OPERATIONS[name]
    if what.walk is Walk.SWAP_ENCODE:
        return 3
    return 1 if what.walk in (Walk.COUNT, Walk.SELECT) and not name.endswith("insertion") else 2


@functools.cache
def _kernel(
    device: int, name: str, dtype: torch.dtype, cell: int, words: int, aligned: bool, threads: int
) -> Kernel:
    """walk_rows with a set of that many words, or walk_merge for none."""
    what = OPERATIONS[name]
    defines = {
        "ELEMENT": _elements[dtype], "CELL": _cells[cell], "SIZE(i)": _sizes[what.domain],
        "WALK": int(what.walk), "FORM": what.form,
        "WORDS": max(words, 1), "ALIGNED": int(aligned), "THREADS": threads,
    }  # fmt: skip
    source = Path(__file__).with_name("walks.cu").read_text()
    options = [f"--define-macro={key}={value}" for key, value in defines.items()]
    return Kernel(source, "walk_rows" if words else "walk_merge", options)


@functools.cache
def _most_shared(device: int) -> int:
    return int(getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 48 << 10))
