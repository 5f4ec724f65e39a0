"""A ranker as an HTTP service: re-ranking and recommendations as JSON, concurrent requests in one batch.

=================== ======================================================================================
``POST /rerank``    ``{"items": […], "observed": […] or {item: rating}, "k": 10, "new": {item: features},
                    "pinned": {item: place}, "forbidden": […], "groups": {item: label}, "most": 1}``
``POST /recommend`` ``{"observed": […] or {item: rating}, "k": 10, "forbidden": […], "groups", "most"}``
``GET /health``     what is served
``GET /metrics``    counts and times of requests, in the text format of Prometheus
=================== ======================================================================================

An answer is ``{"items": [{"item", "name", "place", "low", "high", "top", "observed"}, …], "k": 10}``, best
first, places from 0 on. What is wrong with a request comes back as ``{"error": …}`` with status 422. A
request that is too large has status 413, and one that finds the queue full 503.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from factorank.errors import FactorankError
from factorank.rerank.batching import Asked, Batches, Item, Limits, Metrics, QueueFull
from factorank.rerank.ranker import Ranker

PATHS = ("/rerank", "/recommend", "/health", "/metrics")


class RerankRequest(BaseModel):
    """Rank items for a user."""

    model_config = ConfigDict(extra="forbid")
    items: list[Item]
    observed: list[Item] | dict[str, float | None] = Field(default_factory=list)
    k: int = Field(default=10, ge=1)
    new: dict[str, dict[str, float] | list[float]] = Field(default_factory=dict)
    pinned: dict[str, int] = Field(default_factory=dict)
    forbidden: list[Item] = Field(default_factory=list)
    groups: dict[str, Item] | None = None
    most: int = Field(default=1, ge=1)


class RecommendRequest(BaseModel):
    """Recommend items of the whole catalogue to a user."""

    model_config = ConfigDict(extra="forbid")
    observed: list[Item] | dict[str, float | None] = Field(default_factory=list)
    k: int = Field(default=10, ge=1)
    forbidden: list[Item] = Field(default_factory=list)
    groups: dict[str, Item] | None = None
    most: int = Field(default=1, ge=1)


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

    app.add_middleware(Counted, limits=limits, metrics=metrics)

    @app.exception_handler(FactorankError)
    async def refused(_: Request, error: FactorankError) -> Response:
        return JSONResponse({"error": str(error)}, 422)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "body")
        return JSONResponse({"error": f"{place or 'the body'}: {first['msg']}"}, 422)

    @app.exception_handler(HTTPException)  # no such path or method, or no text that can be read
    async def not_understood(_: Request, error: HTTPException) -> Response:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.exception_handler(QueueFull)
    async def busy(_: Request, error: QueueFull) -> Response:
        return JSONResponse({"error": "too many requests are waiting"}, 503, {"Retry-After": "1"})

    @app.post("/rerank")
    async def rerank(request: RerankRequest) -> Response:
        check_length(request.observed, limits)
        asked = Asked("rerank", request.k, request.groups, request.most, request.new or None)
        told = (request.items, _known(request.observed), request.pinned, request.forbidden)
        return Response(await batches.answer(asked, told), media_type="application/json")

    @app.post("/recommend")
    async def recommend(request: RecommendRequest) -> Response:
        check_length(request.observed, limits)
        forbidden = tuple(request.forbidden)
        asked = Asked("recommend", request.k, request.groups, request.most, forbidden=forbidden)
        answer = await batches.answer(asked, (_known(request.observed),))
        return Response(answer, media_type="application/json")

    @app.get("/health")
    async def health() -> Any:
        model = {"items": len(ranker.catalogue), "n": ranker.model.n, "told": ranker.told}
        return {"status": "ok", "waiting": batches.waiting} | model

    @app.get("/metrics")
    async def measured() -> Response:
        return PlainTextResponse(metrics.text(batches.waiting))

    return app


class Counted:
    """Counts requests and times them, and refuses those that are too large before they are read."""

    def __init__(self, app: Any, limits: Limits, metrics: Metrics) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started, status, headers = time.perf_counter(), 500, dict(scope["headers"])

        async def sent(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        answer, length = self.app, headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.limits.body or b"transfer-encoding" in headers:
            text = f"a request has a length of up to {self.limits.body} bytes"
            answer = JSONResponse({"error": text}, 413)
        try:
            await answer(scope, receive, sent)
        finally:
            path = scope["path"] if scope["path"] in PATHS else "other"
            self.metrics.add(path, status, time.perf_counter() - started)


def check_length(observed: Any, limits: Limits) -> None:
    """Refuse a history that is too long."""
    if len(observed) > limits.history:
        raise FactorankError(f"observed holds {len(observed)} items; {limits.history} are allowed")


def _known(observed: Any) -> Any:
    """Ratings with None for an item to rank as NaN."""
    if isinstance(observed, dict):
        return {item: float("nan") if rating is None else rating for item, rating in observed.items()}
    return observed
