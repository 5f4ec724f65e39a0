"""``factorank docs``: the documentation of the checkout as a site."""

import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from factorank.errors import FactorankError

SOURCES = Path(__file__).parents[2] / "docs"


@dataclass
class Docs:
    """Build the checkout's documentation as a site; a warning is an error."""

    out: Path = Path("runs/docs")
    """The folder for the site."""
    open: bool = False
    """Open it in a browser."""

    def run(self) -> int:
        if not (SOURCES / "conf.py").exists():
            raise FactorankError("the documentation is built from a checkout of the source")
        missing = [n for n in ("sphinx", "furo", "myst_parser") if importlib.util.find_spec(n) is None]
        if missing:
            raise FactorankError(f"the site needs {', '.join(missing)}: pip install 'factorank[docs]'")
        command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
        done = subprocess.run([*command, str(SOURCES), str(self.out)], check=False)
        if done.returncode:
            return 1
        print(f"written to {self.out}: open {self.out / 'index.html'}")
        if self.open:
            import webbrowser

            webbrowser.open((self.out / "index.html").resolve().as_uri())
        return 0
