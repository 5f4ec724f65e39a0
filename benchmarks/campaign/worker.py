"""Runs tests in forks of a process that has imported what takes long, and nothing of the library.

Each line of its input is a folder and the tests to run there, separated by tabs; each line of its output is
the exit code of pytest, or 9 if the tests took too long.
"""

import os
import signal
import sys
import time

import numba  # noqa: F401
import pytest
import scipy.stats  # noqa: F401
import torch


def main(longest: float) -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        folder, *tests = line.rstrip("\n").split("\t")
        child = os.fork()
        if child == 0:
            os.chdir(folder)
            sys.path.insert(0, folder)
            sys.dont_write_bytecode = True
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests])))
        print(_ended(child, longest), flush=True)


def _ended(child: int, longest: float) -> int:
    """The exit code of a child, which is killed after so many seconds."""
    until = time.monotonic() + longest
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 9


if __name__ == "__main__":
    main(float(sys.argv[1]))
