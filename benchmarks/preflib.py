"""Every file of PrefLib: read, written and read again the same.

    ./run bench preflib --folder DIR/datasets [--again 20] [--out results/votes-files.jsonl]

DIR is a copy of the public repository PrefLib/PrefLib-Data. Each file of votes (.soc, .soi, .toc, .toi) of
each set is read; those that ``--again`` says are written in their own format and read again, small ones also
as a table of ranks and a long one. A row for each set counts the files that were read, those of which a
warning said that something was cleaned or left out, those that were read again, and those that came back the
same (items, ranks, counts and metadata).
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from factorank.data import Rankings, read_rankings, write_rankings
from factorank.data.rankings.preflib import TYPES
from factorank.errors import FactorankError, RankingsWarning
from factorank.experiments.record import provenance, write_results

SMALL = 20_000
"""Files with at most so many ranks are also written as tables."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench preflib", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, required=True, help="the folder that holds a folder for each set"
    )
    parser.add_argument("--again", type=int, help="so many files of a set, evenly spread; all unless given")
    parser.add_argument("--sets", nargs="+", default=[], help="only sets whose names begin so")
    parser.add_argument("--out", default="runs/bench/votes-files.jsonl")
    options = parser.parse_args(argv)
    told = [] if options.again is None else ["--again", str(options.again)]
    told += ["--sets", *options.sets] if options.sets else []
    where = provenance(" ".join(["factorank bench preflib --folder DIR/datasets", *told]))
    rows = []
    for name, files in sets(options.folder, options.sets):
        row = measured(name, files, options.again) | where
        faults = row.pop("faults")
        rows.append(row)
        write_results(options.out, rows)
        print(
            " ".join(f"{key} {rows[-1][key]}" for key in ("set", "files", "read", "warned", "again", "same")),
            flush=True,
        )
        for fault in faults:
            print("  " + fault, file=sys.stderr)
    total = {
        key: sum(row[key] for row in rows) for key in ("files", "read", "warned", "again", "same", "tables")
    }
    print(f"all {len(rows)} sets: " + ", ".join(f"{key} {value}" for key, value in total.items()))
    print(f"wrote {options.out}")
    return 0 if total["files"] == total["read"] and total["again"] == total["same"] else 1


def sets(folder: Path, names: Sequence[str]) -> Iterator[tuple[str, list[Path]]]:
    """The name of each set that has votes, and its files."""
    for place in sorted(folder.iterdir()):
        files = sorted(file for file in place.glob("*") if file.suffix[1:] in TYPES)
        if files and (not names or place.name.startswith(tuple(names))):
            yield place.name, files


def measured(name: str, files: Sequence[Path], most: int | None) -> dict[str, Any]:
    """The row of a set; files with a warning are read again in any case."""
    row: dict[str, Any] = {"experiment": "votes-files", "set": name, "files": len(files)}
    row |= {"read": 0, "warned": 0, "again": 0, "same": 0, "tables": 0, "voters": 0, "faults": []}
    chosen = set(files[:: max(1, -(-len(files) // most)) if most else 1])
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        for file in files:
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always", RankingsWarning)
                    votes = read_rankings(file)
                row["read"] += 1
                row["warned"] += bool(caught)
                row["voters"] += votes.voters
                if not caught and file not in chosen:
                    continue
                row["again"] += 1
                differing = again(votes, Path(scratch), file.suffix)
                row["same"] += not differing
                row["tables"] += votes.ranks.numel() <= SMALL
                row["faults"] += [f"{file.name}: {way} differs" for way in differing]
            except FactorankError as error:
                row["faults"].append(f"{file.name}: {str(error).replace(str(file.parent) + os.sep, '')}")
    return row | {"seconds": round(time.perf_counter() - start, 2)}


def again(votes: Rankings, folder: Path, suffix: str) -> list[str]:
    """The ways of writing that do not give the rankings back."""
    ways: list[tuple[str, str | None]] = [(suffix, None)]
    if votes.ranks.numel() <= SMALL:
        ways += [(".csv", "ranks"), (".tsv", "long")]
    differing = []
    for end, layout in ways:
        path = folder / f"votes{end}"
        write_rankings(votes, path, layout)
        back = read_rankings(path, layout)
        if back != votes or (layout is None and told(back) != told(votes)):
            differing.append(layout or end)
    return differing


def told(votes: Rankings) -> dict[str, str]:
    """The metadata that says something; lines that a file lacks are written empty."""
    return {key: value for key, value in votes.metadata.items() if value}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
