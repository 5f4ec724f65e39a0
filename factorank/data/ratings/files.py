"""The file that holds ratings: on disk, in a folder, or in a zip as publishers offer them."""

import lzma
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from factorank.errors import RatingsError

NAMES = ("ratings.dat", "ratings.csv", "ratings.parquet", "u.data")
"""Files of ratings, by the names that publishers give them."""
ENDINGS = (".csv", ".parquet", ".tsv", ".npz", ".npy", ".dat", ".txt", ".data", ".xls", ".xlsx")
MOST_TIMES, SMALL = 100, 1 << 26
"""A file in a zip is unpacked to at most so many times its packed size, or to so many bytes."""
Source = Path | zipfile.Path
"""A file on disk, or a member of a zip on disk."""


def find_ratings(path: Path) -> Source:
    """The file of ratings at a path; an error says what is there instead."""
    if not path.exists():
        raise RatingsError(f"there is no file or folder {path}")
    if path.is_dir():
        names = sorted(file.name for file in path.iterdir() if file.is_file())
        return path / _choose(names, path, "folder")
    if path.stat().st_size == 0:
        raise RatingsError(f"{path}: the file is empty")
    if path.suffix.lower() != ".zip":
        return path
    with _damage(path):
        archive = zipfile.ZipFile(path)
    names = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
    name = _choose(names, path, "zip")
    member = archive.getinfo(name)
    if member.file_size > max(MOST_TIMES * member.compress_size, SMALL):
        size = f"{name} unpacks to {member.file_size:,} bytes, more than {MOST_TIMES} times what it is packed"
        raise RatingsError(f"{path}: {size}; unpack it yourself if you trust it")
    return zipfile.Path(archive, name)


def read(source: Source, size: int = -1) -> bytes:
    """All bytes, or the first ``size``; a damaged member of a zip is refused."""
    with _damage(source), source.open("rb") as stream:
        return stream.read(size)


def blocks(source: Source, size: int = 1 << 25) -> Iterator[bytes]:
    """The file in blocks of whole lines; the next is read or unpacked while the last is in use."""
    with _damage(source), source.open("rb") as stream, ThreadPoolExecutor(1) as unpacking:
        rest, ahead = b"", unpacking.submit(stream.read, size)
        while piece := ahead.result():
            ahead = unpacking.submit(stream.read, size)
            end = piece.rfind(b"\n") + 1
            if end:
                yield rest + piece[:end]
                rest = b""
            rest += piece[end:]
        if rest:
            yield rest


@contextmanager
def on_disk(source: Source) -> Iterator[Path]:
    """A path to the file; a member is unpacked to a temporary file while the block runs."""
    if isinstance(source, Path):
        yield source
        return
    with tempfile.NamedTemporaryFile(suffix=source.suffix) as unpacked:
        with _damage(source), source.open("rb") as stream:
            shutil.copyfileobj(stream, unpacked, 1 << 20)
        unpacked.flush()
        yield Path(unpacked.name)


def _choose(names: list[str], where: Path, kind: str) -> str:
    for wanted in NAMES:
        if matches := [name for name in names if PurePosixPath(name).name == wanted]:
            return matches[0]
    possible = [name for name in names if name.lower().endswith(ENDINGS)]
    if len(possible) != 1:
        listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "") if names else "nothing"
        raise RatingsError(
            f"{where}: a {kind} of ratings holds {', '.join(NAMES)} or one other table; this holds {listed}."
            " Name the file itself"
        )
    return possible[0]


@contextmanager
def _damage(source: Source) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:  # a password, or a way of packing that is not known
        raise RatingsError(f"{source}: a zip that cannot be unpacked here: {error}") from None
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError) as error:
        if isinstance(error, RatingsError):
            raise
        raise RatingsError(f"{source}: damaged or downloaded only in part, fetch it again: {error}") from None
