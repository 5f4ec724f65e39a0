"""Doctests are collected from every module; those of Triton kernels can be imported only where Triton is."""

import importlib.util
from pathlib import Path

collect_ignore = []
if importlib.util.find_spec("triton") is None:
    root = Path(__file__).parent
    collect_ignore = [
        str(path.relative_to(root))
        for path in root.glob("factorank/**/*.py")
        if "import triton\n" in path.read_text(encoding="utf-8")
    ]
