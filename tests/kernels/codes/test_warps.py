"""The kernel that gives a GPU's warp to each row, on the CPU: ``warp.h`` lets 32 lanes take turns."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import factorank as fr
from factorank.kernels.codes import NO_FAULT, OPERATIONS, cuda, transform
from factorank.kernels.codes.table import Domain, Walk

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler for C++")
Run = Callable[[torch.Tensor, bool], tuple[torch.Tensor, int]]
PROGRAM = """
#include "warp.h"
#include "walks.cu"
#include "warps.cu"
static const long long *in;
static long long *out, rows, *fault;
static int n, stride, per_block;
static unsigned char *scratch;
static void run_lane() { walk_warps(in, out, rows, n, stride, per_block, scratch, fault); }
extern "C" void run(const long long *source, long long *target, long long count, int length, int between,
                    int warps, unsigned char *buffer, long long *faulty, int blocks, int last_first) {
    in = source, out = target, rows = count, n = length, stride = between;
    per_block = warps, scratch = buffer, fault = faulty;
    launch(blocks, warps, last_first);
}
"""


def compiled(folder: Path, name: str, n: int, *, spilled: bool) -> Run:
    """The kernel for rows of n: the result and the first faulty row."""
    what, kernels = OPERATIONS[name], Path(cuda.__file__).parent
    shape = cuda._warp_shape(n, what.form, 0 if spilled else 1 << 17)
    defines = {
        "ELEMENT": "long long", "CELL": cuda._cells[shape.cell], "WALK": int(what.walk), "FORM": what.form,
        "THREADS": shape.threads, "GROUP": cuda._group(n), "SPILLED": int(spilled),
    }  # fmt: skip
    (folder / "program.cpp").write_text(PROGRAM)
    macros = [f"-D{key}={value}" for key, value in defines.items()]
    folders = [f"-I{Path(__file__).parent}", f"-I{kernels}"]
    library = folder / "program.so"
    subprocess.run(
        ["g++", "-w", "-shared", "-fPIC", *folders, *macros, folder / "program.cpp", "-o", library],
        check=True,
    )
    function, blocks = ctypes.CDLL(str(library)).run, 2

    def run(rows: torch.Tensor, last_first: bool) -> tuple[torch.Tensor, int]:
        result, fault = torch.full_like(rows, -1), torch.tensor(NO_FAULT)
        scratch = torch.empty(blocks * shape.bytes, dtype=torch.uint8)
        source, target, buffer, faulty = (
            ctypes.c_void_p(tensor.data_ptr()) for tensor in (rows, result, scratch, fault)
        )
        count = ctypes.c_longlong(len(rows))
        sizes = (n, shape.stride, shape.per_block)
        function(source, target, count, *sizes, buffer, faulty, blocks, int(last_first))
        return result, int(fault)

    return run


@pytest.mark.parametrize(
    "name", [name for name, what in OPERATIONS.items() if what.walk in (Walk.COUNT, Walk.SELECT)]
)
@pytest.mark.parametrize(("n", "spilled"), [(70, False), (1100, False), (270, True)])
def test_equals_the_kernel_of_the_cpu(name: str, n: int, spilled: bool, tmp_path: Path) -> None:
    run = compiled(tmp_path, name, n, spilled=spilled)
    orders = fr.random_permutations(n, (11,), generator=torch.Generator().manual_seed(n))
    orders[1], orders[2] = torch.arange(n), torch.arange(n).flip(0)
    rows = transform(orders, name.replace("decode", "encode"))[0] if name.startswith("decode") else orders
    expected = transform(rows, name)[0]
    for last_first in (False, True):  # no lane may depend on another between two meetings
        result, fault = run(rows, last_first)
        assert torch.equal(result, expected)
        assert fault == NO_FAULT
    for value in (-1, n, 2**40, None):
        bad = rows.clone()
        if value is not None:
            bad[7, -1] = value
        elif OPERATIONS[name].domain is Domain.PERMUTATION:
            bad[7, 0] = bad[7, 1]  # twice the same
        else:
            continue
        bad[10, 0] = -7
        result, fault = run(bad, False)
        assert fault == 7
        assert torch.equal(result[:7], expected[:7])
    run(torch.randint(-(2**62), 2**62, (3, n)), False)
