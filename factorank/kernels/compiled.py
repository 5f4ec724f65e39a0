"""Where numba keeps what it has compiled."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def place_for_cache() -> str | None:
    """A private folder for numba where neither the package nor the user's cache can be written; else None.

    Numba runs what it finds in its cache. The folder is therefore new and this user's alone, and it is
    removed when the process ends.
    """
    if "NUMBA_CACHE_DIR" in os.environ:
        return None
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    if any(_writable(folder) for folder in (Path(__file__).parent, Path(cache).expanduser())):
        return None
    folder = tempfile.mkdtemp(prefix="factorank-numba-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _writable(folder: Path) -> bool:
    """Whether a folder can be written, or made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
