"""The processes of a command: those that torchrun or SLURM started, or workers for independent tasks."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.synchronize import Event
from typing import Any

from factorank import signals
from factorank.commands._options import check_least
from factorank.errors import FactorankError
from factorank.signals import Terminated


def first_process() -> bool:
    """Whether this process is the one that prints and writes."""
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))) == 0


def say(text: str) -> None:
    """Print a line, once for all processes."""
    if first_process():
        print(text, flush=True)


def processes() -> int:
    """How many processes run the command together."""
    return int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1")))


def check_jobs(jobs: int) -> None:
    """Refuse a number of jobs that cannot run."""
    check_least("jobs", jobs)
    if jobs > 1 and processes() > 1:
        raise FactorankError("--jobs runs laws side by side; under torchrun all processes train each law")


def finished(
    work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], jobs: int
) -> Iterator[tuple[int, Any]]:
    """The index and the result of ``work(*task)`` for each task as it is done, ``jobs`` of them at once.

    ``work`` is importable by name. An interruption waits for running tasks, which save their training: a
    terminal sends Ctrl-C to them as well, and a signal to this process alone is passed on.
    """
    if jobs == 1:
        for index, task in enumerate(tasks):
            yield index, work(*task)
        return
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(jobs, stop)) as pool:
        futures = {pool.submit(work, *task): index for index, task in enumerate(tasks)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except (KeyboardInterrupt, Terminated, GeneratorExit):
            stop.set()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin(jobs: int, stop: Event) -> None:
    """Give a worker its share of the processors, and let it end with its parent: its folder is needed.

    Once ``stop`` is set it sends itself the SIGTERM that its parent had, unless it has had one, too.
    """
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // jobs))
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    def pass_on() -> None:
        stop.wait()
        time.sleep(0.5)  # for a signal that was sent to all
        if not signals.has_come():
            os.kill(os.getpid(), signal.SIGTERM)

    for task in (wait, pass_on):
        threading.Thread(target=task, daemon=True).start()
