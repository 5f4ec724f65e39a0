"""The campaign against the library: bad inputs, damaged files, kills, edges of numbers, threads, the service.

    ./run bench reliability [--seconds 600] [--seed 0] [--part inputs …] [--out results/reliability.jsonl]

Every part counts what came of its attempts, which a seed and a number decide. A part goes on where the last
call with the same seed stopped, until its time or its attempts are used up. Nothing may be accepted that is
wrong, answered wrongly, raised raw, lost, or started as a process; each such case is written to the file
``faults.txt`` beside the state, and the exit code is 1.
"""

import argparse
import contextlib
import json
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.timing import show
from factorank.experiments.record import provenance, write_results
from factorank.files import read_json_lines, write_json
from factorank.reading import read_object

WANTED = {
    "inputs": 1_000_000, "damage": 1_000, "kills": 100, "numbers": 20_000, "threads": 4_000,
    "processes": 40, "service": 2_000,
}  # fmt: skip
"""How many attempts each part makes in all: damage of each kind of file, kills of each command."""
LISTS = ("damage", "kills")
FAULTS = {
    "raw",
    "accepted",
    "wrong answer",
    "hung",
    "memory",
    "changed",
    "process started",
    "process ended",
    "lost",
}
MEMORY = 12 << 30
"""The bytes that the campaign may use: an attempt that needs more is a fault."""

Attempt = Callable[[int], tuple[str, str]]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench reliability", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="for all parts together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", nargs="+", default=list(WANTED), choices=list(WANTED))
    parser.add_argument("--count", type=int, help="attempts of each part, if not the usual number")
    parser.add_argument("--state", default="runs/bench/reliability", help="where the campaign goes on from")
    parser.add_argument("--out", default="runs/bench/reliability.jsonl")
    options = parser.parse_args(argv)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    state, options.out = Path(options.state).resolve(), str(Path(options.out).resolve())
    state.mkdir(parents=True, exist_ok=True)
    where, rows = provenance(" ".join(["factorank bench reliability", *(argv or ())])), []
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):  # some calls write: anywhere
        for part in options.part:
            wanted, seconds = options.count or wanted_of(part), options.seconds / len(options.part)
            rows.append(run_part(part, wanted, seconds, options.seed, state) | where)
    kept = read_json_lines(options.out) if Path(options.out).exists() else []
    replaced = {(row["part"], row["seed"]) for row in rows}  # parts with several seeds can run side by side
    write_results(options.out, [row for row in kept if (row["part"], row["seed"]) not in replaced] + rows)
    print(f"\nwritten: {options.out}\n")
    show(["part", "attempts", "faults", "outcomes"], [_cells(row) for row in rows])
    return int(any(row["faults"] for row in rows))


def wanted_of(part: str) -> int:
    """The attempts of a part on everything that it has a list of."""
    from benchmarks.campaign import commands, damage

    listed = {"damage": len(damage.kinds()), "kills": len(commands.COMMANDS)} if part in LISTS else {}
    return WANTED[part] * listed.get(part, 1)


def run_part(part: str, wanted: int, seconds: float, seed: int, state: Path) -> dict[str, Any]:
    """Go on with a part until its attempts or the seconds are used up; its row."""
    file = state / f"{part}-{seed}.json"
    before: dict[str, Any] = {"attempts": 0, "outcomes": {}, "seconds": 0.0}
    if file.exists():
        before = read_object(file)
    counts: Counter[str] = Counter(before["outcomes"])
    done, spent = int(before["attempts"]), float(before["seconds"])
    started = saved = time.monotonic()
    for outcome, described, number in _attempts(part, done, wanted, seed):
        done, counts[outcome] = number + 1, counts[outcome] + 1
        if outcome in FAULTS:
            with open(state / "faults.txt", "a", encoding="utf-8", errors="backslashreplace") as faults:
                print(f"{part} {number}: {outcome}: {described}", file=faults)
        now = time.monotonic()
        if now - saved > 10 or now - started > seconds:
            saved = now
            _save(file, done, counts, spent + now - started)
            print(f"  {part}: {done:,} attempts", file=sys.stderr, flush=True)
        if now - started > seconds:
            break
    spent += time.monotonic() - started
    _save(file, done, counts, spent)
    wrong = sum(counts[name] for name in FAULTS)
    row = {"experiment": "reliability", "part": part, "seed": seed, "attempts": done, "faults": wrong}
    return row | {"outcomes": json.dumps(dict(sorted(counts.items()))), "spent": round(spent, 1)}


def _attempts(part: str, first: int, wanted: int, seed: int) -> Iterator[tuple[str, str, int]]:
    from benchmarks.campaign import commands, damage, edges, inputs, kills, service, together

    if part in ("threads", "processes"):
        for number in range(first, wanted, 320 if part == "threads" else 4):
            counts, faults = together.threads(40) if part == "threads" else together.processes(4)
            for outcome, count in counts.items():
                yield from ((outcome, ", ".join(faults[:3]), number + i) for i in range(count))
        return
    attempts: dict[str, Attempt] = {
        "inputs": lambda number: inputs.numbered(number, seed),
        "damage": lambda number: damage.attempt_apart(number, seed),
        "kills": lambda number: kills.attempt(
            commands.COMMANDS[number % len(commands.COMMANDS)], number // len(commands.COMMANDS), seed
        ),
        "numbers": lambda number: edges.attempt(number, seed),
        "service": lambda number: service.attempt(number, seed),
    }
    for number in range(first, wanted):
        yield (*attempts[part](number), number)


def _save(file: Path, done: int, counts: Counter[str], spent: float) -> None:
    write_json(file, {"attempts": done, "outcomes": dict(counts), "seconds": round(spent, 1)})


def _cells(row: dict[str, Any]) -> list[str]:
    outcomes = ", ".join(f"{name} {count:,}" for name, count in json.loads(row["outcomes"]).items())
    return [row["part"], f"{row['attempts']:,}", str(row["faults"]), outcomes]
