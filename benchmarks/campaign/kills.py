"""Kills of every command that writes, each before another operation on files: nothing is lost.

A child of this process runs the command and kills itself (SIGKILL) before the k-th operation that changes the
disk. What was there before must still be readable, as the old or the new; the same command then ends as if
nothing had happened.
"""

import contextlib
import io
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

import factorank as fr
from factorank import cli
from factorank.files import restored

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree", "shutil.move")


class Command(NamedTuple):
    """A command that writes into a folder, and how its result is read."""

    name: str
    arguments: Callable[[Path, Path], list[str]]
    read: Callable[[Path], Any]


def _law(out: Path) -> Any:
    return repr(fr.load_law(restored(out))), fr.law_items(restored(out))


def _weights(out: Path) -> Any:
    model = fr.PermutationModel.from_pretrained(out)
    return [weight.tolist() for weight in model.state_dict().values()]


def _text(out: Path) -> Any:
    return sorted((path.name, path.read_text()) for path in out.rglob("*.csv"))


SMALL = [
    "--code",
    "insertion",
    "--objective",
    "masked",
    "--width",
    "8",
    "--depth",
    "1",
    "--heads",
    "1",
    "--steps",
    "6",
]
COMMANDS = [
    Command(
        "fit",
        lambda data, out: [
            "fit",
            str(data / "votes.soc"),
            "--out",
            str(out),
            "--bootstrap",
            "0",
            "--no-picture",
        ],
        _law,
    ),
    Command(
        "sample",
        lambda data, out: ["sample", str(data / "law"), "--count", "50", "--out", str(out / "orders.csv")],
        _text,
    ),
    Command(
        "train", lambda data, out: ["train", str(data / "votes.soc"), *SMALL, "--out", str(out)], _weights
    ),
]


@cache
def data() -> Path:
    """What the commands read."""
    folder = Path(tempfile.mkdtemp(prefix="factorank-kills-"))
    orders = fr.random_permutations(4, (40,), generator=torch.Generator().manual_seed(0))
    fr.write_rankings(fr.Rankings.from_orders(orders, items=list("abcd")), folder / "votes.soc")
    fr.save_law(fr.Mallows(torch.arange(4), 0.5), folder / "law", items=list("abcd"))
    return folder


@cache
def undisturbed(command: Command) -> tuple[Any, int]:
    """The result of a command that nobody disturbs, and its operations on files."""
    with tempfile.TemporaryDirectory() as name:
        warm, out = Path(name) / "warm", Path(name) / "out"
        warm.mkdir()
        out.mkdir()
        _run(command, warm)  # what is compiled and imported here need not be in each child
        operations = 0
        for at in (10, 20, 40, 80, 160, 320, 640):
            again = Path(name) / str(at)
            again.mkdir()
            if _child(command, again, at) == 0:
                break
            operations = at
        assert _child(command, out, None) == 0, f"{command.name} fails by itself"
        return command.read(out), 2 * operations or 10


def attempt(command: Command, number: int, seed: int) -> tuple[str, str]:
    """Kill a command once, over an earlier result or in an empty folder, look, and run it again."""
    chance = random.Random(f"{seed} {command.name} {number}")
    wanted, operations = undisturbed(command)
    at, over = chance.randrange(1, operations + 1), chance.random() < 0.5
    described = f"{command.name} killed before operation {at}{' over an earlier result' if over else ''}"
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "out"
        out.mkdir()
        if over and _child(command, out, None) != 0:
            return "lost", f"{described}: it fails without a kill"
        code = _child(command, out, at)
        if code == 0:
            return "ended before", described
        if code != -signal.SIGKILL:
            return "raw", f"{described}: exit code {code}"
        if over:
            try:
                there = command.read(out)
            except Exception as error:
                return "lost", f"{described}: {type(error).__name__}: {str(error)[:100]}"
            if there != wanted:
                return "lost", f"{described}: neither the old nor the new is there"
        if _child(command, out, None) != 0:
            return "lost", f"{described}: the same command fails afterwards"
        return ("whole" if command.read(out) == wanted else "lost"), described


def _child(command: Command, out: Path, at: int | None) -> int:
    """Run a command in a child, which kills itself before an operation on files; its exit code."""
    child = os.fork()
    if child == 0:
        code = 70
        with contextlib.suppress(BaseException):
            torch.set_num_threads(1)
            if at is not None:
                _kill_before(at, out)
            code = _run(command, out)
        os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _run(command: Command, out: Path) -> int:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return cli.main(command.arguments(data(), out))


def _kill_before(at: int, out: Path) -> None:
    count, root = 0, str(out.parent)

    def watch(event: str, arguments: Any) -> None:
        nonlocal count
        if event == "open":
            path, _, flags = arguments
            changes = (
                isinstance(path, str) and path.startswith(root) and bool(flags & (os.O_WRONLY | os.O_RDWR))
            )
        else:
            changes = event in CHANGES and any(str(part).startswith(root) for part in arguments)
        if changes:
            count += 1
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def clean() -> None:
    """Remove what the commands read."""
    if data.cache_info().currsize:
        shutil.rmtree(data(), ignore_errors=True)
