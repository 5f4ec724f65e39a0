"""Build the page in a folder, which appears whole or not at all."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from factorank import __version__
from factorank.errors import FactorankError
from factorank.files import folder_made_whole, write_json
from factorank.playground.packages import RUNTIME, files_of

PACKAGE = Path(str(files("factorank")))
SOURCES = PACKAGE / "playground" / "page"
FACTS = "models.json"
"""What the page must know of its models, and what the folder was built from."""


def build(folder: str | os.PathLike[str]) -> Path:
    """Build the page in a folder and return it; a folder that is up to date stays as it is.

    Models are exported again only where they, or how they are exported, have changed.
    """
    folder = Path(folder)
    wanted = {"page": fingerprint(_page_sources()), "models": fingerprint(_model_sources())}
    stored = _facts(folder)
    if folder.is_dir() and not stored and any(folder.iterdir()):
        raise FactorankError(f"{folder} holds other files; choose a folder that is new or empty")
    if stored.get("built_from") == wanted:
        return folder
    with folder_made_whole(folder) as aside:
        shutil.copytree(SOURCES, aside, dirs_exist_ok=True)
        (aside / "runtime").mkdir()
        for path in files_of(RUNTIME):
            shutil.copy(path, aside / "runtime")
        facts = _models(aside / "models", folder, stored, wanted["models"])
        write_json(aside / "models" / FACTS, facts | {"version": __version__, "built_from": wanted})
    return folder


def fingerprint(paths: Iterable[Path]) -> str:
    """A checksum of files and of their names."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.relative_to(PACKAGE)}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _models(target: Path, folder: Path, stored: dict[str, Any], wanted: str) -> dict[str, Any]:
    if stored.get("built_from", {}).get("models") == wanted:
        shutil.copytree(folder / "models", target)
        return stored
    from factorank.playground.models import copy_photographs, export_letters

    target.mkdir()
    return {"photographs": copy_photographs(target), "letters": export_letters(target)}


def _facts(folder: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads((folder / "models" / FACTS).read_bytes())
        return facts
    except (OSError, ValueError):
        return {}


def _page_sources() -> list[Path]:
    own = [path for path in SOURCES.rglob("*") if path.is_file()]
    return [*own, PACKAGE / "playground" / "packages.py", PACKAGE / "playground" / "building.py"]


def _model_sources() -> list[Path]:
    """The weights, the words, and the code that the graphs are traced from."""
    code = [PACKAGE / "playground" / "models.py", PACKAGE / "data" / "words.txt"]
    for part in ("unscramble", "models", "onnx"):
        code += (PACKAGE / part).glob("*.py")
    weights = [
        path for part in ("photographs", "unscramble") for path in (PACKAGE / "weights" / part).iterdir()
    ]
    return code + weights
