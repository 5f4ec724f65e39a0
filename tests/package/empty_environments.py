"""Environments that hold a wheel and what it declares to need, nothing else, made without downloads.

The distributions that a wheel's metadata asks for, with those that they ask for in turn, are linked from the
environment of the tests. What the metadata forgets is not there, as for a user who installs the wheel.
"""

import os
import subprocess
import sys
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def closure(roots: list[str]) -> dict[str, Distribution]:
    """The installed distributions that requirements lead to, by name; those of no use here are left out."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(root) for root in roots]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        installed = found.setdefault(name, distribution(name))
        for extra in ("", *wanted.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for line in installed.requires or []:
                needed = Requirement(line)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    waiting.append(needed)
    return found


def link(distributions: dict[str, Distribution], folder: Path) -> None:
    """Link the top folders and files of distributions into a folder; those shared by several are joined."""
    for installed in distributions.values():
        tops = {file.parts[0] for file in installed.files or [] if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            source, target = Path(str(installed.locate_file(top))), folder / top
            if not target.exists() and source.exists():
                target.symlink_to(source)


class Environment:
    """A new environment that holds a wheel and some distributions."""

    def __init__(self, folder: Path, wheel: Path, requirements: list[str]) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        (self.site,) = folder.glob("lib/python*/site-packages")
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet", "--no-deps"]
        # Of what lies on the path of the tests, such as an editable installation, pip is to know nothing.
        elsewhere = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        options = ["--no-index", "--ignore-installed", "--disable-pip-version-check"]
        subprocess.run([*pip, *options, str(wheel)], check=True, cwd=folder, env=elsewhere)
        link(closure(requirements), self.site)

    def run(self, program: str, more: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program away from the checkout; ``more`` is a folder of further distributions."""
        if more is not None:
            program = f"import sys; sys.path.append({str(more)!r})\n{program}"
        return subprocess.run(
            [str(self.python), "-I", "-W", "ignore", "-c", program],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.site,
        )
