"""Published data sets: taken from the user's data folder or downloaded once, and checked every time.

``FACTORANK_DATA`` names the data folder; by default it is the user's cache, ``~/.cache/factorank``. A data
set is a folder in it, with the layout of its publisher's archive. Every file is compared with the SHA-256 of
the publisher's file before it is read, so that a cut-off download or another edition is noticed.
"""

import hashlib
import lzma
import os
import shutil
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from factorank.errors import FactorankError
from factorank.files import folder_made_whole

VARIABLE = "FACTORANK_DATA"
TIMEOUT = 30
"""Seconds without an answer after which a download fails."""


@dataclass(frozen=True)
class Published:
    """A published data set: a tar archive with a folder that holds these files."""

    title: str
    url: str
    folder: str
    """The folder in the archive."""
    files: Mapping[str, str]
    """SHA-256 by name of the files that are read; other files in the archive are ignored."""

    @property
    def advice(self) -> str:
        """How the user can get the data set by hand."""
        return f"download {self.url}, unpack it, and set {VARIABLE} to the folder that holds {self.folder}/"


def find(data: Published, folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder with the files of a data set, all of them checked; it is downloaded if it is missing.

    ``folder`` is the data folder, or the folder of the data set itself.
    """
    base = data_folder(folder)
    for place in (base / data.folder, base):
        if any((place / name).is_file() for name in data.files):
            _check(data, place, str(place))
            return place
    _fetch(data, base)
    return base / data.folder


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The data folder: ``folder``, else ``$FACTORANK_DATA``, else the user's cache."""
    if folder is not None:
        return Path(folder)
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "factorank"


def _check(data: Published, folder: Path, where: str) -> None:
    """Refuse a folder whose files are not the publisher's; an error says that they are from ``where``."""
    for name, wanted in data.files.items():
        if not (folder / name).is_file():
            raise FactorankError(f"{where} lacks {name} of {data.title}; {data.advice}")
        with open(folder / name, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != wanted:
            sums = f"SHA-256 {digest[:12]}…, expected {wanted[:12]}…"
            fault = f"is not the file that {data.title} is published with ({sums})"
            raise FactorankError(f"{where}: {name} {fault}; {data.advice}")


def _fetch(data: Published, base: Path) -> None:
    """Download and unpack a data set under ``base``; its folder appears whole or not at all."""
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=base) as archive, folder_made_whole(base / data.folder) as aside:
        try:
            with urllib.request.urlopen(data.url, timeout=TIMEOUT) as answer:
                shutil.copyfileobj(answer, archive)
        except OSError as error:
            fault = f"{data.title} is not in {base} and could not be downloaded ({error})"
            raise FactorankError(f"{fault}; {data.advice}") from None
        archive.seek(0)
        try:
            with tarfile.open(fileobj=archive) as tar:
                for name in data.files:  # no others: paths in the archive are not followed
                    if member := tar.extractfile(f"{data.folder}/{name}"):
                        (aside / name).write_bytes(member.read())
        except (KeyError, EOFError, OSError, tarfile.TarError, zlib.error, lzma.LZMAError) as error:
            fault = str(error).partition("\n")[0]
            sent = f"what {data.url} sent is not the archive of {data.title} ({fault})"
            raise FactorankError(f"{sent}; {data.advice}") from None
        _check(data, aside, data.url)
