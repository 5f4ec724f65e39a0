"""Codes: each code and direction beside the paper's algorithm, other packages, and a plain copy as the limit.

    ./run bench codes [--device cuda] [--n 10 50] [--out results/codes.jsonl]

Times are per element in nanoseconds. On the CPU ours always checks its input, and *alternating* is the median
of calls that take turns with an addition of torch on as many elements. On a GPU, where a check waits for the
device, the checked time stands in a column of its own.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

import factorank as fr
from benchmarks import paper
from benchmarks.rows import merge
from benchmarks.timing import alternating, seconds, show
from factorank.experiments.record import provenance

LENGTHS = (10, 50, 200, 1_000, 10_000)
CODES = ("lehmer", "left-lehmer", "fisher-yates", "insertion")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench codes", description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--n", type=int, nargs="+", default=LENGTHS, help="lengths")
    parser.add_argument("--elements", type=float, help="elements in a batch (1e6 on the CPU, 5e7 on a GPU)")
    parser.add_argument("--out", default="runs/bench/codes.jsonl", help="other rows are kept")
    options = parser.parse_args(argv)
    elements = options.elements or (5e7 if options.device == "cuda" else 1e6)
    where = provenance(" ".join(["factorank bench codes", *(argv or ())]))
    rows = [row | where for n in options.n for row in measure(n, int(elements), options.device)]
    print(f"\nCodes on {where['device']}, {elements:.0e} elements, int64, ns per element")
    _table(rows, options.device)
    _write(rows, options.out)
    return 0


def measure(n: int, elements: int, device: str) -> list[dict[str, Any]]:
    orders = fr.random_permutations(n, (max(elements // n, 2),), device=device)
    copy = seconds(lambda: orders.clone(), device) / orders.numel()
    pairs = [(name, direction) for name in CODES for direction in ("encode", "decode")]
    return [_measure_one(orders, name, direction, copy, device) for name, direction in pairs]


def _measure_one(orders: torch.Tensor, name: str, direction: str, copy: float, device: str) -> dict[str, Any]:
    code, n = fr.code(name), orders.shape[1]
    source = orders if direction == "encode" else code.encode(orders)
    call: Callable[..., Any] = getattr(code, direction)
    checked = seconds(lambda: call(source), device) / source.numel()
    ours = (
        seconds(lambda: call(source, check=False), device) / source.numel() if device == "cuda" else checked
    )
    turns = None
    if device == "cpu":
        turns = alternating(lambda: call(source), lambda: source + 1) / source.numel()
    part = source[:50]
    assert torch.equal(paper.transform(part, f"{direction}-{name}"), call(part)), (name, direction, n)
    peer = seconds(lambda: paper.transform(source, f"{direction}-{name}"), device, least=2) / source.numel()
    row: dict[str, Any] = {
        "experiment": "codes",
        "what": f"{direction} {name} n={n}",
        "code": name,
        "direction": direction,
        "n": n,
        "rows": len(orders),
        "ratio": peer / ours,
        "ours": ours,
        "peer": peer,
        "limit": copy,
        "checked": checked,
        "alternating": turns,
    }
    if sys.stderr.isatty():
        print(f"  {row['what']}: {row['ratio']:.0f}×", file=sys.stderr)
    return row | _others(part, name, direction)


def _others(source: torch.Tensor, name: str, direction: str) -> dict[str, float | None]:
    """Time per element of other packages, right-Lehmer only; None where they do not apply or are missing."""
    times: dict[str, float | None] = {"lehmer": None, "sympy": None}
    if name != "lehmer" or source.is_cuda or source.shape[1] > 200:
        return times
    few = source[:200].numpy()
    try:
        from lehmer import Lehmer

        package = Lehmer(few.shape[1], precompute_factorials=False)
        theirs = package.perm2code if direction == "encode" else package.code2perm
        times["lehmer"] = seconds(lambda: theirs(few)) / few.size
    except ImportError:
        pass
    try:
        from sympy.combinatorics import Permutation

        lists = few[:50].tolist()
        if direction == "encode":
            times["sympy"] = (
                seconds(lambda: [Permutation(x).inversion_vector() for x in lists])
                / len(lists)
                / few.shape[1]
            )
        else:
            times["sympy"] = (
                seconds(lambda: [Permutation.from_inversion_vector(x[:-1]) for x in lists])
                / len(lists)
                / few.shape[1]
            )
    except ImportError:
        pass
    return times


def _table(rows: Sequence[dict[str, Any]], device: str) -> None:
    extra = ["checked"] if device == "cuda" else ["alternating", "lehmer", "sympy"]
    header = ["code", "direction", "n", "ours", "paper", "ratio", "copy", "of copy", *extra]
    body = []
    for row in rows:
        times = [_ns(row["ours"]), _ns(row["peer"]), f"{row['ratio']:.0f}×", _ns(row["limit"])]
        share = f"{100 * row['limit'] / row['ours']:.0f}%"
        body.append(
            [row["code"], row["direction"], str(row["n"]), *times, share, *(_ns(row[key]) for key in extra)]
        )
    show(header, body)


def _ns(value: float | None) -> str:
    if value is None:
        return "–"
    ns = value * 1e9
    return f"{ns:.0f}" if ns >= 100 else f"{ns:.2f}" if ns >= 0.1 else f"{ns:.4f}"


def _write(rows: list[dict[str, Any]], path: str) -> None:
    from factorank.figures import codes_figure

    merge(path, rows, figure=False)
    picture = path.removesuffix(".jsonl") + ".png"
    codes_figure(path, picture)
    print(f"written: {picture}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
