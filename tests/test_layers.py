"""Imports run one way, and the cheap things stay cheap."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "factorank"
LAYERS = [
    ["errors", "files"],
    ["kernels"],
    ["permutations", "distances", "assignment"],
    ["codes"],
    ["metrics"],
    ["distributions", "data"],
    ["models"],
    ["training"],
    ["baselines"],
    ["votes", "rerank", "jigsaw"],
    ["experiments"],
    ["figures"],
    ["commands"],
    ["cli", "public", "__init__", "__main__"],
]
DEPTH = {name: depth for depth, names in enumerate(LAYERS) for name in names}


def imported(file: Path) -> set[str]:
    """The parts of the package that a file imports anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "factorank":
            path = node.module.split(".")[1:]
            found |= {path[0]} if path else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("factorank.")}
    return found & set(DEPTH)


@pytest.mark.parametrize(
    "file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(PACKAGE))
)
def test_nothing_imports_upward(file: Path) -> None:
    part = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert part in DEPTH, f"{part} has no layer"
    above = {name for name in imported(file) if DEPTH[name] > DEPTH[part]}
    assert not above


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
