"""Doctests are collected from every module; those of Triton kernels can be imported only where Triton is."""

import builtins
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent


def need_triton() -> list[str]:
    """The files that import Triton when they are imported, by themselves or through one another."""
    files = {path: path.read_text(encoding="utf-8") for path in ROOT.glob("factorank/kernels/gpu/*.py")}
    needing = {path for path, text in files.items() if "\nimport triton\n" in text}
    while True:
        modules = [f"\nfrom factorank.kernels.gpu.{path.stem} import" for path in needing]
        more = {path for path, text in files.items() if any(module in text for module in modules)} - needing
        if not more:
            return sorted(str(path.relative_to(ROOT)) for path in needing)
        needing |= more


collect_ignore = ["docs/conf.py", *([] if importlib.util.find_spec("triton") else need_triton())]


@pytest.fixture(autouse=True)
def _no_value_left() -> Iterator[None]:
    """A doctest leaves its last value in ``builtins._``, where tyro, imported after it, expects none."""
    yield
    vars(builtins).pop("_", None)
