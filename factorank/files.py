"""Files and folders that appear whole or not at all: made aside in the same folder, synced, then renamed.

A process that is killed at any moment leaves what was there before, or what was to come.
"""

import ctypes
import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from factorank.reading import expect, parse_json, read_text


def write_whole(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write or replace a file whole or not at all; text is UTF-8 with ``\\n`` line ends.

    What a link leads to is replaced, not the link. A device or a pipe is written to, such as ``/dev/null``.
    """
    path = Path(os.path.realpath(path))
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not (path.is_file() or path.is_dir()):
        path.write_bytes(data)
        return
    aside = _aside(path)
    try:
        with open(aside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write indented JSON, whole or not at all; NaN and infinity, which JSON lacks, are errors."""
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The objects of a file that holds one a line; empty lines are left out."""
    lines = enumerate(read_text(path).split("\n"), start=1)
    return [
        expect(dict[str, Any], parse_json(line, f"{path}:{number}", infinite=True), f"{path}:{number}")
        for number, line in lines
        if line
    ]


def read_history(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The lines of the ``metrics.jsonl`` of a run: numbers by their names, with ``step`` and ``seconds``.

    A last line that a killed run has left half written is left out.
    """
    lines = []
    for number, line in enumerate(read_text(path).rpartition("\n")[0].split("\n"), start=1):
        if line:
            where = f"{path}:{number}"
            value = expect(dict[str, int | float | bool | None], parse_json(line, where), where)
            expect(int, value.get("step"), f"{where}: step")
            expect(float, value.get("seconds"), f"{where}: seconds")
            lines.append(value)
    return lines


@contextmanager
def folder_made_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new folder to fill, which takes the place of ``path`` when the block ends without an error.

    Its files are on the disk before it is renamed. A folder that was there before changes places with the
    new one in one step, and is removed after that.
    """
    path = restored(os.path.realpath(path))
    aside = _aside(path)
    aside.mkdir(parents=True)
    try:
        yield aside
        for inside in (*aside.rglob("*"), aside):
            sync(inside)
        if not path.is_dir():
            os.rename(aside, path)
        elif not _exchange(aside, path):  # this system or disk cannot do it in one step
            os.rename(path, _before(path))
            os.rename(aside, path)
            shutil.rmtree(_before(path))
        sync(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def restored(path: str | os.PathLike[str]) -> Path:
    """The path of a folder; one that a killed process had moved out of the way is put back."""
    path = Path(path)
    if not path.exists() and _before(path).is_dir():
        with suppress(OSError):
            os.rename(_before(path), path)
    return path


@contextmanager
def alone(folder: str | os.PathLike[str], *, wait: bool = False) -> Iterator[bool]:
    """Keep other processes that ask for it out of a folder, which is made if it is not there.

    The value is False if another one holds it, or with ``wait`` always True, at last. The lock ends with the
    process, however that ends. There are no such locks on Windows.
    """
    try:
        import fcntl
    except ImportError:
        yield True
        return
    while True:
        os.makedirs(folder, exist_ok=True)
        try:
            handle = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(handle)
            yield False
            return
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(folder)):  # nobody has put another one in its place
                break
        os.close(handle)
    try:
        yield True
    finally:
        os.close(handle)


def sync(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder (where the system can do so)."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places in one step; False where that cannot be done."""
    names = {"linux": ("renameat2", -100, 2), "darwin": ("renameatx_np", -2, 2)}
    if sys.platform not in names:
        return False
    name, here, flag = names[sys.platform]
    try:
        function = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (AttributeError, OSError):
        return False
    return bool(function(here, os.fsencode(one), here, os.fsencode(other), ctypes.c_uint(flag)) == 0)


def _aside(path: Path) -> Path:
    """A name beside a path that nothing has."""
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}")


def _before(path: Path) -> Path:
    return path.with_name(f".{path.name}.before")
