"""Where a result comes from: what every line of a results file says besides its numbers."""

import json
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from factorank.files import write_whole


def provenance(command: str) -> dict[str, Any]:
    """The command, the commit (None outside a checkout, with a + if files differ from it) and the device."""
    return {"command": command, "commit": _commit(), "device": _device()}


def write_results(path: str | os.PathLike[str], rows: Iterable[dict[str, Any]]) -> None:
    """Write flat objects, one a line, whole or not at all."""
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "\n".join(lines) + "\n")


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
