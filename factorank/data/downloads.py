"""Published data sets: taken from the user's data folder or downloaded once, and checked every time.

``FACTORANK_DATA`` names the data folder; by default it is the user's cache, ``~/.cache/factorank``. A data
set is a folder in it, with the layout of its publisher's archive. Every file is compared with the SHA-256 of
the publisher's file before it is read, so that a cut-off download or another edition is noticed.
"""

import hashlib
import os
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from factorank.errors import FactorankError
from factorank.files import folder_made_whole

VARIABLE = "FACTORANK_DATA"
TIMEOUT = 30
"""Seconds without an answer after which a download fails."""


@dataclass(frozen=True)
class Published:
    """A published data set: an archive with a folder that holds these files."""

    title: str
    url: str
    folder: str
    """The folder in the archive."""
    files: Mapping[str, str]
    """SHA-256 by name of the files that are read; other files in the archive are ignored."""


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The data folder: ``folder``, else ``$FACTORANK_DATA``, else the user's cache."""
    if folder is not None:
        return Path(folder)
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "factorank"


def find(data: Published, folder: str | os.PathLike[str] | None = None, *, download: bool = True) -> Path:
    """The folder with the files of a data set, all of them checked; it is downloaded if it is missing.

    ``folder`` is the data folder, or the folder of the data set itself.
    """
    base = data_folder(folder)
    for place in (base / data.folder, base):
        if any((place / name).is_file() for name in data.files):
            check(data, place)
            return place
    if not download:
        raise FactorankError(f"{data.title} is not in {base}; {advice(data)}")
    fetch(data, base)
    return base / data.folder


def check(data: Published, folder: Path) -> None:
    """Refuse a folder whose files are not the publisher's."""
    for name, wanted in data.files.items():
        path = folder / name
        if not path.is_file():
            raise FactorankError(f"{folder} lacks {name} of {data.title}; {advice(data)}")
        if (digest := _digest(path)) != wanted:
            raise FactorankError(
                f"{path} is not the file that {data.title} is published with (SHA-256 {digest[:12]}…,"
                f" expected {wanted[:12]}…); remove it and {advice(data)}"
            )


def advice(data: Published) -> str:
    """How the user can get the data set by hand."""
    return f"download {data.url}, unpack it, and set {VARIABLE} to the folder that holds {data.folder}/"


def fetch(data: Published, base: Path) -> None:
    """Download and unpack a data set under ``base``; its folder appears whole or not at all."""
    base.mkdir(parents=True, exist_ok=True)
    archive = base / f".{data.folder}.part-{os.getpid()}"
    try:
        try:
            with urllib.request.urlopen(data.url, timeout=TIMEOUT) as answer, open(archive, "wb") as file:
                while block := answer.read(1 << 20):
                    file.write(block)
        except (urllib.error.URLError, OSError) as error:
            raise FactorankError(
                f"{data.title} is not in {base} and could not be downloaded ({error}); {advice(data)}"
            ) from None
        with folder_made_whole(base / data.folder) as aside:
            unpack(data, archive, aside)
            for name, wanted in data.files.items():
                if _digest(aside / name) != wanted:
                    raise FactorankError(
                        f"what {data.url} sent holds another {name} than {data.title} is published with;"
                        f" {advice(data)}"
                    )
    finally:
        archive.unlink(missing_ok=True)


def unpack(data: Published, archive: Path, folder: Path) -> None:
    """Copy only the files of the data set out of its archive; paths in the archive are not followed."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as bundle:
                for name in data.files:
                    with bundle.open(f"{data.folder}/{name}") as member:
                        _copy(member, folder / name)
            return
        with tarfile.open(archive) as tar:
            for name in data.files:
                opened = tar.extractfile(f"{data.folder}/{name}")
                if opened is None:
                    raise KeyError(name)
                with opened as member:
                    _copy(member, folder / name)
    except (KeyError, EOFError, OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        fault = str(error).partition("\n")[0]
        raise FactorankError(
            f"what {data.url} sent is not the archive of {data.title} ({fault}); {advice(data)}"
        ) from None


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(member: IO[bytes], path: Path) -> None:
    with open(path, "wb") as file:
        while block := member.read(1 << 20):
            file.write(block)
