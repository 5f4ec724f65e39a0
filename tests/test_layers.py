"""The shape of the tree: imports run one way and in no circle, private names stay home, files stay short."""

import subprocess
import sys

import pytest

from tests.source_tree import (
    PACKAGE,
    ROOT,
    cycles,
    foreign_private_names,
    imported_names,
    imports,
    modules,
    part_of,
)

LAYERS = [
    ["errors", "reading", "files", "sealed", "signals", "annotations", "arguments"],
    ["kernels"],
    ["permutations", "lexicographic", "distances", "assignment"],
    ["codes"],
    ["metrics", "losses"],
    ["sampling"],
    ["distributions", "data", "onnx", "hub"],
    ["models"],
    ["training"],
    ["baselines"],
    ["votes", "leaderboard", "rerank", "jigsaw", "unscramble"],
    ["experiments"],
    ["figures"],
    ["public", "__init__"],
    ["playground"],
    ["commands"],
    ["cli", "__main__"],
]
DEPTH = {name: depth for depth, names in enumerate(LAYERS) for name in names}
LONGEST_FILE = 320
MOST_FILES_OF_MODELS = 15

every_module = pytest.mark.parametrize("module", sorted(modules()))


@every_module
def test_nothing_imports_upward(module: str) -> None:
    part = part_of(module)
    assert part in DEPTH, f"{part} has no layer"
    above = {name for name in imports(module) if DEPTH[part_of(name)] > DEPTH[part]}
    assert not above


def test_no_modules_import_one_another() -> None:
    """Imports inside functions count: a cycle that only works when run in the right order is one as well."""
    circles = [" -> ".join(path) for path in cycles({module: imports(module) for module in modules()})]
    assert not circles, "\n".join(circles)


def test_a_cycle_is_printed_as_the_way_around_it() -> None:
    edges = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"e"}, "f": {"a"}}
    assert cycles({name: frozenset(targets) for name, targets in edges.items()}) == [
        ["e", "e"],
        ["a", "b", "c", "a"],
    ]


@pytest.mark.parametrize("module", sorted(name for name in modules() if part_of(name) != "kernels"))
def test_private_names_are_used_at_home_only(module: str) -> None:
    uses = [f"{modules()[module].relative_to(ROOT)}:{use}" for use in foreign_private_names(module)]
    assert not uses, "\n".join(uses)


@every_module
def test_files_stay_short(module: str) -> None:
    lines = len(modules()[module].read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST_FILE, f"{lines} lines, {LONGEST_FILE} are allowed"


def test_models_hold_the_paper_and_nothing_else() -> None:
    assert len(list((PACKAGE / "models").rglob("*.py"))) <= MOST_FILES_OF_MODELS


@pytest.mark.parametrize("module", sorted(name for name in modules() if part_of(name) == "figures"))
def test_figures_name_neither_torch_nor_experiments(module: str) -> None:
    names = {name for _, name in imported_names(module)}
    assert not {name for name in names if name.split(".")[0] == "torch" or part_of(name) == "experiments"}


def test_figures_run_without_torch_and_experiments() -> None:
    figures = sorted(name for name in modules() if part_of(name) == "figures")
    program = f"""
import importlib, sys
for name in {figures}:
    importlib.import_module(name)
heavy = [name for name in sys.modules if name == "torch" or name.startswith("factorank.experiments")]
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_is_not_needed_is_not_imported() -> None:
    program = """
import sys
import factorank
assert "torch" not in sys.modules
factorank.Lehmer
heavy = {"numba", "lightning_fabric", "matplotlib", "polars", "tyro", "triton"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True)
