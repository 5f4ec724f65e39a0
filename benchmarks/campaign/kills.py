"""Kills of every command that writes, each before or amid another operation on files: nothing is lost.

A child of this process runs a command and is killed before the k-th operation that changes the disk, or when
the file that this operation opens is half written. The folder is empty at first, or holds an earlier result
that differs from the new one. What was there before must still be readable, each part of it as the old or the
new, never a mixture; the same command then ends as if nothing had happened.

The commands are listed in :mod:`benchmarks.campaign.commands`. This process itself only forks and compares:
what a thread pool of polars or numba has begun does not go on in a child.
"""

import contextlib
import io
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate")
KILLED = (-signal.SIGKILL, -signal.SIGXFSZ)
Parts = dict[str, Any]
Act = Callable[[Path, Path], None]
"""Takes the folder with what is read, and the folder to write into."""


class Command(NamedTuple):
    """A command, or a call of the library, that writes into a folder, and how all that it wrote is read."""

    name: str
    run: Act
    read: Callable[[Path], Parts]
    """Each part appears by itself, whole or not at all."""
    needs: tuple[str, ...] = ()
    """The names of what it reads."""
    before: Act | None = None
    """Makes the earlier result, by default the command itself."""


class Prepared(NamedTuple):
    """What is known of a command before anything is killed."""

    earlier: Path
    """A folder with the earlier result."""
    old: Parts
    new: tuple[Parts, Parts]
    """What the command makes in an empty folder and over the earlier result."""
    operations: tuple[int, int]
    """How many there are in each case."""


def attempt(command: Command, number: int, seed: int) -> tuple[str, str]:
    """Kill a command once, over an earlier result or in an empty folder, look, and run it again."""
    chance = random.Random(f"{seed} {command.name} {number}")
    known = prepared(command)
    over, looks = chance.random() < 0.5 and known.operations[1] > 0, chance.random() < 0.5
    at, half = chance.randrange(1, known.operations[over] + 1), chance.choice((None, None, 0, 1, 40))
    when = "before" if half is None else f"{half} bytes into"
    described = f"{command.name} killed {when} operation {at}{' over an earlier result' if over else ''}"
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "out"
        if over:
            shutil.copytree(known.earlier, out)
        else:
            out.mkdir()
        code, said = _child(command, out, lambda: command.run(data(), out), (at, half))
        if code == 0:
            return "ended before", described
        if code not in KILLED:
            return "raw", f"{described}: exit code {code}: {said}"
        if over and looks:  # reading may mend what is there: half of the time nobody looks
            code, there = _child(command, out, lambda: command.read(out))
            if code:
                return "lost", f"{described}: what was there cannot be read: {there}"
            if mixed := sorted(
                part for part in known.old | there if not _known(known, part, there.get(part))
            ):
                return "lost", f"{described}: neither the old nor the new is there: {', '.join(mixed)}"
        code, there = _child(command, out, lambda: (command.run(data(), out), command.read(out))[1])
        if code:
            return "lost", f"{described}: the same command fails afterwards: {there}"
        wanted = known.new[over]
        if differing := sorted(part for part in wanted | there if there.get(part) != wanted.get(part)):
            return "lost", f"{described}: the same command ends otherwise: {', '.join(differing)}"
        return "whole", described


def _known(known: Prepared, part: str, value: Any) -> bool:
    return value in (known.old.get(part), known.new[1].get(part))


@cache
def prepared(command: Command) -> Prepared:
    """The results of a command that nobody disturbs, and its operations on files."""
    for what in command.needs:
        _make(what)
    scratch = data().parent / f"earlier {command.name}"
    earlier, again, out = (scratch / name for name in ("out", "again", "empty"))
    for folder in (earlier, out):
        folder.mkdir(parents=True)
    warm = _undisturbed(command, out, lambda: (command.run(data(), out), command.read(out), _modules())[1:])
    for module in warm[1]:  # what is imported here need not be in each child
        with contextlib.suppress(BaseException):
            import_module(module)
    new: Parts = warm[0]
    shutil.rmtree(out)
    out.mkdir()
    in_empty = _undisturbed(command, out, lambda: (_count(out), command.run(data(), out))[0]())
    act = command.before or command.run
    old = _undisturbed(command, earlier, lambda: (act(data(), earlier), command.read(earlier))[1])
    shutil.copytree(earlier, again)
    over = _undisturbed(command, again, lambda: (_count(again), command.run(data(), again))[0]())
    ended = _undisturbed(command, again, lambda: command.read(again))
    return Prepared(earlier, old, (new, ended), (in_empty, over))


@cache
def data() -> Path:
    """The folder with what the commands read."""
    return Path(tempfile.mkdtemp(prefix="factorank-kills-")) / "data"


@cache
def _make(what: str) -> None:
    """Make one of the things that commands read, in a child."""
    from benchmarks.campaign.ingredients import INGREDIENTS

    data().mkdir(exist_ok=True)
    code, said = _forked(lambda: INGREDIENTS[what](data()), data())
    assert code == 0, f"{what} cannot be made: {said}"


def _undisturbed(command: Command, out: Path, act: Callable[[], Any]) -> Any:
    code, said = _child(command, out, act)
    assert code == 0, f"{command.name} fails by itself: {said}"
    return said


def _child(
    command: Command, out: Path, act: Callable[[], Any], kill: tuple[int, int | None] | None = None
) -> tuple[int, Any]:
    def acting() -> Any:
        if kill is not None:
            _kill(out, *kill)
        return act()

    return _forked(acting, out.parent)


def _forked(act: Callable[[], Any], folder: Path) -> tuple[int, Any]:
    """Run something in a child of this process: its exit code, and what it returned or how it failed."""
    with tempfile.TemporaryFile() as answer:
        child = os.fork()
        if child == 0:
            code, said = 70, io.StringIO()
            with contextlib.suppress(BaseException):
                torch.set_num_threads(1)
                os.chdir(folder)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # for what is no Python
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
                    try:
                        value, code = act(), 0
                    except BaseException:
                        value = f"{said.getvalue()[-200:]} {traceback.format_exc()[-300:]}"
                answer.write(pickle.dumps(value))
                answer.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        answer.seek(0)
        written = answer.read()
        return os.waitstatus_to_exitcode(status), pickle.loads(written) if written else None


def _modules() -> list[str]:
    return [name for name in sys.modules if not name.startswith(("__", "_pytest", "pytest", "tests"))]


def _watch(out: Path, act: Callable[[int, str], None]) -> None:
    """Call something before each operation that changes files beside or in a folder, with its number."""
    count, root = 0, str(out.parent)

    def watch(event: str, arguments: Any) -> None:
        nonlocal count
        if event == "open":
            path, _, flags = arguments
            writes = bool(flags & (os.O_WRONLY | os.O_RDWR))
            changes = isinstance(path, str) and path.startswith(root) and writes
        elif event == "ctypes.dlsym":  # two folders change places
            changes = str(arguments[1]).startswith("renameat")
        else:
            changes = event in CHANGES and any(str(part).startswith(root) for part in arguments)
        if changes:
            count += 1
            act(count, event)

    sys.addaudithook(watch)


def _count(out: Path) -> Callable[[], int]:
    """Count operations from now on; the value tells how many there were."""
    counts = [0]
    _watch(out, lambda count, event: counts.append(count))
    return lambda: counts[-1]


def _kill(out: Path, at: int, half: int | None) -> None:
    """Die before operation ``at``; or, if that opens a file, once so many bytes of a file are written."""

    def act(count: int, event: str) -> None:
        if count != at:
            return
        if half is None or event != "open":
            os.kill(os.getpid(), signal.SIGKILL)
            return  # never
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # python ignores it
        resource.setrlimit(resource.RLIMIT_FSIZE, (half, half))

    _watch(out, act)


def clean() -> None:
    """Remove what the commands read."""
    if data.cache_info().currsize:
        shutil.rmtree(data().parent, ignore_errors=True)
