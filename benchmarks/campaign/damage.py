"""Damaged and hostile files of every kind that is read: refused in our words, or read as they were.

A file of a kind with checksums must never be read with another meaning. Text and pictures have none: there a
changed digit is another number, and only errors that are not ours, new processes and large costs are faults.
The kinds are listed in :mod:`benchmarks.campaign.folders_read` and :mod:`benchmarks.campaign.tables_read`.
"""

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import factorank as fr

SLOW = 10.0
"""Seconds of computing after which a small file counts as hung."""
LONGEST = 60
"""Seconds after which nobody waits any longer."""
LARGE = 1 << 21
"""Kibibytes by which no small file may raise the peak of the memory."""
STARTED = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn")
HOSTILE = [
    *(
        b"",
        b"{}",
        b"[]",
        b"null",
        b"3",
        b'"text"',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"\xff\xfe\x00",
        b"\x00" * 64,
    ),
    *(b'{"format": NaN}', b'{"n": 1e999}', b'{"a": 1, "a": 2}', b'{"version": ' + b"9" * 5000 + b"}"),
    *(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        b"PK\x03\x04" + b"\x00" * 40,
        b"PAR1" + b"\xff" * 60,
    ),
    *(b"\x89PNG\r\n\x1a\n" + b"\xff" * 80, b"\xff\xd8\xff\xe0" + b"\x00" * 80, b"\x80\x04\x95cos\nsystem\n."),
    *(b"a,b\n" + b"1," * 5000 + b"\n", b"item\n\x1b[31m\n", b" " * 4000 + b"x\n", b'"' * 3000, b"1::" * 3000),
]


class Kind(NamedTuple):
    """A kind of file: how a whole one is made, how it is read to something that can be compared."""

    name: str
    make: Callable[[Path], Any]
    read: Callable[[Path], Any]
    sealed: bool


@cache
def kinds() -> list[Kind]:
    """Every kind of file that is read."""
    from benchmarks.campaign.folders_read import FOLDERS
    from benchmarks.campaign.tables_read import TABLES

    return [*FOLDERS, *TABLES]


def attempt(
    kind: Kind, number: int, seed: int, say: Callable[[str], object] = lambda text: None
) -> tuple[str, str]:
    """Damage a file of that kind in one way and read it: what came of it, and how it was damaged.

    The latter is also said before it is read.
    """
    chance = random.Random(f"{seed} {kind.name} {number}")
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(), watched() as started:
        warnings.simplefilter("ignore")
        folder = Path(name)
        whole, good = _whole(kind)
        for path, data in whole.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        target = chance.choice(sorted(whole))
        how, damaged = _damaged(whole[target], chance)
        (folder / target).write_bytes(damaged)
        described = f"{kind.name}: {target} {how}"
        say(described)
        before, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            read = kind.read(folder)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of polars is no Exception
            system = isinstance(error, OSError) and error.errno is not None  # not one of Pillow or gzip
            outcome = "refused" if isinstance(error, fr.FactorankError) or system else "raw"
            described += f": {type(error).__name__}: {str(error)[:90]}"
        else:
            outcome = "harmless" if read == good else "changed" if kind.sealed else "other content"
        if started:
            return "process started", f"{described}: {started[0]}"
        if (seconds := time.process_time() - before) > SLOW:
            return "hung", f"{described}: {seconds:.1f} s"
        if (more := resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) > LARGE:
            return "memory", f"{described}: {more / (1 << 20):.1f} GiB"
        return outcome, described


def attempt_apart(number: int, seed: int) -> tuple[str, str]:
    """The attempt of that number, the kinds in turn, in another process, which a damaged file may end."""
    reader, described = worker(), f"number {number}"
    assert reader.stdin is not None
    assert reader.stdout is not None
    watch = threading.Timer(LONGEST, reader.kill)
    watch.start()
    try:
        with contextlib.suppress(BrokenPipeError):
            print(number, seed, file=reader.stdin, flush=True)
        for line in reader.stdout:
            outcome, described = json.loads(line)
            if outcome is not None:
                return outcome, described
    finally:
        watch.cancel()
    with contextlib.suppress(BrokenPipeError):
        reader.stdin.close()
    reader.stdout.close()
    worker.cache_clear()
    code = reader.wait()
    if code == -signal.SIGKILL:
        return "hung", f"{described}: it took more than {LONGEST} s"
    return "process ended", f"{described}: exit code {code}"


@cache
def worker() -> subprocess.Popen[str]:
    """The process that reads."""
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.campaign.damage"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # a panic of polars is told there, at length
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )


def clean() -> None:
    """End the process that reads."""
    if worker.cache_info().currsize:
        worker().communicate()
        worker.cache_clear()


def _work() -> None:
    """Make the attempts whose numbers and seeds are lines of the input; what is said of each are lines."""
    for line in sys.stdin:
        number, seed = map(int, line.split())
        kind = kinds()[number % len(kinds())]

        def say(text: str) -> None:
            print(json.dumps([None, text]), flush=True)

        print(json.dumps(attempt(kind, number // len(kinds()), seed, say)), flush=True)


@cache
def _whole(kind: Kind) -> tuple[dict[str, bytes], Any]:
    """The files of a whole one, and what is read from them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kind.make(folder)
        files = {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
        return files, kind.read(folder)


def _damaged(data: bytes, chance: random.Random) -> tuple[str, bytes]:
    way = chance.choice(["bit", "bit", "byte", "cut", "zeros", "twice", "noise", "hostile", "swap"])
    at, length = chance.randrange(len(data) or 1), chance.randrange(1, 40)
    if way == "bit" and data:
        return f"bit {at}", data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
    if way == "byte" and data:
        return f"byte {at}", data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
    if way == "cut":
        return f"cut at {at}", data[:at]
    if way == "zeros":
        return f"zeros at {at}", data[:at] + bytes(length) + data[at + length :]
    if way == "twice":
        return f"{length} bytes twice", data[: at + length] + data[at:]
    if way == "noise":
        return f"noise at {at}", data[:at] + chance.randbytes(length) + data[at:]
    if way == "swap" and len(data) > 2:
        to = chance.randrange(len(data))
        low, high = sorted((at, to))
        return f"{low} and {high} swapped", data[:low] + data[high : high + 1] + data[low + 1 : high] + data[
            low : low + 1
        ] + data[high + 1 :]
    number = chance.randrange(len(HOSTILE))
    return f"hostile {number}", HOSTILE[number]


_watchers: list[list[str]] = []


@cache
def _hook() -> None:
    def watch(event: str, _: Any) -> None:
        if _watchers and event.startswith(STARTED):
            _watchers[-1].append(event)

    sys.addaudithook(watch)


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """The processes that were started in a block."""
    _hook()
    _watchers.append([])
    try:
        yield _watchers[-1]
    finally:
        _watchers.pop()


if __name__ == "__main__":
    from benchmarks.campaign import damage

    damage._work()
