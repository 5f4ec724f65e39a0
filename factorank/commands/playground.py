"""``factorank playground``: puzzles, codes, words and rankings in a browser."""

from dataclasses import dataclass
from pathlib import Path

from factorank.errors import FactorankError


@dataclass
class Playground:
    """Build the page to play with, serve it on a local port and open it."""

    build: Path | None = None
    """Only build the page in this folder, for any static host."""
    port: int = 8765
    """The port of this machine to serve it on; 0 takes a free one."""
    open: bool = True
    """Open it in a browser."""
    out: Path = Path("runs/playground")
    """The folder that it is built in before it is served; built once."""

    def run(self) -> None:
        from factorank.playground import build, serve

        if not 0 <= self.port < 2**16:
            raise FactorankError(f"{{parameter}} is 0 to 65535, not {self.port}", parameter="port")
        folder = self.build or self.out
        if not (folder / "index.html").exists():
            print("building the page: half a minute, once", flush=True)
        build(folder)
        if self.build is not None:
            print(f"written to {folder}: serve it with any web server")
            return
        with serve(folder, self.port) as server:
            address = f"http://127.0.0.1:{server.server_address[1]}/"
            print(f"the playground is at {address} (Ctrl+C stops it)", flush=True)
            if self.open:
                import webbrowser

                webbrowser.open(address)
            server.serve_forever()
