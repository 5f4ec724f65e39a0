"""Which tests ought to notice a change: those that enter the changed function, the nearest first."""

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarks.campaign.changes import Mutant
from factorank.files import write_json
from factorank.reading import read_object

Reached = dict[str, dict[str, Any]]
"""For each test its file, its seconds and the functions that it enters."""


def reached(tree: Path, tests: Iterable[str], state: Path, record: Callable[[list[str]], Reached]) -> Reached:
    """What the tests reach, measured again only where a file of tests or the library has changed."""
    library = _digest(sorted((tree / "factorank").rglob("*.py")))
    files = sorted({str(file.relative_to(tree)) for name in tests for file in _files(tree / name)})
    kept: dict[str, Any] = {"library": library, "files": {}, "tests": {}}
    if state.exists() and (stored := read_object(state))["library"] == library:
        kept = stored
    digests = {file: _digest([tree / file]) for file in files}
    changed = [file for file in files if kept["files"].get(file) != digests[file]]
    if changed:
        found = record(changed)
        rest = {name: row for name, row in kept["tests"].items() if row["file"] not in changed}
        kept = {"library": library, "files": kept["files"] | digests, "tests": rest | found}
        write_json(state, kept)
    known: Reached = {name: row for name, row in kept["tests"].items() if row["file"] in digests}
    return known


def choose(mutant: Mutant, known: Reached, seconds: float) -> tuple[list[str], float]:
    """The tests for a mutant, as many as take these seconds together, and the seconds that they take.

    The tests of a file stay together, so that their fixtures are made once.
    """
    reach = {test: _reach(mutant, row["reached"]) for test, row in known.items()}
    near = {test: _nearness(mutant.module, row["file"]) for test, row in known.items()}
    files = {known[test]["file"] for test, count in reach.items() if count} if not mutant.function else set()
    candidates = [test for test in known if reach[test] or near[test] == 0 or known[test]["file"] in files]
    order = sorted(
        candidates,
        key=lambda test: (
            bool(mutant.function) and not reach[test],
            near[test],
            -reach[test],
            known[test]["seconds"],
            test,
        ),
    )
    opening = {row["file"]: row["seconds"] for row in reversed(known.values())}  # with the shared fixtures
    chosen: dict[str, list[str]] = {}
    spent = 0.0
    for test in order:
        row = known[test]
        cost = row["seconds"] if row["file"] in chosen else max(row["seconds"], opening[row["file"]])
        if not chosen or spent + cost <= seconds:
            chosen.setdefault(row["file"], []).append(test)
            spent += cost
    return [test for tests in chosen.values() for test in tests], spent


def _reach(mutant: Mutant, entered: list[str]) -> int:
    """Whether a test enters the changed function; how many of the module's, if no function is changed."""
    if mutant.function:
        return int(f"{mutant.module}:{mutant.function}" in entered)
    return sum(name.startswith(f"{mutant.module}:") for name in entered)


def _nearness(module: str, file: str) -> int:
    """0 for the module's own tests and examples, 1 for its neighbours', 2 for all others."""
    if file == f"factorank/{module}.py":
        return 0
    path, tests = PurePosixPath(module), PurePosixPath(file)
    if str(tests.parent) == str("tests" / path.parent):
        return 0 if tests.stem == f"test_{path.stem}" else 1
    return 2


def _files(name: Path) -> list[Path]:
    return sorted([*name.rglob("test_*.py")] if name.is_dir() else [name])


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(json.dumps(str(file.name)).encode() + file.read_bytes())
    return digest.hexdigest()
