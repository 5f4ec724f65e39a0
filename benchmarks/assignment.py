"""Assignments: ``best_assignment`` beside scipy and lapx, in one run on the CPU.

    ./run bench assignment [--n 10 50] [--out results/assignment-speed.jsonl]

The scores are uniform numbers, for which nearly every matrix needs a search. scipy and lapx take one matrix
of float64 costs a call; lapx's ``lapjvx_batch`` takes many and as many threads as torch. A peer that is not
installed is left out.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.rows import merge
from benchmarks.timing import seconds, show
from factorank.assignment import best_assignment
from factorank.experiments.record import provenance

LENGTHS = (10, 50, 200)
ELEMENTS = 200_000


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench assignment", description=__doc__)
    parser.add_argument("--n", type=int, nargs="+", default=LENGTHS, help="lengths")
    parser.add_argument("--out", default="runs/bench/assignment.jsonl", help="rows of other devices are kept")
    options = parser.parse_args(argv)
    where = provenance(" ".join(["factorank bench assignment", *(argv or ())]))
    rows = [row | where for n in options.n for row in measure(n)]
    print(f"\nAssignments on {where['device']}, µs per matrix")
    cells = []
    for row in rows:
        times = [f"{row[key] * 1e6:.3g}" for key in ("ours", "peer")]
        cells.append([row["peer_name"], str(row["rows"]), str(row["n"]), *times, f"{row['ratio']:.2f}×"])
    show(["peer", "matrices", "n", "ours", "theirs", "ratio"], cells)
    merge(options.out, rows, figure=False)
    return 0


def measure(n: int) -> list[dict[str, Any]]:
    count = max(ELEMENTS // n**2, 2)
    scores = torch.rand((count, n, n), dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    ours = seconds(lambda: best_assignment(scores)) / count
    orders = best_assignment(scores)
    best = scores.gather(2, orders[:, :, None]).sum()
    costs = -scores.numpy()
    rows = []
    for name, solve in peers(costs).items():
        theirs = torch.tensor(solve())
        assert torch.isclose(scores.gather(2, theirs[:, :, None].long()).sum(), best), name
        peer = seconds(solve) / count
        row = {"experiment": "assignment-speed", "what": f"assignment n={n} beside {name}", "peer_name": name}
        rows.append(
            row | {"n": n, "rows": count, "ratio": peer / ours, "ours": ours, "peer": peer, "limit": None}
        )
    return rows


def peers(costs: Any) -> dict[str, Callable[[], Any]]:
    """Functions that return the item of each place of each matrix, by name; of those that are installed."""
    solvers: dict[str, Callable[[], Any]] = {}
    try:
        from scipy.optimize import linear_sum_assignment

        solvers["scipy"] = lambda: [linear_sum_assignment(cost)[1].tolist() for cost in costs]
    except ImportError:
        pass
    try:
        import lap
    except ImportError:
        return solvers
    threads = torch.get_num_threads()
    solvers["lapx"] = lambda: [lap.lapjv(cost, return_cost=False)[0].tolist() for cost in costs]
    solvers["lapx, batch"] = lambda: [
        items.tolist() for items in lap.lapjvx_batch(costs, return_cost=False, n_threads=threads)[1]
    ]
    return solvers


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
