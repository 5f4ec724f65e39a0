"""The file that holds ratings: on disk, in a folder, or in a zip as publishers offer them."""

import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from factorank.errors import RatingsError

NAMES = ("ratings.dat", "ratings.csv", "ratings.parquet", "u.data")
"""Files of ratings, by the names that publishers give them."""
ENDINGS = (".csv", ".parquet", ".tsv", ".npz", ".npy", ".dat", ".txt", ".data", ".xls", ".xlsx")


@dataclass(frozen=True)
class RatingsFile:
    """A file on disk, or a member of a zip on disk."""

    path: Path
    member: str | None = None

    def __str__(self) -> str:
        return str(self.path) if self.member is None else f"{self.path}:{self.member}"

    @property
    def name(self) -> str:
        return (self.path.name if self.member is None else PurePosixPath(self.member).name).lower()

    @property
    def stem(self) -> str:
        """The name of the file without its suffix, for titles."""
        return PurePosixPath(self.member or self.path.name).stem

    @property
    def folder(self) -> str:
        """The name of its folder, or of the zip for a member that is in no folder."""
        if self.member is None:
            return self.path.resolve().parent.name
        return PurePosixPath(self.member).parent.name or self.path.stem

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """A stream of the bytes; a damaged zip is refused."""
        if self.member is None:
            with self.path.open("rb") as stream:
                yield stream
        else:
            with _unzipped(self.path) as archive, archive.open(self.member) as stream:
                yield stream

    def read(self, size: int = -1) -> bytes:
        """All bytes, or the first ``size``."""
        with self.open() as stream:
            return stream.read(size)

    def blocks(self, size: int = 1 << 25) -> Iterator[bytes]:
        """The file in blocks of whole lines; the next is read or unpacked while the last is in use."""
        with self.open() as stream, ThreadPoolExecutor(1) as unpacking:
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
    def on_disk(self) -> Iterator[Path]:
        """A path to the file; a member is unpacked to a temporary file while the block runs."""
        if self.member is None:
            yield self.path
            return
        with tempfile.NamedTemporaryFile(suffix=PurePosixPath(self.member).suffix) as unpacked:
            with self.open() as stream:
                shutil.copyfileobj(stream, unpacked, 1 << 20)
            unpacked.flush()
            yield Path(unpacked.name)

    def beside(self, *names: str) -> "RatingsFile | None":
        """The first of these names that is in the same folder, or None."""
        for name in names:
            if self.member is None:
                if (self.path.parent / name).is_file():
                    return RatingsFile(self.path.parent / name)
            else:
                member = str(PurePosixPath(self.member).parent / name)
                with _unzipped(self.path) as archive:
                    if member in archive.namelist():
                        return RatingsFile(self.path, member)
        return None


def find_ratings(path: Path) -> RatingsFile:
    """The file of ratings at a path; an error says what is there instead."""
    if not path.exists():
        raise RatingsError(f"there is no file or folder {path}")
    if path.is_dir():
        names = sorted(file.name for file in path.iterdir() if file.is_file())
        return RatingsFile(path / _choose(names, str(path), "folder"))
    if path.stat().st_size == 0:
        raise RatingsError(f"{path}: the file is empty")
    if path.suffix.lower() == ".zip":
        with _unzipped(path) as archive:
            names = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
            return RatingsFile(path, _choose(names, str(path), "zip"))
    return RatingsFile(path)


def _choose(names: list[str], where: str, kind: str) -> str:
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
def _unzipped(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise RatingsError(f"{path}: damaged or downloaded only in part, fetch it again: {error}") from None
