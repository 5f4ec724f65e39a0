"""Polars, which is imported only where a table needs it, and errors that name the file."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from factorank.errors import FactorankError
from factorank.signals import Terminated


def polars_module(where: object, error: type[FactorankError]) -> Any:
    """The module polars, or an error that says how to install it."""
    try:
        import polars
    except ImportError:
        raise error(f"{where}: such a table needs polars: pip install 'factorank[data]'") from None
    return polars


@contextmanager
def error_names(where: object, error: type[FactorankError], what: str) -> Iterator[None]:
    """Turn a failure of polars or numpy into an error that begins with the file and the fault.

    A damaged file makes polars panic. A panic is a ``BaseException`` but no ``Exception``.
    """
    try:
        yield
    except (KeyboardInterrupt, Terminated, SystemExit, GeneratorExit, FactorankError):
        raise
    except BaseException as failure:
        first, *_ = [*str(failure).splitlines(), ""]  # they go on with advice on their own options
        raise error(f"{where}: {what}: {first}") from None
