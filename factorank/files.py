"""Files and folders that appear whole or not at all: made aside in the same folder, synced, then renamed."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from factorank.errors import FactorankError


def write_whole(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write or replace a file whole or not at all; text is UTF-8 with ``\\n`` line ends."""
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o666 & ~_umask())
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write indented JSON, whole or not at all; NaN and infinity, which JSON lacks, are errors."""
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The objects of a file that holds one a line; empty lines are left out."""
    rows = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        try:
            rows += [json.loads(line)] if line else []
        except ValueError as error:
            raise FactorankError(f"{path}:{number}: not JSON: {error}") from None
    return rows


@contextmanager
def folder_made_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new folder to fill, which takes the place of ``path`` when the block ends without an error.

    Its files are on the disk before it is renamed: a process that is killed at any moment leaves a whole
    folder or none. A folder that was there before is moved out of the way first and removed last.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield aside
        os.chmod(aside, 0o777 & ~_umask())
        for inside in (*aside.rglob("*"), aside):
            _sync(inside)
        if path.is_dir():
            old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
            os.rename(path, old / "old")
            os.rename(aside, path)
            shutil.rmtree(old)
        else:
            os.rename(aside, path)
        _sync(path.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _sync(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder (where the system can do so)."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)  # there is no way to read it without setting it
    os.umask(mask)
    return mask
