"""Requests of a service in batches: those that ask alike and come close together are evaluated together."""

import asyncio
import json
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

from factorank.errors import RankerWarning
from factorank.rerank.checking import check_history, check_request
from factorank.rerank.ranker import Ranker
from factorank.rerank.reranking import Query, RankedItem, Reranking

Item = int | str
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""The bounds of the histogram of times."""


@dataclass(frozen=True)
class Limits:
    """How much a service takes at a time."""

    batch: int = 32
    """Requests that are answered together, at most."""
    wait: float = 0.002
    """Seconds that a request waits for others to share its batch."""
    queue: int = 1024
    """Requests that wait, at most; further ones get status 503."""
    body: int = 1 << 20
    """Bytes of a request, at most."""
    history: int = 10_000
    """Observed items of a request, at most."""


class Asked(NamedTuple):
    """The options of a request: those that ask alike are answered together."""

    what: str
    k: int
    groups: dict[str, Item] | None
    most: int
    new: Any = None
    forbidden: tuple[Item, ...] = ()
    """Of recommendations; re-ranked lists have those of their own."""


class QueueFull(Exception):
    """Too many requests wait."""


class Batches:
    """Answers requests in batches, on a thread of its own: those that ask alike and come close together."""

    def __init__(self, ranker: Ranker, limits: Limits, metrics: "Metrics") -> None:
        self.ranker, self.limits, self.metrics = ranker, limits, metrics
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.waiting = 0
        self.thread = ThreadPoolExecutor(1)

    def start(self) -> None:
        """Begin to answer."""
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Answer what waits, then end."""
        await self.queue.put(None)
        await self.task
        self.thread.shutdown()

    async def answer(self, asked: Asked, told: tuple[Any, ...]) -> bytes:
        """The answer to a request, as JSON; ``told`` are the lists of its user."""
        if self.waiting >= self.limits.queue:
            raise QueueFull
        future = asyncio.get_running_loop().create_future()
        self.waiting += 1
        try:
            await self.queue.put((asked, told, future))
            answer: bytes = await future
            return answer
        finally:
            self.waiting -= 1

    async def _run(self) -> None:
        loop, ended = asyncio.get_running_loop(), False
        while not ended:
            batch = [await self.queue.get()]
            until = loop.time() + self.limits.wait
            while batch[-1] is not None and len(batch) < self.limits.batch:
                try:
                    batch.append(await asyncio.wait_for(self.queue.get(), max(until - loop.time(), 0)))
                except TimeoutError:
                    break
            ended = batch[-1] is None
            requests = [request for request in batch if request is not None]
            if requests:
                self.metrics.batches[len(requests)] += 1
                answers = await loop.run_in_executor(self.thread, self._answers, requests)
                for (_, _, future), answer in zip(requests, answers, strict=True):
                    if future.done():  # the client has gone
                        continue
                    if isinstance(answer, BaseException):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)

    def _answers(self, requests: list[Any]) -> list[Any]:
        """An answer or an error for each request; those that ask alike are evaluated together."""
        answers: list[Any] = [None] * len(requests)
        groups: dict[str, list[int]] = {}
        for place, (asked, _, _) in enumerate(requests):
            groups.setdefault(repr(asked), []).append(place)
        for places in groups.values():
            asked, together = requests[places[0]][0], [requests[place][1] for place in places]
            for place, answer in zip(places, self._together(asked, together), strict=True):
                answers[place] = answer
        return answers

    def _together(self, asked: Asked, together: list[tuple[Any, ...]]) -> list[Any]:
        """An answer or an error for each of those that ask alike; this raises nothing."""
        try:
            return self._evaluated(asked, together)
        except Exception as error:
            if len(together) == 1:
                return [self._fault(asked, together[0]) or error]
        # One of them is at fault: the others are answered without it.
        faults = [self._fault(asked, told) for told in together]
        sound = [told for told, fault in zip(together, faults, strict=True) if fault is None]
        if len(sound) == len(together):  # the fault shows in the evaluation alone
            return [answer for told in together for answer in self._together(asked, [told])]
        left = iter(self._together(asked, sound) if sound else ())
        return [next(left) if fault is None else fault for fault in faults]

    def _fault(self, asked: Asked, told: tuple[Any, ...]) -> Exception | None:
        """What is wrong with a request, found without evaluating the network."""
        try:
            Query(k=asked.k)
            if asked.what == "rerank":
                items, observed, pinned, forbidden = told
                check_request(self.ranker, items, observed, asked.new, pinned, forbidden)
            else:
                check_history(self.ranker, told[0], asked.k, asked.forbidden)
        except Exception as error:
            return error
        return None

    def _evaluated(self, asked: Asked, together: list[tuple[Any, ...]]) -> list[Any]:
        options: dict[str, Any] = {"k": asked.k, "groups": asked.groups, "most": asked.most}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankerWarning)
            if asked.what == "rerank":
                items, observed, pinned, forbidden = (list(column) for column in zip(*together, strict=True))
                if not any(map(any, zip(items, observed, pinned, strict=True))):  # empty lists alone
                    return [json.dumps({"items": [], "k": asked.k}).encode() for _ in together]
                options |= {"pinned": pinned if any(pinned) else None, "new": asked.new}
                options |= {"forbidden": forbidden if any(forbidden) else ()}
                answer = self.ranker.rerank(items, observed, **options)
            else:
                histories = [told for (told,) in together]
                answer = self.ranker.recommend(histories, forbidden=asked.forbidden, **options)
        return [as_json(self.ranker, each) for each in answer]


class Metrics:
    """Counts and times of requests."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: Counter[float] = Counter()
        self.total = 0.0
        self.batches: Counter[int] = Counter()

    def add(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests[path, status] += 1
        self.seconds[next((bound for bound in SECONDS if seconds <= bound), float("inf"))] += 1
        self.total += seconds

    def text(self, waiting: int) -> str:
        """All of them in the text format of Prometheus."""
        lines = ["# TYPE factorank_requests_total counter"]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'factorank_requests_total{{path="{path}",status="{status}"}} {count}')
        lines.append("# TYPE factorank_request_seconds histogram")
        below = 0
        for bound in (*SECONDS, float("inf")):
            below += self.seconds[bound]
            name = "+Inf" if bound == float("inf") else f"{bound:g}"
            lines.append(f'factorank_request_seconds_bucket{{le="{name}"}} {below}')
        lines += [
            f"factorank_request_seconds_sum {self.total:.6f}",
            f"factorank_request_seconds_count {below}",
        ]
        lines.append("# TYPE factorank_batches_total counter")
        lines += [f"factorank_batches_total {sum(self.batches.values())}"]
        lines += ["# TYPE factorank_waiting gauge", f"factorank_waiting {waiting}"]
        return "\n".join(lines) + "\n"


def as_json(ranker: Ranker, answer: Reranking) -> bytes:
    """The answer for a user as JSON."""
    names = ranker.catalogue.names(answer.items)
    fields = (*RankedItem._fields, "name")
    items = [
        dict(zip(fields, (*ranked, name), strict=True)) for ranked, name in zip(answer, names, strict=True)
    ]
    # In ASCII: a name may hold half of a surrogate pair, which JSON can say and UTF-8 cannot.
    return json.dumps({"items": items, "k": answer.k}).encode()
