"""Threads and processes that share a model and laws: every answer is the one that a single thread gets."""

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

import factorank as fr


@cache
def model() -> fr.PermutationModel:
    """A model in training mode, with much dropout."""
    torch.manual_seed(0)
    return fr.PermutationModel(5, "insertion", width=16, depth=2, heads=2, dropout=0.5).train()


@cache
def questions() -> list[tuple[str, Callable[[], Any]]]:
    """Calls whose answers do not depend on anything but their arguments."""
    orders = fr.random_permutations(5, (20,), generator=torch.Generator().manual_seed(0))
    mallows = fr.Mallows(torch.arange(5), 0.5)

    def seeded() -> torch.Generator:
        return torch.Generator().manual_seed(3)

    return [
        ("model log_prob", lambda: model().distribution(nfe=5, unmask="left-to-right").log_prob(orders)),
        ("model sample", lambda: model().distribution(nfe=2).sample((8,), generator=seeded())),
        ("model mode", lambda: model().distribution(nfe=1).mode),
        ("model logits", lambda: model().distribution(nfe=1).marginals(generator=seeded(), samples=64)),
        ("codes", lambda: fr.FisherYates().decode(fr.FisherYates().encode(orders))),
        ("mallows", lambda: mallows.sample((8,), generator=seeded())),
        ("fit", lambda: fr.PlackettLuce.fit(orders).logits),
        ("distance", lambda: fr.kendall(orders, orders.flip(0))),
    ]


@cache
def answers() -> list[Any]:
    """The answers of a single thread."""
    return [ask() for _, ask in questions()]


def threads(rounds: int, count: int = 8) -> tuple[Counter[str], list[str]]:
    """Every question from so many threads at once, so many times."""
    wanted, counts, faults = answers(), Counter[str](), list[str]()
    barrier, lock = threading.Barrier(count), threading.Lock()

    def work(first: int) -> None:
        barrier.wait()
        for step in range(rounds):
            name, ask = questions()[(first + step) % len(wanted)]
            try:
                same = torch.equal(ask(), wanted[(first + step) % len(wanted)])
                outcome = "right" if same else "wrong answer"
            except Exception as error:
                outcome, name = "raw", f"{name}: {type(error).__name__}: {error}"
            with lock:
                counts[outcome] += 1
                if outcome != "right":
                    faults.append(name)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return counts, faults


def processes(count: int) -> tuple[Counter[str], list[str]]:
    """Every question in so many forked processes."""
    answers()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.map(_asked, range(count))
    outcomes = Counter("right" if not wrong else "wrong answer" for wrong in found)
    return outcomes, [name for wrong in found for name in wrong]


def _asked(_: int) -> list[str]:
    torch.set_num_threads(1)
    pairs = zip(questions(), answers(), strict=True)
    return [name for (name, ask), wanted in pairs if not torch.equal(ask(), wanted)]
