"""Doctests are collected from every module; those of Triton kernels can be imported only where Triton is."""

import builtins
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

collect_ignore = []
if importlib.util.find_spec("triton") is None:
    root = Path(__file__).parent
    collect_ignore = [
        str(path.relative_to(root))
        for path in root.glob("factorank/**/*.py")
        if "import triton\n" in path.read_text(encoding="utf-8")
    ]


@pytest.fixture(autouse=True)
def _no_value_left() -> Iterator[None]:
    """A doctest leaves its last value in ``builtins._``, where tyro, imported after it, expects none."""
    yield
    vars(builtins).pop("_", None)
