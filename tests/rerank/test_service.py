"""The HTTP service: its answers are the ranker's, requests share batches, bad ones are told what is wrong."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("fastapi")
import httpx
import uvicorn
from fastapi.testclient import TestClient

from factorank.rerank import batching
from factorank.rerank.batching import as_json
from factorank.rerank.service import Limits, create_app


@pytest.fixture(scope="module")
def client(masked):
    with TestClient(create_app(masked, Limits(body=20_000, history=50))) as client:
        yield client


def test_answers_are_those_of_the_ranker(client, masked):
    asked = {"items": [100, 105, "item 7"], "observed": [105, 103], "k": 2}
    answer = client.post("/rerank", json=asked).json()
    wanted = masked.rerank(asked["items"], asked["observed"], k=2)
    assert [ranked["item"] for ranked in answer["items"]] == wanted.items
    assert [ranked["top"] for ranked in answer["items"]] == pytest.approx(wanted.top.tolist(), abs=1e-6)
    assert answer["items"][0]["name"].startswith("item ")
    rated = client.post(
        "/rerank", json={"items": [100], "observed": {"105": 4.5, "101": 2, "110": None}}
    ).json()
    assert sorted(ranked["item"] for ranked in rated["items"] if ranked["observed"]) == ["101", "105"]
    assert client.post("/rerank", json={"items": []}).json() == {"items": [], "k": 10}
    answer = client.post("/recommend", json={"observed": [105, 103], "k": 3, "forbidden": [111]}).json()
    assert [ranked["item"] for ranked in answer["items"]] == masked.recommend(
        [105, 103], 3, forbidden=[111]
    ).items
    conditions = {"pinned": {"103": 1}, "forbidden": [105], "groups": {"100": "a", "101": "a"}, "most": 1}
    answer = client.post(
        "/rerank", json={"items": [100, 101, 102], "observed": [105, 106]} | conditions
    ).json()
    shown = [ranked["name"] for ranked in answer["items"]]
    assert shown[1] == "item 3"
    assert set(shown) == {f"item {i}" for i in (0, 1, 2, 3, 6)}


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/rerank", {"items": [100, 999]}, 422, "holds 999, which the ranker has not been trained on"),
        ("/rerank", {"items": [100, 100]}, 422, "at place 1 and"),
        ("/rerank", {"items": list(range(600))}, 422, "up to 500 are ranked"),
        ("/rerank", {"items": [100], "k": 0}, 422, "k: Input should be greater than or equal to 1"),
        ("/rerank", {"observed": [100]}, 422, "items: Field required"),
        ("/rerank", {"items": [100], "what": 1}, 422, "what: Extra inputs"),
        ("/rerank", {"items": [1.5]}, 422, "items.0"),
        ("/rerank", {"items": [100], "observed": {"100": "good"}}, 422, "observed"),
        ("/rerank", {"items": [100, 101], "pinned": {"100": 5}}, 422, "its places are 0 to 1"),
        ("/recommend", {"observed": [5]}, 422, "holds 5"),
        ("/recommend", {"observed": [100], "k": 7}, 422, "k is 1 to 4, not 7"),
        ("/recommend", {"forbidden": ["nobody"], "k": 2}, 422, "nobody"),
        ("/recommend", {"observed": list(range(60))}, 422, "observed holds 60 items; 50 are allowed"),
        ("/rerank", {"items": ["x" * 30_000]}, 413, "up to 20000 bytes"),
    ],
)
def test_bad_requests_are_told_what_is_wrong(client, path, body, status, message):
    answer = client.post(path, json=body)
    assert answer.status_code == status
    assert message in answer.json()["error"]


def test_what_is_no_request(client):
    assert client.post("/rerank", content=b"{nothing").status_code == 422
    assert client.post("/rerank", content=b"\xff\xfe").status_code == 422
    nested = client.post("/rerank", content=b"[" * 19_000, headers={"Content-Type": "application/json"})
    told = [client.get("/rerank"), client.get("/nothing"), nested]
    assert [answer.status_code for answer in told] == [405, 404, 400]
    assert [answer.json()["error"] for answer in told] == [
        "Method Not Allowed",
        "Not Found",
        "There was an error parsing the body",
    ]
    chunks = (part for part in [b'{"items": [100]}'])
    assert client.post("/rerank", content=chunks).status_code == 413  # a length is needed


def test_requests_share_batches_and_a_bad_one_harms_no_other(masked, monkeypatch):
    sizes = []
    rerank = masked.rerank
    monkeypatch.setattr(
        masked,
        "rerank",
        lambda items, *rest, **more: (sizes.append(len(items)), rerank(items, *rest, **more))[1],
    )
    bodies = [{"items": [100 + i % 12, 100 + (i + 1) % 12], "k": 1} for i in range(24)]
    bodies[5] = {"items": [100, 999], "k": 1}
    with TestClient(create_app(masked, Limits(wait=0.2))) as client, ThreadPoolExecutor(24) as threads:
        answers = list(threads.map(lambda body: client.post("/rerank", json=body), bodies))
        assert [answer.status_code for answer in answers] == [422 if i == 5 else 200 for i in range(24)]
        for body, answer in zip(bodies, answers, strict=True):
            if answer.status_code == 200:
                assert [ranked["item"] for ranked in answer.json()["items"]] == rerank(
                    body["items"], k=1
                ).items
        assert max(sizes) > 4
        text = client.get("/metrics").text
        totals = [float(line.split()[-1]) for line in text.splitlines() if "_sum" in line]
        assert totals
        assert all(0 <= total < 600 for total in totals)
        assert 'factorank_requests_total{path="/rerank",status="200"} 23' in text
        assert 'factorank_requests_total{path="/rerank",status="422"} 1' in text
        assert client.get("/health").json()["status"] == "ok"


def posted(client, body):
    return client.post("/rerank", content=body, headers={"content-type": "application/json"})


def test_a_fault_that_shows_in_the_evaluation_alone_stops_nothing(causal, monkeypatch):
    def written(ranker, answer):
        if "x" in answer.items:
            raise RuntimeError("a fault that no check finds")
        return as_json(ranker, answer)

    monkeypatch.setattr(batching, "as_json", written)
    bodies = [{"items": [100 + i, 101 + i], "k": 1} for i in range(6)]
    bodies[2]["pinned"] = {"102": 0}  # no ranker of its kind has exact conditions; the check does not say so
    bodies[4] = {"items": [100, "x"], "k": 1, "new": {"x": {"mean rating": 3}}}
    with (
        TestClient(create_app(causal, Limits(wait=0.2)), raise_server_exceptions=False) as client,
        ThreadPoolExecutor(6) as threads,
    ):
        sent = [threads.submit(posted, client, json.dumps(body)) for body in bodies]
        codes = [each.result(timeout=30).status_code for each in sent]
        assert codes == [200, 200, 422, 200, 500, 200]
        assert client.post("/rerank", json=bodies[0]).status_code == 200


@pytest.mark.parametrize("value", ["1e999", "-1e999", "1e300", "NaN", "null"])
def test_features_without_end(value, priced):
    with TestClient(create_app(priced)) as client, ThreadPoolExecutor(1) as threads:
        body = f'{{"items": [1, 2, "x"], "new": {{"x": [{value}]}}}}'
        answer = threads.submit(posted, client, body).result(timeout=30)
        if value == "NaN":
            assert len(answer.json()["items"]) == 3
        else:
            assert answer.status_code == 422
        assert client.post("/rerank", json={"items": [1, 2]}).status_code == 200


def test_names_that_utf8_cannot_say_are_answered(priced):
    body = b'{"items": [1, "\\ud800", "\\u00fc"], "new": {"\\ud800": [9], "\\u00fc": [3]}}'
    with TestClient(create_app(priced)) as client:
        answer = client.post("/rerank", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200
    assert {ranked["item"] for ranked in answer.json()["items"]} == {1, "\ud800", "ü"}


def test_a_full_queue_is_said(masked):
    with (
        TestClient(create_app(masked, Limits(wait=0.5, queue=2))) as client,
        ThreadPoolExecutor(8) as threads,
    ):
        answers = list(threads.map(lambda _: client.post("/rerank", json={"items": [100]}), range(8)))
    codes = [answer.status_code for answer in answers]
    assert set(codes) == {200, 503}
    assert codes.count(200) >= 2


def test_a_stop_loses_no_request(masked):
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(masked, Limits(wait=0.3)), port=0, log_level="error", timeout_graceful_shutdown=30
        )
    )
    serving = threading.Thread(target=server.run)
    serving.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    with ThreadPoolExecutor(12) as threads:
        sent = [
            threads.submit(
                httpx.post, f"http://127.0.0.1:{port}/rerank", json={"items": [100, 101]}, timeout=60
            )
            for _ in range(12)
        ]
        until = time.monotonic() + 10
        while len(server.server_state.tasks) < 12 and time.monotonic() < until:
            time.sleep(0.005)
        server.should_exit = True
        assert [each.result().status_code for each in sent] == [200] * 12
    serving.join()


def test_a_body_of_just_the_limit_is_read(client):
    body = b'{"items": [100, 105]' + b" " * (20_000 - 21) + b"}"
    for content, status in ((body, 200), (body + b" ", 413)):
        answer = client.post("/rerank", content=content, headers={"content-type": "application/json"})
        assert (len(content), answer.status_code) == (len(content), status)
