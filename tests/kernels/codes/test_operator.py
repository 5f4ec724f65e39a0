"""The operator, its back ends, and that they agree with each other."""

import os
import subprocess
import sys
import threading
import warnings

import pytest
import torch

import factorank as fr
from factorank.kernels import dispatch
from factorank.kernels.codes import NO_FAULT, OPERATIONS, cpu, reference, transform

LENGTHS = [1, 2, 3, 10, 16, 17, 33, 50, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 1000]


def inputs(name: str, n: int, rows: int, device: str = "cpu") -> torch.Tensor:
    orders = fr.random_permutations(n, (rows,), generator=torch.Generator().manual_seed(n))
    if name.startswith("decode"):
        orders = reference.transform(orders, name.replace("decode", "encode"))
    return orders.to(device)


@pytest.mark.parametrize("name", OPERATIONS)
def test_cpu_kernels_equal_plain_torch(name: str) -> None:
    for n in LENGTHS:
        rows = inputs(name, n, 9)
        result, fault = transform(rows, name)
        assert torch.equal(result, reference.transform(rows, name))
        assert int(fault) == NO_FAULT


@pytest.mark.parametrize("name", OPERATIONS)
def test_inside_plain_the_reference_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = inputs(name, 10, 9)
    expected, _ = transform(rows, name)
    monkeypatch.setattr(cpu, "transform", None)
    with dispatch.plain("codes"):
        assert torch.equal(transform(rows, name)[0], expected)


@pytest.fixture
def three_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many torch has here: the rows are split as if it had three."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_first_faulty_row_is_found_across_threads(name: str) -> None:
    for n in (5, 50, 100):
        rows = inputs(name, n, 4 * cpu.GRAIN // n)
        for first in (0, 1, len(rows) // 2, len(rows) - 1):
            bad = rows.clone()
            bad[first, -1] = -3
            bad[-1, 0] = n
            assert int(transform(bad, name)[1]) == first
            assert int(reference.faulty_rows(bad, name).int().argmax()) == first


def test_without_numba_plain_torch_takes_over() -> None:
    """In a process where numba cannot be imported: same answers, same errors."""
    program = """
import sys
sys.modules["numba"] = None
import torch, factorank as fr
from factorank.kernels.codes.operator import numba_kernels
assert numba_kernels() is None
for name in fr.code_names():
    for n in (1, 5, 70):
        orders = fr.random_permutations(n, (6,))
        assert torch.equal(fr.code(name).decode(fr.code(name).encode(orders)), orders)
assert fr.ulam(torch.arange(4), torch.tensor([3, 0, 1, 2])) == 1
try:
    fr.Lehmer().decode(torch.tensor([[0, 0], [2, 0]]))
except fr.CodeError as error:
    assert "row 1 holds 2" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="elsewhere the portable path is the only one")
def test_the_portable_selection_equals_the_one_of_this_processor(tmp_path: object) -> None:
    """For a processor without extensions numba compiles the search instead of PDEP."""
    program = """
import torch, factorank as fr
from factorank.kernels.codes import reference, transform
from factorank.kernels.codes.operator import numba_kernels
from numba.core.registry import cpu_target
assert "+bmi2" not in cpu_target.target_context.codegen().magic_tuple()[2]
assert numba_kernels() is not None
for name in ("decode-lehmer", "decode-left-lehmer", "decode-insertion"):
    for n in (1, 2, 63, 64, 65, 200):
        orders = fr.random_permutations(n, (20,))
        codes = reference.transform(orders, name.replace("decode", "encode"))
        assert torch.equal(transform(codes, name)[0], orders), (name, n)
"""
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | plain)


@pytest.mark.usefixtures("three_threads")
def test_many_threads_and_forks() -> None:
    orders = fr.random_permutations(50, (4000,))
    expected = fr.Lehmer().encode(orders)
    wrong: list[int] = []

    def work() -> None:
        for _ in range(10):
            wrong.extend([] if torch.equal(fr.Lehmer().encode(orders), expected) else [1])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what is tested
        child = os.fork() if hasattr(os, "fork") else None
    if child == 0:  # numpy compares, as torch's own threads do not survive a fork
        os._exit(0 if (fr.Lehmer().encode(orders).numpy() == expected.numpy()).all() else 1)
    if child is not None:
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_operator_is_well_formed(name: str) -> None:
    rows = inputs(name, 5, 3)
    torch.library.opcheck(torch.ops.factorank.transform.default, (rows, name, True))


def test_codes_inside_torch_compile() -> None:
    @torch.compile(fullgraph=True, backend="aot_eager")
    def round_trip(orders: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(fr.code(name).decode(fr.code(name).encode(orders)) for name in fr.code_names())

    orders = fr.random_permutations(6, (4, 2))
    for back in round_trip(orders):
        assert torch.equal(back, orders)


# On a GPU.


@pytest.mark.gpu
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
def test_gpu_kernels_equal_the_cpu(name: str, dtype: torch.dtype) -> None:
    longest = {torch.uint8: 256, torch.int16: 16_384}.get(dtype, 70_000)
    lengths = [*LENGTHS, 2048, 2049, 10_000, 20_000, 25_000, 66_000]
    for n in lengths if dtype != torch.int32 else LENGTHS[::3]:
        if n <= longest:
            rows = inputs_by_kernel(name, n, 3 if n > 5000 else 300)
            result, fault = transform(rows.to(dtype).cuda(), name)
            assert torch.equal(result.cpu().to(torch.int64), transform(rows, name)[0]), n
            assert int(fault) == NO_FAULT


def inputs_by_kernel(name: str, n: int, rows: int) -> torch.Tensor:
    orders = fr.random_permutations(n, (rows,), generator=torch.Generator().manual_seed(n))
    return transform(orders, name.replace("decode", "encode"))[0] if name.startswith("decode") else orders


@pytest.mark.gpu
@pytest.mark.parametrize("name", OPERATIONS)
def test_gpu_kernels_find_the_first_faulty_row(name: str) -> None:
    for n in (1, 5, 50, 64, 65, 300, 3000):
        rows = inputs_by_kernel(name, n, 500)
        for first in (0, 250, 499):
            for value in (-1, n, 2**40, None):
                bad = rows.clone()
                if value is None:
                    if OPERATIONS[name].domain.name != "PERMUTATION" or n == 1:
                        continue
                    bad[first, 0] = bad[first, 1]  # twice the same
                else:
                    bad[first, -1] = value
                bad[499, 0] = -7
                assert int(transform(bad.cuda(), name)[1]) == first
    garbage = torch.randint(-(2**62), 2**62, (100, 300), device="cuda")
    for n in (5, 64, 65, 300):
        transform(garbage[:, :n].contiguous(), name, check=False)
    torch.cuda.synchronize()


@pytest.mark.gpu
def test_every_permutation_of_seven_on_the_gpu() -> None:
    orders = fr.permutation_at(torch.arange(5040), 7)
    for name in fr.code_names():
        codes = fr.code(name).encode(orders.cuda())
        assert torch.equal(codes.cpu(), fr.code(name).encode(orders))
        assert torch.equal(fr.code(name).decode(codes).cpu(), orders)


@pytest.mark.gpu
def test_codes_in_a_captured_graph_and_compiled_on_the_gpu() -> None:
    orders = fr.random_permutations(50, (1000,), device="cuda")

    def round_trip(orders: torch.Tensor) -> list[torch.Tensor]:
        return [fr.code(name).decode(fr.code(name).encode(orders)) for name in fr.code_names()]

    round_trip(orders)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = round_trip(orders)
    orders.copy_(fr.random_permutations(50, (1000,), device="cuda"))
    graph.replay()
    for back in (*captured, *torch.compile(round_trip, fullgraph=True)(orders)):
        assert torch.equal(back, orders)


@pytest.mark.gpu
def test_bad_input_on_the_gpu_is_refused_with_its_place() -> None:
    codes = torch.zeros((2000, 50), dtype=torch.int64, device="cuda")
    codes[1700, 48] = 2
    with pytest.raises(fr.CodeError, match=r"allows 0\.\.1 at position 48 but row 1700 holds 2"):
        fr.FisherYates().decode(codes)
