"""Results: where a row comes from, files of rows, and folders of runs that are not measured twice."""

import json
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from factorank.errors import FactorankError
from factorank.files import read_json_lines, write_json, write_whole
from factorank.reading import read_object


def provenance(command: str) -> dict[str, Any]:
    """The command, the commit (None outside a checkout, with a + if files differ from it) and the device."""
    return {"command": command, "commit": _commit(), "device": _device()}


def write_results(path: str | os.PathLike[str], rows: Iterable[dict[str, Any]]) -> None:
    """Write flat objects, one a line, whole or not at all."""
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "\n".join(lines) + "\n")


def check_names(names: list[str]) -> None:
    """Refuse two settings of one name: they would share a folder."""
    if doubled := [name for name in names if names.count(name) > 1]:
        raise FactorankError(f"two settings have the name {doubled[0]}; give them labels")


def write_measured(
    folder: Path, facts: dict[str, Any], rows: Iterable[dict[str, Any]], name: str = "rows"
) -> None:
    """Write the rows of a run to ``name.jsonl``, and before them the facts that they depend on.

    The facts, some of them dataclasses, go to ``name.json``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{name}.json", _plain(facts))
    write_results(folder / f"{name}.jsonl", rows)


def measured_already(folder: Path, facts: dict[str, Any], name: str = "rows") -> bool:
    """Whether the folder holds rows of a run; rows that depend on other facts are refused."""
    if not (folder / f"{name}.jsonl").exists():
        return False
    stored, ours = read_object(folder / f"{name}.json"), _plain(facts)
    if differing := [fact for fact in ours if stored.get(fact) != ours[fact]]:
        raise FactorankError(
            f"{folder} holds rows of another {', '.join(differing)}; choose another folder or label, or"
            f" remove its {name}.jsonl to measure again"
        )
    return True


def gather_rows(out: Path, name: str) -> list[dict[str, Any]]:
    """The rows of all files ``name.jsonl`` in the folders of ``out``."""
    return [row for file in sorted(out.glob(f"*/{name}.jsonl")) for row in read_json_lines(file)]


def changes(chosen: Any, base: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from those of another."""
    values = {field.name: getattr(chosen, field.name) for field in fields(chosen)}
    return {name: value for name, value in values.items() if value != getattr(base, name)}


def keywords(values: dict[str, Any]) -> list[str]:
    """Values as the keyword arguments of a call in Python.

    >>> keywords({"grid": 4, "label": "mine"})
    ['grid=4', "label='mine'"]
    """
    return [f"{name}={value!r}" for name, value in values.items()]


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts as JSON gives them back."""
    plain: dict[str, Any] = json.loads(json.dumps(facts, default=asdict))
    return plain


def _commit() -> str | None:
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", "factorank") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _device() -> str:
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    threads = torch.get_num_threads()
    return f"{name}, {threads} thread{'s' * (threads > 1)}"
