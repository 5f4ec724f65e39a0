"""The process of the service: a stop answers all that was sent; one core is left to reading and writing."""

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

pytest.importorskip("fastapi")
import torch

from factorank.rerank.service import create_app
from factorank.rerank.serving import Server, compute_threads, listen, settle

BODY = json.dumps({"items": [100, 101]}).encode()
HEAD = b"POST /rerank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
REQUEST = HEAD % len(BODY) + BODY


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def answer(connection):
    """The head and the body of an answer."""
    with connection.makefile("rb") as file:
        head = b"".join(iter(file.readline, b"\r\n")).lower()
        length = next(line for line in head.splitlines() if line.startswith(b"content-length"))
        return head, json.loads(file.read(int(length.split(b":")[1])))


async def started(ranker):
    server, sockets = Server(create_app(ranker)), listen("127.0.0.1", 0)
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=sockets)
    return server, sockets, sockets[0].getsockname()[1]


def test_a_stop_answers_connections_that_were_not_yet_accepted(masked):
    async def run():
        server, sockets, port = await started(masked)
        waiting = [connect(port) for _ in range(8)]  # the loop has no turn in between
        for each in waiting:
            each.sendall(REQUEST)
        stop = asyncio.create_task(server.shutdown(sockets))
        answers = await asyncio.gather(*(asyncio.to_thread(answer, each) for each in waiting))
        await stop
        for each in waiting:
            each.close()
        return answers

    for head, body in asyncio.run(run()):
        assert b" 200 " in head
        assert b"connection: close" in head
        assert len(body["items"]) == 2


def test_a_stop_answers_what_comes_on_connections_that_are_open(masked):
    async def run():
        server, sockets, port = await started(masked)
        used, fresh = connect(port), connect(port)
        used.sendall(REQUEST)
        first, _ = await asyncio.to_thread(answer, used)
        stop = asyncio.create_task(server.shutdown(sockets))
        while sockets[0].fileno() != -1:
            await asyncio.sleep(0)
        for each in (used, fresh):
            each.sendall(REQUEST)
        answers = [await asyncio.to_thread(answer, each) for each in (used, fresh)]
        await stop
        used.close()
        fresh.close()
        with pytest.raises(ConnectionRefusedError):
            connect(port)
        return first, answers

    first, answers = asyncio.run(run())
    assert b"connection: close" not in first
    for head, _ in answers:
        assert b" 200 " in head
        assert b"connection: close" in head


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_ends_with_the_code_of_its_signal(masked, tmp_path, number, code):
    masked.save(tmp_path / "run")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "factorank", "rerank", "serve", "run", "--port", str(port)]
    with subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.getcwd()}, stdout=subprocess.PIPE
    ) as process:
        try:
            process.stdout.readline()  # it listens
            with connect(port) as connection:
                connection.sendall(REQUEST)
                assert b" 200 " in answer(connection)[0]
                process.send_signal(number)
                assert process.wait(60) == code
        finally:
            process.kill()


def test_answers_do_not_wait_for_acknowledgements():
    (listener,) = listen("127.0.0.1", 0)
    with listener, connect(listener.getsockname()[1]), listener.accept()[0] as connection:
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_computation_leaves_a_core(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for cores, threads in ((1, 1), (2, 1), (8, 7)):
        monkeypatch.setattr(torch, "get_num_threads", lambda cores=cores: cores)
        assert compute_threads() == threads
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert compute_threads() == 8


def test_what_is_in_memory_before_the_first_request_is_not_looked_through_again(masked):
    try:
        settle(masked)
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()


def test_a_stop_without_connections_does_not_wait(masked):
    async def run():
        server = Server(create_app(masked), quiet=30.0)
        sockets = listen("127.0.0.1", 0)
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup(sockets=sockets)
        await asyncio.wait_for(server.shutdown(sockets), 20)

    asyncio.run(run())
