"""Serve a built page on a local port."""

import os
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

from factorank.errors import FactorankError

HEADERS = {
    "Cache-Control": "no-cache",
    # With both the page may use several threads; without them, on another host, it uses one.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "X-Content-Type-Options": "nosniff",
}


class Files(SimpleHTTPRequestHandler):
    """The files of a folder, read-only, and nothing written about requests."""

    extensions_map = {  # noqa: RUF012
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".onnx": "application/octet-stream",
        ".txt": "text/plain; charset=utf-8",
    }

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return


def serve(folder: str | os.PathLike[str], port: int = 0) -> ThreadingHTTPServer:
    """A server of a folder on this machine alone, ready to ``serve_forever()``; port 0 takes a free one."""
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(Files, directory=os.fspath(folder)))
    except OSError as error:
        raise FactorankError(f"{{parameter}} {port} is taken: {error.strerror}", parameter="port") from None
