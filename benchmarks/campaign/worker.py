"""Runs tests in forks of a process that has imported what takes long, and nothing of the library.

Each line of its input is a JSON object: the tests to run by their ids, in their order, or the files to run
all tests of and the file to write what they reach to. Each line of its output says how the run ended: the
exit code of pytest and the first test that failed.
"""

import contextlib
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numba  # noqa: F401
import pytest
import scipy.stats  # noqa: F401
import torch

ARGUMENTS = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        asked = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()  # what a test has started ends with it
            os.close(reading)
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            os.chdir(asked["folder"])
            sys.path.insert(0, asked["folder"])
            answer = _reach(asked) if "reached" in asked else _run(asked)
            os.write(writing, json.dumps(answer).encode())
            os._exit(0)
        os.close(writing)
        ended = _ended(child, asked["longest"])
        with open(reading, "rb") as pipe:
            said = pipe.read()
        print(json.dumps(json.loads(said) if said else {"code": 9, "failed": ended}), flush=True)


def _run(asked: dict[str, Any]) -> dict[str, Any]:
    """Run the tests of these ids, in this order, until one fails."""
    sys.dont_write_bytecode = True
    seconds = int(asked["longest"])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    chosen = Chosen(asked["tests"])
    files = list(dict.fromkeys(test.split("::")[0] for test in asked["tests"]))
    code = pytest.main(["-x", *ARGUMENTS, *files], plugins=[chosen])
    return {"code": int(code), "failed": chosen.failed}


def _reach(asked: dict[str, Any]) -> dict[str, Any]:
    """Run all tests of these files and write what each of them reached."""
    sys.dont_write_bytecode = False
    reached = Reached(Path(asked["folder"]) / "factorank")
    code = pytest.main([*ARGUMENTS, *asked["files"]], plugins=[reached])
    Path(asked["reached"]).write_text(json.dumps(reached.rows()), encoding="utf-8")
    return {"code": int(code), "failed": None}


class Chosen:
    """Keeps the tests that were chosen, in their order, and the first that fails."""

    def __init__(self, tests: list[str]) -> None:
        self.places = {test: place for place, test in enumerate(tests)}
        self.failed: str | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        known = [item for item in items if item.nodeid in self.places]
        items[:] = sorted(known, key=lambda item: self.places[item.nodeid]) or items

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self.failed is None:
            self.failed = f"reading {report.nodeid}"


class Reached:
    """Records for each test how long it takes and which functions of the library it enters.

    What the collection of a file and the set-up of its first test enter counts for all tests of the file:
    fixtures are shared.
    """

    def __init__(self, library: Path) -> None:
        self.library = f"{library}{os.sep}"
        self.tests: dict[str, dict[str, Any]] = {}
        self.shared: dict[str, set[str]] = {}

    def rows(self) -> dict[str, Any]:
        """The tests that passed: file, seconds, and functions as ``module:qualified name``."""
        for row in self.tests.values():
            row["reached"] = sorted(row["reached"] | self.shared.get(row["file"], set()))
        return {test: row for test, row in self.tests.items() if row.pop("passed")}

    @contextlib.contextmanager
    def entered(self) -> Iterator[set[str]]:
        codes: dict[int, CodeType] = {}

        def trace(frame: FrameType, event: str, argument: object) -> None:
            codes.setdefault(id(frame.f_code), frame.f_code)

        names: set[str] = set()
        sys.settrace(trace)
        threading.settrace(trace)
        try:
            yield names
        finally:
            sys.settrace(None)
            threading.settrace(None)
            ours = [
                code for code in codes.values()
                if code.co_filename.startswith(self.library) and code.co_name != "<module>"
            ]  # fmt: skip
            names |= {f"{code.co_filename[len(self.library) : -3]}:{code.co_qualname}" for code in ours}

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        with self.entered() as names:
            result = yield
        self.shared.setdefault(collector.nodeid.split("::")[0], set()).update(names)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Any:
        with self.entered() as names:
            result = yield
        self._row(item)["reached"] |= names
        self.shared.setdefault(self._row(item)["file"], set()).update(names)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        with self.entered() as names:
            result = yield
        self._row(item)["reached"] |= names
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        row = self.tests.get(report.nodeid)
        if row is not None:
            row["seconds"] = round(row["seconds"] + report.duration, 3)
            row["passed"] = row["passed"] and report.passed

    def _row(self, item: pytest.Item) -> dict[str, Any]:
        first = {"file": item.nodeid.split("::")[0], "seconds": 0.0, "passed": True, "reached": set[str]()}
        return self.tests.setdefault(item.nodeid, first)


def _ended(child: int, longest: float) -> str:
    """How a child ended; after so many seconds it is killed.

    Seconds in which this process itself was stopped do not count.
    """
    waited = 0.0
    while waited < 3 * longest:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # what it has left behind
            code = os.waitstatus_to_exitcode(status)
            if code in (-signal.SIGXCPU, -signal.SIGKILL):
                return "it never ends"
            return f"the process ended with {code}"
        time.sleep(0.02)
        waited += 0.02
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "it never ends"


if __name__ == "__main__":
    main()
