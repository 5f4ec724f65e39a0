"""Uniform permutations: ``fr.random_permutations`` beside a bijective shuffle, a sort and ``torch.randperm``.

    ./run bench uniform [--device cuda] [--n 10 50] [--out results/uniform-speed.jsonl]

Ours is a Fisher-Yates shuffle of numbers from the generator: every permutation has the same probability. The
bijective shuffle (Mitchell and others, 2022; here 24 rounds of a Feistel network with cycle walking, on a GPU
only) computes each element for itself and reaches as many permutations as there are seeds. The sort is that
of uniform numbers. ``torch.randperm`` makes one permutation a call. Times are per element in nanoseconds; the
limit is that of filling the memory with a constant.
"""

import argparse
import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import factorank as fr
from benchmarks.rows import merge
from benchmarks.timing import seconds, show
from factorank.experiments.record import provenance

LENGTHS = (10, 50, 200, 1_000, 10_000)
CALLS = 20
"""Of ``torch.randperm``, to time one."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench uniform", description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--n", type=int, nargs="+", default=LENGTHS, help="lengths")
    parser.add_argument("--elements", type=float, help="elements in a batch (1e6 on the CPU, 5e7 on a GPU)")
    parser.add_argument("--out", default="runs/bench/uniform.jsonl", help="rows of other devices are kept")
    options = parser.parse_args(argv)
    elements = int(options.elements or (5e7 if options.device == "cuda" else 1e6))
    where = provenance(" ".join(["factorank bench uniform", *(argv or ())]))
    rows = [row | where for n in options.n for row in measure(n, elements, options.device)]
    print(f"\nUniform permutations on {where['device']}, {elements:.0e} elements, int64, ns per element")
    header = ["what", "peer", "n", "ours", "theirs", "ratio", "fill", "of fill"]
    show(header, [_cells(row) for row in rows])
    merge(options.out, rows, figure=False)
    return 0


def measure(n: int, elements: int, device: str) -> list[dict[str, Any]]:
    count = max(elements // n, 2)
    target = torch.empty((count, n), dtype=torch.int64, device=device)
    limit = seconds(lambda: target.fill_(1), device) / target.numel()
    ours = seconds(lambda: fr.random_permutations(n, (count,), device=device), device) / target.numel()
    peers: dict[str, tuple[Callable[[], Any], int]] = {
        "sort": (lambda: torch.rand((count, n), device=device).argsort(-1), count),
        "randperm": (lambda: [torch.randperm(n, device=device) for _ in range(CALLS)], CALLS),
    }
    if device == "cuda":
        assert fr.is_permutation(bijective_shuffle(target[:1000], 0)).all()
        peers["bijective shuffle"] = (lambda: bijective_shuffle(target, 0), count)
    rows = []
    for name, (call, made) in peers.items():
        peer = seconds(call, device) / (made * n)
        times = {"ratio": peer / ours, "ours": ours, "peer": peer, "limit": limit}
        row = {
            "experiment": "uniform-speed",
            "what": f"uniform n={n} beside {name}",
            "peer_name": name,
            "n": n,
        }
        rows.append(row | times | {"rows": count, "peer_rows": made})
    return rows


def bijective_shuffle(out: torch.Tensor, seed: int) -> torch.Tensor:
    """Fill ``(rows, n)`` on a GPU with a permutation for each row, and return it."""
    n = out.shape[1]
    bits = max((n - 1).bit_length(), 2)
    sizes = (ctypes.c_int(n), ctypes.c_int(bits // 2), ctypes.c_int(bits - bits // 2))
    grid = min(-(-out.numel() // 256), 1 << 20)
    arguments = (
        ctypes.c_void_p(out.data_ptr()),
        ctypes.c_longlong(out.numel()),
        *sizes,
        ctypes.c_ulonglong(seed),
    )
    _kernel()(grid, 256, 0, *arguments)
    return out


@functools.cache
def _kernel() -> Any:
    from factorank.kernels.gpu.nvrtc import Kernel

    return Kernel(Path(__file__).with_name("shuffle.cu").read_text(), "shuffle", [])


def _cells(row: dict[str, Any]) -> list[str]:
    ours, peer, limit = (f"{row[key] * 1e9:.3g}" for key in ("ours", "peer", "limit"))
    share = f"{100 * row['limit'] / row['ours']:.0f}%"
    return ["uniform", row["peer_name"], str(row["n"]), ours, peer, f"{row['ratio']:.2f}×", limit, share]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
