"""The playground: one static page that runs the shipped models in a browser.

:func:`build` makes it in a folder: the sources in ``page/``, the models as ONNX files, and the runtime for
them from npm, pinned by checksum. :func:`serve` shows a folder on a local port. Nothing is loaded from
elsewhere when the page runs, so any static host will do.
"""

from factorank.playground.building import build
from factorank.playground.serving import serve

__all__ = ["build", "serve"]
