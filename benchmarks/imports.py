"""How long the package takes to import, beside torch: CPU seconds of fresh interpreters.

    ./run bench imports [--out results/imports.jsonl]

"core" is a code and the classical laws; "every public name" is all that ``import factorank`` offers. Both are
taken less ``import torch``, which everybody pays who uses it. "version" is ``factorank --version``, whole.
"""

import argparse
import resource
import subprocess
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.rows import merge
from benchmarks.timing import show
from factorank.experiments.record import provenance

PROGRAMS = {
    "torch": "import torch",
    "core": "import torch, factorank as fr; fr.Lehmer; fr.Mallows",
    "every public name": "import torch, factorank as fr; [getattr(fr, name) for name in fr.__all__]",
}
VERSION = "from factorank.cli import main; main(['--version'])"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench imports", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="interpreters of each kind, in turns")
    parser.add_argument("--out", default="runs/bench/imports.jsonl", help="rows of other devices are kept")
    options = parser.parse_args(argv)
    where = provenance(" ".join(["factorank bench imports", *(argv or ())]))
    programs = {**PROGRAMS, "version": VERSION}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(options.repeats + 1):
        for name, program in programs.items():
            took = cpu_seconds(program)
            if turn:  # the first turn fills the caches
                seconds[name].append(took)
    middle = {name: median(values) for name, values in seconds.items()}
    rows: list[dict[str, Any]] = []
    for name in programs:
        besides = None if name in ("torch", "version") else middle[name] - middle["torch"]
        row = {"experiment": "imports", "what": f"import: {name}", "cpu_seconds": round(middle[name], 3)}
        besides_torch = None if besides is None else round(besides, 3)
        rows.append(row | {"besides_torch": besides_torch, "repeats": options.repeats} | where)
    print(f"\nImports on {where['device']}, CPU seconds")
    cells = [[row["what"], "", *(_number(row[k]) for k in ("cpu_seconds", "besides_torch"))] for row in rows]
    show(["what", "", "whole", "besides torch"], cells)
    merge(options.out, rows, figure=False)
    return 0


def cpu_seconds(program: str) -> float:
    """What a fresh interpreter takes, which other programs on the machine do not lengthen."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
