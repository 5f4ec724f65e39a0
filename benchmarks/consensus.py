"""Kemeny's consensus: large instances beside the best known orders, and how many votes are solved for sure.

    ./run bench consensus --lolib DIR [--preflib DIR/datasets] [--items 30] [--out results/consensus.jsonl]

``--lolib`` is a copy of the public repository yelmokht/linear-ordering-problem: matrices of 150 and 250 items
that contain one large cycle, and the best known value of each. A row for each size has the mean and the
largest gap to these values, in parts of the value, of our search and (``before``) of the better
of two descents from the Borda and the Copeland orders. That is how the library searched earlier, if with the
moves in another order. Seconds are those of one core. A gap below zero is an order better than the best known
one.

``--preflib`` is a copy of PrefLib/PrefLib-Data. A row for each set counts the files of votes with at most
``--items`` items, those whose order is proven best, and those that have a single best order; and the most
seconds that a file took.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import factorank as fr
from benchmarks.preflib import sets
from benchmarks.timing import show
from factorank.data import read_rankings
from factorank.distributions.fitting.kemeny import disagreement, kemeny
from factorank.distributions.fitting.voting_rules import borda, copeland
from factorank.errors import RankingsWarning
from factorank.experiments.record import provenance, write_results
from factorank.kernels.ordering import search

SIZES = (150, 250)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench consensus", description=__doc__)
    parser.add_argument("--lolib", type=Path, help="the folder with instances/ and best_known/")
    parser.add_argument("--preflib", type=Path, help="the folder that holds a folder for each set")
    parser.add_argument("--items", type=int, default=30, help="the most items of a file of votes")
    parser.add_argument("--each", type=int, default=1, help="every so many instances only")
    parser.add_argument("--out", default="runs/bench/consensus.jsonl")
    options = parser.parse_args(argv)
    rows: list[dict[str, Any]] = []
    fr.consensus(torch.tensor([[*range(9)], [*range(3, 9), 0, 1, 2], [*range(6, 9), *range(6)]]))  # compile
    if options.lolib:
        where = provenance(f"factorank bench consensus --lolib DIR --each {options.each}")
        rows += [large(options.lolib, n, options.each) | where for n in SIZES]
        show(["n", "instances", "gap", "before", "seconds"], [_cells(row) for row in rows])
    if options.preflib:
        where = provenance(f"factorank bench consensus --preflib DIR/datasets --items {options.items}")
        for name, files in sets(options.preflib, []):
            row = solved(name, files, options.items)
            if row["files"]:
                rows.append(row | where)
                print(
                    " ".join(f"{key} {row[key]}" for key in ("set", "files", "proven", "single", "slowest"))
                )
    write_results(options.out, rows)
    print(f"wrote {options.out}")
    return 0


def large(folder: Path, n: int, each: int) -> dict[str, Any]:
    """Gaps to the best known values over the instances of one size."""
    gaps, before, times, before_times = [], [], [], []
    for matrix, known in instances(folder, n, each):
        order, seconds = timed(best, matrix)
        first, first_seconds = timed(descents, matrix)
        gaps.append((known - matrix.sum() + disagreement(matrix, order)) / known)
        before.append((known - matrix.sum() + disagreement(matrix, first)) / known)
        times.append(seconds)
        before_times.append(first_seconds)
    return {
        "experiment": "consensus",
        "what": "gap to the best known value",
        "n": n,
        "instances": len(gaps),
        "gap": float(np.mean(gaps)),
        "largest_gap": float(np.max(gaps)),
        "improved": int(np.sum(np.array(gaps) < 0)),
        "reached": int(np.sum(np.array(gaps) == 0)),
        "before": float(np.mean(before)),
        "seconds": float(np.mean(times)),
        "most_seconds": float(np.max(times)),
        "before_seconds": float(np.mean(before_times)),
    }


def instances(folder: Path, n: int, each: int) -> Iterator[tuple[np.ndarray, float]]:
    """Matrices, without their diagonals, and best known values."""
    lines = (folder / "best_known" / "best_known.txt").read_text().splitlines()
    known = dict(line.split() for line in lines if len(line.split()) == 2)
    for file in sorted((folder / "instances").glob(f"*_{n}"))[::each]:
        numbers = np.array(file.read_text().split()[1:], dtype=float)
        matrix = numbers[: n * n].reshape(n, n)
        np.fill_diagonal(matrix, 0.0)
        yield matrix, float(known[file.name])


def descents(counts: np.ndarray) -> np.ndarray:
    """The better end of two descents over moves of one item."""
    ends = [
        search(counts - counts.T, np.argsort(-scores, kind="stable"), 0, 1)
        for scores in (borda(counts), copeland(counts))
    ]
    return min(ends, key=lambda order: disagreement(counts, order))


def best(counts: np.ndarray) -> np.ndarray:
    """The order of the library."""
    return kemeny(counts).order


def timed(work: Callable[[np.ndarray], np.ndarray], counts: np.ndarray) -> tuple[np.ndarray, float]:
    """An order and the seconds of this process that it took."""
    start = time.process_time()
    result = work(counts)
    return result, time.process_time() - start


def solved(name: str, files: Sequence[Path], most: int) -> dict[str, Any]:
    """How many files of a set are solved with proof; ties and items left out say nothing."""
    row: dict[str, Any] = {"experiment": "consensus", "what": "proven best", "set": name, "items": most}
    row |= {"files": 0, "proven": 0, "single": 0, "slowest": 0.0}
    start = time.perf_counter()
    for file in files:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankingsWarning)
            votes = read_rankings(file)
        if not 2 <= votes.n <= most:
            continue
        began = time.process_time()
        answer = fr.consensus(votes, unranked="incomparable")
        row["slowest"] = max(row["slowest"], round(time.process_time() - began, 3))
        row["files"] += 1
        row["proven"] += answer.exact
        row["single"] += answer.best_orders == 1
    return row | {"seconds": round(time.perf_counter() - start, 2)}


def _cells(row: dict[str, Any]) -> list[str]:
    gaps = [f"{100 * row['gap']:.3f}%", f"{100 * row['before']:.3f}%"]
    return [str(row["n"]), str(row["instances"]), *gaps, f"{row['seconds']:.2f}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
