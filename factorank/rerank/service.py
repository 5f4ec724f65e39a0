"""A ranker as an HTTP service: re-ranking and recommendations as JSON, concurrent requests in one batch.

=================== ======================================================================================
``POST /rerank``    ``{"items": […], "observed": […] or {item: rating}, "k": 10, "new": {item: features}}``
``POST /recommend`` ``{"observed": […] or {item: rating}, "k": 10, "forbidden": […]}``
``GET /health``     what is served
``GET /metrics``    counts and times of requests, in the text format of Prometheus
=================== ======================================================================================

An answer is ``{"items": [{"item", "name", "place", "low", "high", "top", "observed"}, …], "k": 10}``, best
first, places from 0 on. What is wrong with a request comes back as ``{"error": …}`` with status 422. A
request that is too large has status 413, and one that finds the queue full 503.
"""

import asyncio
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field

from factorank.errors import FactorankError, RankerWarning
from factorank.rerank.observations import known_items, read_histories
from factorank.rerank.ranker import Ranker
from factorank.rerank.request import read_request
from factorank.rerank.reranking import Query, Reranking

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


class RerankRequest(BaseModel):
    """Rank items for a user."""

    model_config = ConfigDict(extra="forbid")
    items: list[Item]
    observed: list[Item] | dict[str, float | None] = Field(default_factory=list)
    k: int = Field(default=10, ge=1)
    new: dict[str, dict[str, float] | list[float]] = Field(default_factory=dict)


class RecommendRequest(BaseModel):
    """Recommend items of the whole catalogue to a user."""

    model_config = ConfigDict(extra="forbid")
    observed: list[Item] | dict[str, float | None] = Field(default_factory=list)
    k: int = Field(default=10, ge=1)
    forbidden: list[Item] = Field(default_factory=list)


def create_app(ranker: Ranker, limits: Limits | None = None) -> FastAPI:
    """The service of a ranker, for any ASGI server."""
    limits = Limits() if limits is None else limits
    metrics = Metrics()
    batches = Batches(ranker, limits, metrics)

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        batches.start()
        yield
        await batches.stop()

    app = FastAPI(title="factorank", lifespan=running)

    @app.middleware("http")
    async def counted(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        started = time.perf_counter()
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > limits.body or "transfer-encoding" in request.headers:
            text = f"a request has a length of up to {limits.body} bytes"
            response: Response = JSONResponse({"error": text}, 413)
        else:
            response = await answer(request)
        path = request.url.path if request.url.path in PATHS else "other"
        metrics.add(path, response.status_code, time.perf_counter() - started)
        return response

    @app.exception_handler(FactorankError)
    async def refused(_: Request, error: FactorankError) -> Response:
        return JSONResponse({"error": str(error)}, 422)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "body")
        return JSONResponse({"error": f"{place or 'the body'}: {first['msg']}"}, 422)

    @app.exception_handler(QueueFull)
    async def busy(_: Request, error: QueueFull) -> Response:
        return JSONResponse({"error": "too many requests are waiting"}, 503, {"Retry-After": "1"})

    @app.post("/rerank")
    async def rerank(request: RerankRequest) -> Any:
        check_length(request.observed, limits)
        return await batches.answer(
            ("rerank", request.k, request.new or None), (request.items, _known(request.observed))
        )

    @app.post("/recommend")
    async def recommend(request: RecommendRequest) -> Any:
        check_length(request.observed, limits)
        asked = ("recommend", request.k, tuple(request.forbidden))
        return await batches.answer(asked, (_known(request.observed),))

    @app.get("/health")
    async def health() -> Any:
        model = {"items": len(ranker.catalogue), "n": ranker.model.n, "told": ranker.told}
        return {"status": "ok", "waiting": batches.waiting} | model

    @app.get("/metrics")
    async def measured() -> Response:
        return PlainTextResponse(metrics.text(batches.waiting))

    return app


PATHS = ("/rerank", "/recommend", "/health", "/metrics")


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

    async def answer(self, asked: tuple[Any, ...], told: tuple[Any, ...]) -> Any:
        """The answer to a request; ``asked`` are its options and ``told`` the lists of its user."""
        if self.waiting >= self.limits.queue:
            raise QueueFull
        future = asyncio.get_running_loop().create_future()
        self.waiting += 1
        try:
            await self.queue.put((asked, told, future))
            return await future
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
            faults: list[Exception | None] = [None] * len(together)
            try:
                good = self._evaluated(asked, together)
            except Exception:  # one of them is at fault: the others are answered without it
                faults = [self._fault(asked, told) for told in together]
                sound = [told for told, fault in zip(together, faults, strict=True) if fault is None]
                good = self._evaluated(asked, sound) if sound else []
            left = iter(good)
            for place, fault in zip(places, faults, strict=True):
                answers[place] = next(left) if fault is None else fault
        return answers

    def _fault(self, asked: tuple[Any, ...], told: tuple[Any, ...]) -> Exception | None:
        """What is wrong with a request, found without evaluating the network."""
        ranker, (what, k, more) = self.ranker, asked
        try:
            Query(k=k)
            reads = (0, ranker.told, ranker.rating_range)
            if what == "rerank":
                read_request(ranker.catalogue, ranker.longest, told[0], told[1], more or {}, *reads)
            else:
                read_histories(ranker.catalogue, told[0], *reads)
                known_items(ranker.catalogue, more, "forbidden")
                ranker.check_count(k)
        except Exception as error:
            return error
        return None

    def _evaluated(self, asked: tuple[Any, ...], together: list[tuple[Any, ...]]) -> list[Any]:
        what, k, more = asked
        if what == "rerank" and more is None and not any(items or observed for items, observed in together):
            return [{"items": [], "k": k} for _ in together]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankerWarning)
            if what == "rerank":
                items, observed = (list(column) for column in zip(*together, strict=True))
                answer = self.ranker.rerank(items, observed, k=k, new=more)
            else:
                answer = self.ranker.recommend([told for (told,) in together], k=k, forbidden=more)
        return [as_json(self.ranker, one) for one in answer]


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


def as_json(ranker: Ranker, answer: Reranking) -> dict[str, Any]:
    """The answer for a user as numbers and text."""
    names = ranker.catalogue.names(answer.items)
    items = [ranked._asdict() | {"name": name} for ranked, name in zip(answer, names, strict=True)]
    return {"items": items, "k": answer.k}


def check_length(observed: Any, limits: Limits) -> None:
    """Refuse a history that is too long."""
    if len(observed) > limits.history:
        raise FactorankError(f"observed holds {len(observed)} items; {limits.history} are allowed")


def _known(observed: Any) -> Any:
    """Ratings with None for an item to rank as NaN."""
    if isinstance(observed, dict):
        return {item: float("nan") if rating is None else rating for item, rating in observed.items()}
    return observed
