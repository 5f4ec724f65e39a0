"""Sealed folders: some files, and a JSON file, the head, that vouches for each of them and for itself.

The head holds facts, the length and SHA-256 of every other file, and a SHA-256 of its own content. A change
of any of them is noticed when they are read. Models, laws, rankers and checkpoints are sealed folders.

The files of a new version are first written beside the old ones under other names; then the new head takes
the place of the old one, which is the moment of change; then the files take their names. A process that is
killed at any moment leaves the old version or the new one: a reader completes the last step if need be.
"""

import hashlib
import json
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from factorank.errors import FactorankError
from factorank.files import sync, write_whole
from factorank.reading import LARGEST_JSON, expect, matches, parse_json, read_bytes

LARGEST = 1 << 37
"""The most bytes of a file that a head describes."""
_ENTRY = {"bytes": int, "sha256": str}


def write_sealed(
    folder: str | os.PathLike[str], head: str, facts: dict[str, Any], files: dict[str, bytes]
) -> None:
    """Write files and their head into a folder, which may hold other files; the whole of it or nothing."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder, prefix=f".{head}."))
    try:
        for name, data in files.items():
            (aside / name).write_bytes(data)
        (aside / head).write_text(sealed_head(facts, files), encoding="utf-8", newline="\n")
        move_sealed(aside, folder, head)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def move_sealed(aside: Path, folder: Path, head: str) -> None:
    """Move the files of a sealed folder into another one, which may hold other files, whole or not at all."""
    others = sorted(path.name for path in aside.iterdir() if path.name != head)
    for name in others:
        sync(aside / name)
        os.replace(aside / name, folder / _coming(name))
    if (aside / head).exists():  # a module of somebody else may have none
        write_whole(folder / head, (aside / head).read_bytes())
    for name in others:
        os.replace(folder / _coming(name), folder / name)
    sync(folder)


def sealed_head(facts: dict[str, Any], files: dict[str, bytes]) -> str:
    """The text of the head of files with their contents."""
    entries = {name: {"bytes": len(data), "sha256": _sha256(data)} for name, data in files.items()}
    content = {**facts, "files": entries}
    return json.dumps({**content, "sha256": _own(content)}, indent=1, ensure_ascii=False) + "\n"


def is_sealed(folder: str | os.PathLike[str], head: str, **facts: Any) -> bool:
    """Whether a folder has a head that says these facts; it may be damaged all the same."""
    try:
        content = parse_json(read_bytes(Path(folder) / head, most=LARGEST_JSON), head, infinite=True)
    except (OSError, FactorankError):
        return False
    return isinstance(content, dict) and all(content.get(name) == fact for name, fact in facts.items())


def read_head(
    path: Path, error: type[FactorankError], what: str, **kind: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The facts of a head and the entries of its files, both as they were written.

    ``kind`` are facts that it must say, such as its format and version: it describes no ``what`` otherwise.
    """
    content = parse_json(read_bytes(path, most=LARGEST_JSON, error=error), path, error, infinite=True)
    expect(dict[str, Any], content, path, error)
    for name, wanted in kind.items():
        if (stored := content.get(name)) != wanted:
            raise error(f"{path} does not describe {what}: its {name} is {stored!r}, and {wanted!r} is read")
    own = content.pop("sha256", None)
    if own is None or "files" not in content:
        raise error(f"{path}: has no checksums, so it was not written by this version of factorank")
    if own != _own(content):
        raise error(f"{path}: damaged or edited: its content does not have its SHA-256")
    entries = content.pop("files")
    if not matches(entries, dict[str, dict[str, int | str]]):
        raise error(f"{path}: damaged: its list of files is none")
    for name, entry in entries.items():
        plain = name not in ("", ".", "..") and PurePath(name).name == name and "\\" not in name
        fitting = entry.keys() == _ENTRY.keys() and all(matches(entry[k], kind) for k, kind in _ENTRY.items())
        if not plain or not fitting:
            raise error(f"{path}: damaged: {name!r} is no entry of a file in this folder")
    return content, entries


def read_sealed(
    folder: str | os.PathLike[str], head: str, error: type[FactorankError], what: str, **kind: Any
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The facts of a sealed folder and the contents of its files, all checked; see :func:`read_head`."""
    folder = Path(folder)
    if not (folder / head).is_file():
        raise error(f"{folder} does not hold {what}: {head} is missing")
    facts, entries = read_head(folder / head, error, what, **kind)
    return facts, {name: _content(folder, name, entry, error) for name, entry in entries.items()}


def _content(folder: Path, name: str, entry: dict[str, Any], error: type[FactorankError]) -> bytes:
    path, coming = folder / name, folder / _coming(name)
    if coming.exists():  # a save was interrupted, before the head was replaced or after
        with suppress(OSError, FactorankError):
            if _sha256(read_bytes(coming, most=LARGEST, error=error)) == entry["sha256"]:
                os.replace(coming, path)
    try:
        if path.stat().st_size != entry["bytes"]:
            raise error(f"{path} has {path.stat().st_size} bytes and should have {entry['bytes']}")
        data = read_bytes(path, most=LARGEST, error=error)
    except OSError as failure:
        raise error(f"{path} is missing, or cannot be read: {failure.strerror}") from None
    if _sha256(data) != entry["sha256"]:
        raise error(f"{path} is damaged: its SHA-256 is not the one that was written with it")
    return data


def _coming(name: str) -> str:
    return f".{name}.new"


def _own(content: dict[str, Any]) -> str:
    return _sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
