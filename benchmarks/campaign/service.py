"""The service of a ranker under bodies that no client of good will sends: every answer is a status below 500.

Status 503 is the one above: it says that the queue is full.
"""

import json
import random
from functools import cache
from typing import Any

import torch

import factorank as fr
from benchmarks.campaign.damage import HOSTILE
from factorank.data.ratings import Ratings

ITEMS = [100, "item 3", 999, -1, 10**30, None, True, [], {}, "x" * 5000, 1.5, "\x1b[31m", "\ud7ff"]
VALUES = [
    None,
    0,
    -1,
    3,
    10**12,
    0.5,
    -5,
    "many",
    [],
    [1],
    {},
    {"100": 4},
    {"100": "good"},
    True,
    [[1, 2]],
    "a",
]


@cache
def client() -> Any:
    """A client of the service of a small ranker."""
    from fastapi.testclient import TestClient

    from factorank.rerank.service import Limits, create_app

    g = torch.Generator().manual_seed(0)
    rows = [
        (user, 100 + item, float(torch.randint(1, 6, (), generator=g)))
        for user in range(40)
        for item in range(12)
    ]
    ratings = Ratings.from_rows(*map(list, zip(*rows, strict=True)))
    small: dict[str, Any] = {
        "n": 8,
        "shortest": 4,
        "width": 16,
        "depth": 1,
        "heads": 2,
        "rank": 2,
        "steps": 2,
    }
    small |= {"steps": 2, "batch_size": 16, "held_out": 16, "told": "order", "features": ("mean",)}
    setting = fr.rerank.preset("small", **small)
    ranker = fr.Ranker.fit(ratings, 0.2, setting=setting, device="cpu")
    opened = TestClient(create_app(ranker, Limits(body=20_000)), raise_server_exceptions=False)
    opened.__enter__()
    return opened


def attempt(number: int, seed: int) -> tuple[str, str]:
    """What the service says to a body of chance."""
    chance = random.Random(f"{seed} {number}")
    path = chance.choice(["/rerank", "/recommend", "/rerank", "/health", "/metrics", "/nowhere"])
    if chance.random() < 0.3:
        body = chance.choice(HOSTILE)
    else:
        named: dict[str, Any] = {
            "items": chance.choices(ITEMS, k=chance.randrange(6)),
            "observed": chance.choices(ITEMS, k=2),
        }
        for name in chance.sample(
            ["k", "items", "observed", "nfe", "references", "by", "pinned", "most", "other"], 2
        ):
            named[name] = chance.choice(VALUES)
        body = json.dumps(named).encode()
    method = client().get if path in ("/health", "/metrics") else client().post
    options = (
        {}
        if path in ("/health", "/metrics")
        else {"content": body, "headers": {"content-type": "application/json"}}
    )
    try:
        status = method(path, **options).status_code
    except Exception as error:
        return "raw", f"{path} {body[:80]!r}: {type(error).__name__}: {error}"
    if status == 200:
        return "answered", path
    return ("refused" if status < 500 or status == 503 else "raw"), f"{path} {body[:120]!r}: status {status}"


def still_well() -> bool:
    """Whether the service answers a good request after all that."""
    answer = client().post("/rerank", json={"items": [100, 101, 102], "observed": [103, 104], "k": 2})
    return bool(answer.status_code == 200 and len(answer.json()["items"]) == 5)
