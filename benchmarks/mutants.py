"""Mutation testing of the core: small changes of the source, each of which some test should notice.

    ./run bench mutants [--count 330] [--seed 0] [--seconds 3600] [--again] [--out results/mutants.jsonl]

A mutant differs from a module in one place: a comparison, an operator, a constant, a condition. It is written
into a copy of the tree, and the tests that enter the changed function run until the first one fails: the
module's own tests first, the quickest first. Each part of the core has the same share of mutants, and within
it the modules take turns. The campaign goes on where it stopped. Survivors are looked at one by one; the
reasons are kept in ``campaign/survivors.json``. ``--again`` repeats the survivors that have
no reason, after tests were added.
"""

import argparse
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.campaign.changes import Mutant, mutant, places
from benchmarks.campaign.choosing import Reached, choose, reached
from benchmarks.timing import show
from factorank.experiments.record import provenance, write_results
from factorank.files import read_json_lines
from factorank.reading import read_json

ROOT = Path(__file__).parents[1]
REASONS = Path(__file__).parent / "campaign" / "survivors.json"
PARTS = {
    "codes": ["codes/*", "permutations", "lexicographic"],
    "distributions": ["distributions/**/*"],
    "models": ["models/*", "sampling/*"],
    "metrics": ["metrics", "losses", "distances", "assignment", "rerank/evaluation/*"],
    "rerank": ["rerank/*"],
    "checkpoints": [
        "training/checkpoints", "training/run_folder", "training/loop", "training/train", "training/data",
        "training/batches", "training/random_streams", "sealed", "files", "reading",
    ],
}  # fmt: skip
"""The parts of the core and their modules."""
TESTS = [
    "tests/codes", "tests/distributions", "tests/models", "tests/sampling", "tests/rerank", "tests/training",
    "tests/test_permutations.py", "tests/test_lexicographic.py", "tests/test_distances.py",
    "tests/test_assignment.py", "tests/test_metrics.py", "tests/test_losses.py", "tests/test_sealed.py",
    "tests/test_files.py", "tests/test_errors.py", "tests/test_reading.py", "tests/test_memory.py",
    "tests/test_one_contract.py",
    "tests/test_reliability.py", "tests/data/ratings", "tests/votes", "tests/experiments/test_rerank.py",
]  # fmt: skip
"""The tests that may notice, beside the examples in the modules themselves."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=330, help="mutants in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--enough", type=float, default=10, help="seconds of tests for a mutant")
    parser.add_argument("--only", default="", help="a part of the names of modules")
    parser.add_argument("--again", action="store_true", help="repeat survivors without a reason")
    parser.add_argument(
        "--state", default="runs/bench/mutants", help="the copy of the tree, what tests reach"
    )
    parser.add_argument("--out", default="runs/bench/mutants.jsonl")
    options = parser.parse_args(argv)
    rows = read_json_lines(options.out) if Path(options.out).exists() else []
    where = provenance(" ".join(["factorank bench mutants", *(argv or ())]))
    tests, started, reasons = Tests(Path(options.state).resolve()), time.monotonic(), _reasons()
    done = {_name(row): row for row in rows}
    unclear = {name for name, row in done.items() if not row["caught"] and name not in reasons}
    again = unclear if options.again else None
    for changed in mutants(options.seed, options.only):
        ended = len(done) >= options.count if again is None else not again
        if ended or time.monotonic() - started > options.seconds:
            break
        if changed.name in done if again is None else changed.name not in again:
            continue
        if again is not None:
            again.remove(changed.name)
        row = tests.row(changed, options.enough) | {"seed": options.seed} | where
        done[changed.name] = row
        write_results(options.out, done.values())
        print(f"{len(done)}: {changed.module}:{changed.line} {changed.change}: {_word(row)}", flush=True)
    tests.close()
    for row in done.values():
        row.pop("reason", None)
        if not row["caught"] and (reason := reasons.get(_name(row))):
            row["reason"] = reason
    write_results(options.out, done.values())
    _show(list(done.values()))
    print(f"\nwritten: {options.out}")
    return 0


def mutants(seed: int, only: str = "") -> Iterator[Mutant]:
    """Every mutant once, in an order of chance in which parts take turns, and the modules of a part."""
    library, chance = ROOT / "factorank", random.Random(seed)
    parts: list[list[tuple[str, str, int]]] = []
    for part, patterns in PARTS.items():
        turns: list[list[tuple[str, str, int]]] = []
        files = sorted({file for pattern in patterns for file in library.glob(f"{pattern}.py")})
        chance.shuffle(files)
        for file in files:
            module = file.relative_to(library).with_suffix("").as_posix()
            numbers = list(range(places(module, library)))
            chance.shuffle(numbers)
            turns.append([(part, module, number) for number in numbers])
        parts.append(_in_turns(turns))
    seen = set()
    for part, module, number in _in_turns(parts):
        if only in module:
            changed = mutant(part, module, number, library)
            if changed.name not in seen:
                seen.add(changed.name)
                yield changed


def _in_turns(lists: list[list[tuple[str, str, int]]]) -> list[tuple[str, str, int]]:
    rounds = itertools.zip_longest(*lists)
    return [entry for entries in rounds for entry in entries if entry is not None]


class Tests:
    """Runs the tests of a mutant in a copy of the tree, quickly: see ``campaign/worker.py``."""

    def __init__(self, state: Path) -> None:
        self.tree = state / "tree"
        state.mkdir(parents=True, exist_ok=True)
        _copy(self.tree)
        environment = os.environ | {"PYTHONPATH": str(self.tree), "OMP_NUM_THREADS": "1"}
        self.worker = subprocess.Popen(
            [sys.executable, str(self.tree / "benchmarks" / "campaign" / "worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        modules = [f"factorank/{module}.py" for module in _modules(self.tree / "factorank")]
        self.known: Reached = reached(self.tree, [*TESTS, *modules], state / "reached.json", self._record)

    def row(self, changed: Mutant, enough: float) -> dict[str, Any]:
        """Whether a test fails with this change, and which: of tests that take about so many seconds."""
        file = self.tree / "factorank" / f"{changed.module}.py"
        before, times = file.read_bytes(), file.stat()
        tests, seconds = choose(changed, self.known, enough)
        started = time.monotonic()
        answer: dict[str, Any] = {"code": 0, "failed": None}
        try:
            file.write_text(changed.source, encoding="utf-8")
            if tests:
                answer = self._ask({"tests": tests, "longest": 20 + 4 * seconds})
        finally:
            file.write_bytes(before)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # as compiled
        return {
            "experiment": "mutants",
            "part": changed.part,
            "module": changed.module,
            "line": changed.line,
            "column": changed.column,
            "text": changed.text,
            "change": changed.change,
            "caught": answer["code"] != 0,
            "by": answer["failed"],
            "tests": len(tests),
            "spent": round(time.monotonic() - started, 1),
        }

    def _record(self, files: list[str]) -> Reached:
        out = self.tree.parent / "found.json"
        out.unlink(missing_ok=True)
        print(f"running the tests of {len(files)} files without a change", file=sys.stderr)
        self._ask({"files": files, "reached": str(out), "longest": 3600})
        found: Reached = read_json(out)
        return found

    def _ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert self.worker.stdin is not None
        assert self.worker.stdout is not None
        print(json.dumps({"folder": str(self.tree)} | asked), file=self.worker.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self.worker.stdout.readline())
        return answer

    def close(self) -> None:
        assert self.worker.stdin is not None
        self.worker.stdin.close()
        self.worker.wait()


def _modules(library: Path) -> list[str]:
    patterns = itertools.chain(*PARTS.values())
    files = {file for pattern in patterns for file in library.glob(f"{pattern}.py")}
    return sorted(file.relative_to(library).with_suffix("").as_posix() for file in files)


def _copy(tree: Path) -> None:
    """Make or renew the copy; what was compiled there from files that did not change stays."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    for old in [path for path in tree.rglob("*") if path.is_file() and path.suffix in (".py", ".md")]:
        if old.relative_to(tree).as_posix() not in names:
            old.unlink()
    for name in names:
        if not name.startswith("results/"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)


def _name(row: dict[str, Any]) -> tuple[str, str, int, str]:
    return row["module"], row["text"], row["column"], row["change"]


def _reasons() -> dict[tuple[str, str, int, str], str]:
    if not REASONS.exists():
        return {}
    return {_name(row): row["reason"] for row in read_json(REASONS)}


def _word(row: dict[str, Any]) -> str:
    return f"caught by {row['by']}, {row['spent']} s" if row["caught"] else f"SURVIVED {row['tests']} tests"


def _show(rows: list[dict[str, Any]]) -> None:
    parts = [*dict.fromkeys(row["part"] for row in rows), "all"]
    table = []
    for part in parts:
        ours = [row for row in rows if part in (row["part"], "all")]
        caught = sum(row["caught"] for row in ours)
        table.append([part, str(len(ours)), str(caught), f"{caught / len(ours):.1%}" if ours else ""])
    show(["part", "mutants", "caught", "share"], table)
    for row in rows:
        if not row["caught"]:
            print(f"{row['module']}:{row['line']} {row['change']}: {row['text']}: {row.get('reason', '?')}")


if __name__ == "__main__":
    sys.exit(main())
