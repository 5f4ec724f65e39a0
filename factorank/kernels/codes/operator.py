"""One torch operator for all row-wise operations on permutations and codes.

``transform`` is registered with torch as ``factorank::transform``. It runs numba on the CPU, CUDA C compiled
at first use on NVIDIA GPUs, and plain torch elsewhere, where either is missing, and inside of
``dispatch.plain``. It works inside ``torch.compile(fullgraph=True)`` and ``vmap``, and under CUDA graph
capture.
"""

import functools
from types import ModuleType

import torch
from torch import Tensor

from factorank.errors import warn
from factorank.kernels import dispatch
from factorank.kernels.codes import comparisons, reference
from factorank.kernels.codes.table import NO_FAULT


def transform(rows: Tensor, name: str, *, check: bool = True) -> tuple[Tensor, Tensor]:
    """Apply an operation of the table to every row of ``(rows, n)``, of any integer dtype.

    Returns the result, of the same shape, dtype and device, and a 0-d int64 tensor on that device: the
    index of the first row the operation does not accept, or ``NO_FAULT``. Faulty rows come out as
    garbage of the right shape; memory outside the result is never touched. With ``check=False`` the
    second tensor says nothing.
    """
    if torch.compiler.is_exporting() and dispatch.is_plain(
        "codes"
    ):  # other runtimes do not have the operator
        result = comparisons.transform(rows.to(torch.int64), name).to(rows.dtype)
        return result, torch.full((), NO_FAULT, device=rows.device)
    result, fault = torch.ops.factorank.transform(rows, name, check)
    return result, fault


def longest_increasing(rows: Tensor) -> Tensor:
    """Length of the longest increasing subsequence of each row of ``(rows, n)`` permutations: ``(rows,)``."""
    if rows.device.type == "cpu" and (numba := numba_kernels()) is not None:
        return numba.longest_increasing(rows)
    return reference.longest_increasing(rows.to(torch.int64))


def numba_kernels() -> ModuleType | None:
    """The kernels for the CPU, loaded at first use; None where numba is missing and inside of ``plain``."""
    return None if dispatch.is_plain("codes") else _load_numba()


def _plain(rows: Tensor, name: str, check: bool) -> tuple[Tensor, Tensor]:
    wide = rows.to(torch.int64)
    fault = torch.full((), NO_FAULT, device=rows.device)
    if check and rows.numel():
        faulty = reference.faulty_rows(wide, name)
        fault = torch.where(faulty.any(), faulty.to(torch.int8).argmax(), fault)
    return reference.transform(wide, name).to(rows.dtype), fault


def _on_cpu(rows: Tensor, name: str, check: bool) -> tuple[Tensor, Tensor]:
    numba = numba_kernels()
    return _plain(rows, name, check) if numba is None else numba.transform(rows, name)


def _on_cuda(rows: Tensor, name: str, check: bool) -> tuple[Tensor, Tensor]:
    global _cuda_works
    if _cuda_works and not dispatch.is_plain("codes"):
        from factorank.kernels.codes import cuda

        try:
            return cuda.transform(rows, name, check)
        except OSError as reason:
            _cuda_works = False
            warn(f"factorank runs in plain torch on the GPU, many times slower: {reason}")
    return _plain(rows, name, check)


_cuda_works = torch.version.cuda is not None


def _shapes(rows: Tensor, name: str, check: bool) -> tuple[Tensor, Tensor]:
    result = torch.empty_like(rows, memory_format=torch.contiguous_format)
    return result, rows.new_empty((), dtype=torch.int64)


@functools.cache
def _load_numba() -> ModuleType | None:
    try:
        from factorank.kernels.codes import cpu
    except ImportError:
        return None
    return cpu


_library = torch.library.Library("factorank", "DEF")
_library.define("transform(Tensor rows, str operation, bool check) -> (Tensor, Tensor)")
_library.impl("transform", _plain, "CompositeExplicitAutograd")
_library.impl("transform", _on_cpu, "CPU")
_library.impl("transform", _on_cuda, "CUDA")
torch.library.register_fake("factorank::transform", _shapes, lib=_library)


@torch.library.register_vmap("factorank::transform", lib=_library)
def _rows_of_rows(info, in_dims, rows, name, check):  # type: ignore[no-untyped-def]
    """Inside of ``vmap`` nothing waits for a fault: no row is said to be at fault."""
    rows = rows.movedim(in_dims[0], 0)
    result, _ = transform(rows.flatten(0, 1), name, check=False)
    fault = torch.full((info.batch_size,), NO_FAULT, device=rows.device)
    return (result.view(rows.shape), fault), (0, 0)
