"""Mutation testing of the core: small changes of the source, each of which some test should notice.

    ./run bench mutants [--count 300] [--seed 0] [--seconds 3600] [--out results/mutants.jsonl]

A mutant differs from a module in one place: a comparison, an operator, a constant, a condition, a returned
value. It is written into a copy of the tree, and the tests that belong to its module run until the first one
fails. The campaign goes on where it stopped. Survivors are listed with their place, to be looked at.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from factorank.experiments.record import provenance, write_results
from factorank.files import read_json_lines

ROOT = Path(__file__).parents[1]
LONGEST = 120
"""Seconds that the tests of a mutant may take; a mutant that never ends is noticed, too."""
TESTS = {
    "codes/base": ["tests/codes"],
    "codes/checking": ["tests/codes"],
    "codes/lehmer": ["tests/codes/test_codes.py"],
    "codes/inline": ["tests/codes"],
    "permutations": ["tests/test_permutations.py", "tests/codes/test_bad_input.py"],
    "lexicographic": ["tests/test_lexicographic.py"],
    "distances": ["tests/test_distances.py"],
    "metrics": ["tests/test_metrics.py"],
    "losses": ["tests/test_losses.py"],
    "sealed": ["tests/test_sealed.py"],
    "files": ["tests/test_sealed.py", "tests/test_files.py"],
    "training/checkpoints": ["tests/training/test_run_folder.py"],
    "distributions/parameters": ["tests/distributions/test_numerics.py", "tests/distributions/test_laws.py"],
    "distributions/mallows": ["tests/distributions/test_oracles.py", "tests/distributions/test_laws.py"],
    "distributions/generalized_mallows": ["tests/distributions/test_laws.py"],
    "distributions/rim": ["tests/distributions/test_laws.py", "tests/distributions/test_oracles.py"],
    "distributions/plackett_luce": [
        "tests/distributions/test_oracles.py",
        "tests/distributions/test_laws.py",
    ],
    "distributions/saving": ["tests/distributions/test_saving.py"],
    "sampling/partitions": ["tests/sampling/test_partitions.py"],
    "sampling/categorical": ["tests/sampling/test_choosers.py"],
    "rerank/catalogue": ["tests/rerank/test_requests.py"],
    "rerank/expected_gain": ["tests/rerank/test_objective.py", "tests/rerank/test_evaluation.py"],
}
"""The modules that are changed, and the tests that should notice, the quickest first."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--only", default="", help="a part of the names of modules")
    parser.add_argument("--out", default="runs/bench/mutants.jsonl")
    options = parser.parse_args(argv)
    done = read_json_lines(options.out) if Path(options.out).exists() else []
    known, started = {(row["module"], row["line"], row["change"]) for row in done}, time.monotonic()
    where = provenance(" ".join(["factorank bench mutants", *(argv or ())]))
    with tempfile.TemporaryDirectory(prefix="factorank-mutants-") as name:
        tree = Path(name) / "tree"
        ignored = shutil.ignore_patterns(".git", ".venv", "runs", "results", "__pycache__", "*.png")
        shutil.copytree(ROOT, tree, ignore=ignored)
        tests, sound = Tests(tree), dict[str, bool]()
        for module, line, change, source in mutants(options.seed, options.only):
            if len(done) >= options.count or time.monotonic() - started > options.seconds:
                break
            if (module, line, change) in known:
                continue
            if module not in sound and not sound.setdefault(module, not tests.caught(module)):
                print(f"the tests of {module} fail without a change", file=sys.stderr)
            if not sound[module]:
                continue
            caught = tests.caught(module, source)
            row = {
                "experiment": "mutants",
                "module": module,
                "line": line,
                "change": change,
                "caught": caught,
            }
            done.append(row | {"seed": options.seed} | where)
            write_results(options.out, done)
            print(f"{len(done)}: {module}:{line} {change}: {'caught' if caught else 'SURVIVED'}", flush=True)
        tests.close()
    share = sum(row["caught"] for row in done) / max(len(done), 1)
    print(f"{len(done)} mutants, {share:.1%} caught; written: {options.out}", file=sys.stderr)
    return 0


def mutants(seed: int, only: str = "") -> Iterator[tuple[str, int, str, str]]:
    """Module, line, change and source of every mutant that compiles, in an order of chance."""
    places = []
    for module in TESTS:
        if only in module:
            text = (ROOT / "factorank" / f"{module}.py").read_text(encoding="utf-8")
            places += [(module, number) for number in range(len(_changes(ast.parse(text))))]
    random.Random(seed).shuffle(places)
    for module, number in places:
        text = (ROOT / "factorank" / f"{module}.py").read_text(encoding="utf-8")
        tree = ast.parse(text)
        node, change, apply = _changes(tree)[number]
        apply()
        yield module, node.lineno, change, ast.unparse(ast.fix_missing_locations(tree))


COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


def _changes(tree: ast.Module) -> list[tuple[Any, str, Any]]:
    """The changes that can be made to a tree: the node, what is changed, and a function that does it."""
    found: list[tuple[Any, str, Any]] = []
    skipped = {id(inner) for node in ast.walk(tree) for part in _not_run(node) for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
            other = COMPARISONS[type(node.ops[0])]
            text = f"{type(node.ops[0]).__name__} to {other.__name__}"
            found.append((node, text, lambda n=node, o=other: n.ops.__setitem__(0, o())))
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not _text(node):
            other_op = OPERATORS[type(node.op)]
            text = f"{type(node.op).__name__} to {other_op.__name__}"
            found.append((node, text, lambda n=node, o=other_op: setattr(n, "op", o())))
        elif isinstance(node, ast.BoolOp):
            swapped = ast.Or if isinstance(node.op, ast.And) else ast.And
            text = f"{type(node.op).__name__} to {swapped.__name__}"
            found.append((node, text, lambda n=node, o=swapped: setattr(n, "op", o())))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            found.append((node, "not left out", lambda n=node: setattr(n, "op", ast.UAdd())))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            value = not node.value if isinstance(node.value, bool) else node.value + 1
            text = f"{node.value} to {value}"
            found.append((node, text, lambda n=node, v=value: setattr(n, "value", v)))
    return found


def _not_run(node: ast.AST) -> list[ast.AST]:
    """Parts of a node that say something to readers or type checkers alone: annotations, messages."""
    if isinstance(node, ast.arg):
        return [node.annotation] if node.annotation else []
    if isinstance(node, ast.AnnAssign):
        return [node.annotation]
    if isinstance(node, ast.FunctionDef):
        return [node.returns] if node.returns else []
    if isinstance(node, ast.JoinedStr | ast.Raise):
        return [node]
    return []


def _text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr) or isinstance(getattr(side, "value", None), str)
        for side in (node.left, node.right)
    )


class Tests:
    """Runs the tests of a module in a copy of the tree, quickly: see ``campaign/worker.py``."""

    def __init__(self, tree: Path) -> None:
        worker = tree / "benchmarks" / "campaign" / "worker.py"
        environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        self.tree = tree
        self.worker = subprocess.Popen(
            [sys.executable, str(worker), str(LONGEST)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def caught(self, module: str, source: str | None = None) -> bool:
        """Whether a test of a module fails, with another source of it."""
        file = self.tree / "factorank" / f"{module}.py"
        before = file.read_text(encoding="utf-8")
        assert self.worker.stdin is not None
        assert self.worker.stdout is not None
        try:
            if source is not None:
                file.write_text(source, encoding="utf-8")
            print(str(self.tree), *TESTS[module], sep="\t", file=self.worker.stdin, flush=True)
            return self.worker.stdout.readline().strip() != "0"
        finally:
            file.write_text(before, encoding="utf-8")

    def close(self) -> None:
        assert self.worker.stdin is not None
        self.worker.stdin.close()
        self.worker.wait()
