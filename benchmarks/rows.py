"""The rows of the speed benchmarks: written beside those of other devices and shown as a table."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import show
from benchmarks.workloads import LENGTHS
from factorank.errors import FactorankError
from factorank.experiments.record import provenance, write_results
from factorank.files import read_json_lines

UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def speed_parser(name: str, about: str | None, names: Sequence[str]) -> argparse.ArgumentParser:
    """The options that measuring training and sampling have in common."""
    parser = argparse.ArgumentParser(prog=f"bench {name}", description=about)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="+", help=f"parts of the names of {', '.join(names)}")
    parser.add_argument("--rounds", type=int, default=3, help="turns of ours and the plain loop")
    parser.add_argument("--threads", type=int, help="of the CPU; torch's own choice unless given")
    parser.add_argument("--n", type=int, nargs="+", default=LENGTHS, help="lengths of the costs")
    parser.add_argument("--quick", action="store_true", help="tiny networks: does everything run?")
    parser.add_argument("--out", default="runs/bench/speed.jsonl", help="rows of other devices are kept")
    return parser


def start(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> tuple[Any, dict[str, Any]]:
    """The options of a run, with torch set up for them, and where its rows come from."""
    options = parser.parse_args(argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("high")
    return options, provenance(" ".join([f"factorank {parser.prog}", *(argv or ())]))


def say(row: dict[str, Any]) -> None:
    """One line while the rest is still being measured."""
    ratio = "" if row.get("ratio") is None else f", {row['ratio']:.2f}×"
    print(
        f"  {row['what']} n={row['n']} batch={row['batch']}: {human(row['ours'])} {row['unit']}{ratio}",
        file=sys.stderr,
        flush=True,
    )


def table(rows: Sequence[dict[str, Any]]) -> None:
    """Ours, the peer's, the ratio and the limit, each a rate."""
    header = ["what", "unit", "n", "batch", "ours", "peer", "ratio", "limit", "of limit"]
    body = []
    for row in rows:
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}×"
        share = "–" if row["limit"] is None else f"{100 * row['ours'] / row['limit']:.2g}%"
        cells = [str(row["n"]), str(row["batch"]), human(row["ours"]), human(row["peer"]), ratio]
        body.append([row["what"], row["unit"], *cells, human(row["limit"]), share])
    show(header, body)


def human(value: float | None) -> str:
    """A rate with three digits.

    >>> human(1234567.0), human(12.0), human(None)
    ('1.23 M', '12', '–')
    """
    if value is None:
        return "–"
    for size, letter in UNITS:
        if value >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g}"


def merge(path: str, rows: list[dict[str, Any]], *, figure: bool = True) -> None:
    """Write the rows, in the place of those of the same device, name, n and NFE; the others stay."""
    replaced = {_key(row) for row in rows}
    kept = read_json_lines(path) if Path(path).exists() else []
    write_results(path, [row for row in kept if _key(row) not in replaced] + rows)
    print(f"written: {path}")
    if not figure:
        return
    from factorank.figures import speed_figure

    picture = path.removesuffix(".jsonl") + ".png"
    try:
        speed_figure(path, picture)
    except FactorankError as error:
        print(f"no figure: {error}")
    else:
        print(f"written: {picture}")


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["device"], row["what"], row.get("n"), row.get("nfe")
