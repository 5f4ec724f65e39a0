"""The command line: ``factorank COMMAND …``.

Every module of :mod:`factorank.commands` is a command: ``fit.py`` holds the dataclass ``Fit``, whose fields
are the options, whose docstrings are the help, and whose ``run()`` does the work; or a class whose
``actions`` are several of these. Adding a file adds a command. Nothing here imports torch; a command does so
when it runs.
"""

import contextlib
import io
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated, Any, Union

from factorank import __version__
from factorank.commands._text import PlainStream, visible
from factorank.errors import FactorankError
from factorank.signals import exit_code, terminable, was_stopped

NARROWEST = 40
"""Columns of a terminal for which help is laid out, at least."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 2 for bad input, with one line on stderr.

    A command that a signal has ended returns 130 after Ctrl-C and 143 after SIGTERM.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a character shows another one
            stream.reconfigure(errors="replace")
    try:
        with warnings.catch_warnings(), terminable():
            warnings.showwarning = _show_warning
            return _run(arguments)
    except BaseException as error:
        if was_stopped(error):
            print("factorank: stopped", file=sys.stderr)
            return exit_code()
        if not isinstance(error, FactorankError | OSError | MemoryError | OverflowError | UnicodeError):
            raise
        if isinstance(error, BrokenPipeError):  # the reader, such as head, has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"factorank: {_one_line(error)}", file=sys.stderr)
        return 2


def command_names() -> list[str]:
    """The names of all commands, from the files of :mod:`factorank.commands`."""
    folder = import_module("factorank.commands").__path__
    return sorted(module.name.replace("_", "-") for module in iter_modules(folder) if module.name[0] != "_")


def command(name: str) -> type[Any]:
    """The dataclass of a command."""
    module = import_module(f"factorank.commands.{name.replace('-', '_')}")
    return getattr(module, "".join(word.capitalize() for word in name.split("-")))


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if arguments[0] == "--version":
        print(f"factorank {__version__}")
        return 0
    name, *rest = arguments
    if name not in command_names():
        raise FactorankError(f"there is no command {name!r}; there are {', '.join(command_names())}")
    import tyro

    from factorank.commands._options import in_options, registry

    kind: Any = command(name)
    passed_on: list[str] = []
    if getattr(kind, "passes_on", False) and rest and not rest[0].startswith("-"):
        rest, passed_on = rest[:1], rest[1:]
    about, prog = kind.__doc__, f"factorank {name}"
    if hasattr(kind, "actions"):
        parts = (Annotated[part, tyro.conf.subcommand(name)] for name, part in kind.actions.items())
        kind = Union[tuple(parts)]  # noqa: UP007
    if shutil.get_terminal_size().columns < NARROWEST:  # help for fewer columns would never end
        os.environ["COLUMNS"] = str(NARROWEST)
    chosen = tyro.cli(kind, prog=prog, description=about, args=rest, registry=registry)
    if passed_on:
        chosen.rest = passed_on
    try:
        if not 0 <= getattr(chosen, "seed", 0) < 2**63:
            raise FactorankError(f"{{parameter}} is from 0 to 2**63 - 1, not {chosen.seed}", parameter="seed")
        with contextlib.redirect_stdout(PlainStream(sys.stdout)):
            return chosen.run() or 0
    except FactorankError as error:
        raise FactorankError(in_options(error, chosen)) from error


def _overview() -> str:
    width = max(len(name) for name in command_names())
    about = "Learn, sample and score probability distributions over permutations and rankings."
    lines = ["usage: factorank COMMAND …", "", *textwrap.wrap(about, 79), "", "commands:"]
    for name in command_names():
        first = f"  {name:<{width}}  " + (command(name).__doc__ or "").strip().splitlines()[0]
        lines += textwrap.wrap(first, 79, subsequent_indent=" " * (width + 4))
    return "\n".join([*lines, "", "factorank COMMAND --help lists the options of a command."])


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    print(f"factorank: warning: {_one_line(message)}", file=sys.stderr)


def _one_line(error: object) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return visible(f"{error.filename}: {error.strerror}")
    if isinstance(error, MemoryError):
        return (
            f"the memory of this machine is too small for that{visible(f': {error}') if str(error) else ''}"
        )
    return visible(" ".join(str(error).split()))
