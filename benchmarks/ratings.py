"""Ratings at full size: a table like MovieLens-32M, generated, from its zip to arrays; time and peak memory.

    ./run bench ratings [--rows 32000204] [--threads 2] [--folder DIR] [--out results/ratings-speed.jsonl]

The table has the counts of the real one: 200,000 users of log-normal activity from 20 ratings on, 84,000
movies of Zipf popularity, half stars, as CSV in a zip. A process of its own reads it (``read``), and another
the cached arrays (``cached``), so that the peak is theirs alone; it includes Python and torch. On a
machine that others use the time says little: ``load_before`` tells; the CPU time, over all threads, stays.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import show
from factorank.experiments.record import provenance, write_results

ROWS, MOVIES = 32_000_204, 84_432
USERS_AT_ONCE = 10_000
LIMITS = {"limit_seconds": 30.0, "limit_gib": 4.0}
READER = """
import json, resource, sys, time
from pathlib import Path
import torch
from factorank.data.ratings import load_ratings
start, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
ratings = load_ratings(sys.argv[1], cache=sys.argv[2] or None)
took, now = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
measured = {"seconds": took, "cpu_seconds": cpu, "peak_gib": int(status["VmHWM"].split()[0]) / 2**20}
print(json.dumps(measured | {"users": len(ratings), "items": ratings.item_count, "rows": len(ratings.items)}))
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench ratings", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="ratings in the table")
    parser.add_argument("--threads", type=int, default=2, help="threads of the reader")
    parser.add_argument("--folder", help="where the table is kept; a temporary folder unless given")
    parser.add_argument("--out", default="runs/bench/ratings.jsonl")
    options = parser.parse_args(argv)
    where = provenance(" ".join(["factorank bench ratings", *(argv or ())]))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(options.folder or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"ml-like-{options.rows}.zip"
        if not file.exists():
            generate(file, options.rows)
        cache = str(Path(scratch) / "cache")
        rows = []
        for what, cached in (("read", ""), ("read and cache", cache), ("cached", cache)):
            load = os.getloadavg()[0]
            measured = _read(file, cached, options.threads) | {"load_before": round(load, 1)}
            rows.append({"experiment": "ratings-speed", "what": what, "threads": options.threads} | measured)
            rows[-1] |= {"zip_mib": file.stat().st_size / 2**20, **LIMITS} | where
    print(f"\nRatings on {where['device']}; the reader has {options.threads}")
    _table(rows)
    write_results(options.out, rows)
    print(f"wrote {options.out}")
    return 0


def generate(file: Path, rows: int, seed: int = 0) -> None:
    """Write a zip with ``ratings.csv`` and ``movies.csv`` in the layout of MovieLens-32M."""
    aside = file.with_suffix(".part")
    with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as archive:
        movies = ["movieId,title,genres"]
        movies += [f'{3 * m + 1},"Movie {m}, The ({1920 + m % 100})",Drama|Comedy' for m in range(MOVIES)]
        archive.writestr("ml-like/movies.csv", "\n".join(movies) + "\n")
        with archive.open("ml-like/ratings.csv", "w", force_zip64=True) as stream:
            stream.write(b"userId,movieId,rating,timestamp\n")
            for text in _chunks(rows, np.random.default_rng(seed)):
                stream.write(text)
    os.replace(aside, file)


def _chunks(rows: int, random: np.random.Generator) -> Iterator[bytes]:
    """The rows as text, some thousand users at a time, by user and movie as the real file has them."""
    import polars

    popularity = (np.arange(MOVIES) + 50.0) ** -1.1
    cumulative = popularity.cumsum() / popularity.sum()
    names = random.permutation(MOVIES)  # popular movies are not the first ones
    written = first = 0
    while written < rows:
        lengths = np.maximum(random.lognormal(np.log(78), 1.25, USERS_AT_ONCE), 20).astype(np.int64)
        users = np.repeat(np.arange(USERS_AT_ONCE), np.minimum(lengths, 33_000))
        movies = names[np.searchsorted(cumulative, random.random(len(users))).clip(max=MOVIES - 1)]
        keys = np.unique(users * MOVIES + movies)[: rows - written]
        frame = polars.DataFrame(
            {
                "user": keys // MOVIES + first + 1,
                "movie": keys % MOVIES * 3 + 1,
                "rating": random.choice(
                    np.arange(1, 11) / 2,
                    len(keys),
                    p=[0.02, 0.03, 0.02, 0.07, 0.05, 0.2, 0.13, 0.26, 0.08, 0.14],
                ),
                "time": random.integers(8 * 10**8, 16 * 10**8, len(keys)),
            }
        )
        yield frame.write_csv(include_header=False, float_precision=1).encode()
        written, first = written + len(keys), first + USERS_AT_ONCE


def _read(file: Path, cache: str, threads: int) -> dict[str, Any]:
    limited = dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads))
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", READER, str(file), cache],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | limited,
    )
    return json.loads(done.stdout) | {"seconds_with_start": time.perf_counter() - start}


def _table(rows: Sequence[dict[str, Any]]) -> None:
    body = []
    for row in rows:
        counts = [f"{row[name]:,}" for name in ("rows", "users", "items")]
        times = [f"{row[name]:.1f} s" for name in ("seconds", "cpu_seconds")]
        body.append([row["what"], *counts, *times, f"{row['peak_gib']:.2f} GiB"])
    show(["what", "ratings", "users", "items", "time", "CPU time", "peak"], body)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
