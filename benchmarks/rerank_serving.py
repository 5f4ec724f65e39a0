"""Re-ranking as a service: one request, batches, load, bad requests, a stop, a table of users, and a fit.

    ./run bench rerank_serving [--what request batch …] [--users 1000000] [--seconds 60] [--out FILE]
    ./run bench rerank_serving --what fit --data FOLDER [--out FILE]

A fit trains a ranker on real ratings by the defaults. For the other parts the ranker is the one that a CPU
trains by default (preset "small", lists of 50, ratings and taste), with random weights: the time does not
depend on them. A row holds the load of the machine before it was measured.
"""

import argparse
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from factorank.data.ratings import Ratings
from factorank.experiments.record import provenance, write_results
from factorank.rerank import Catalogue, Ranker, preset
from factorank.rerank.first_stage import FirstStage
from factorank.rerank.training import new_model

ITEMS, PORT = 3000, 8765
JSON = {"Content-Type": "application/json"}
Row = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench rerank_serving", description=__doc__)
    every = [name for name in PARTS if name != "fit"]
    parser.add_argument("--what", nargs="*", default=every, choices=list(PARTS))
    parser.add_argument("--data", help="the table of the fit, such as a folder of MovieLens-1M")
    parser.add_argument("--users", type=int, default=1_000_000, help="of the table")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the load over HTTP")
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second of the load")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", default="runs/bench/rerank-serving.jsonl")
    options = parser.parse_args(argv)
    if "fit" in options.what and not options.data:
        parser.error("--what fit takes --data")
    torch.set_num_threads(options.threads)
    where = provenance(" ".join(["factorank bench rerank_serving", *(argv or ())]))
    ranker, rows = new_ranker(), []
    for name in options.what:
        before = os.getloadavg()[0]
        measured = PARTS[name](ranker, options)
        rows.append(
            {"experiment": "rerank-serving", "what": name} | measured | {"load": round(before, 1)} | where
        )
        print(json.dumps({key: rows[-1][key] for key in ("what", *measured, "load")}), flush=True)
        write_results(options.out, rows)
    print(f"wrote {options.out}")
    return 0


def new_ranker(n: int = 50, items: int = ITEMS) -> Ranker:
    """The default ranker of a CPU, with random weights."""
    generator = torch.Generator().manual_seed(0)
    users = torch.arange(1000).repeat_interleave(60)
    chosen = torch.stack([torch.randperm(items, generator=generator)[:60] for _ in range(1000)]).flatten()
    values = torch.randint(1, 6, (len(users),), generator=generator).double()
    ratings = Ratings.from_rows(users.numpy(), chosen.numpy(), values.numpy())
    setting = preset("small", n=n, told="ratings", features=("mean", "factors", "taste"))
    model, features = new_model(setting, ratings)
    catalogue = Catalogue(ratings.ids, None, features.names, features.scales)
    stage = FirstStage.fit(ratings)
    gains = torch.linspace(31, 1, n)
    return Ranker(model.eval(), catalogue, gains, setting, rating_range=(1.0, 5.0), first_stage=stage)


def requests(
    ranker: Ranker, count: int, length: int = 50, observed: int = 10
) -> list[tuple[list[int], dict[int, int]]]:
    """Lists of random items, of which some are rated."""
    draw, ids = random.Random(1), list(ranker.catalogue.ids)
    lists = [draw.sample(ids, length) for _ in range(count)]
    return [(items, {item: draw.randint(1, 5) for item in items[:observed]}) for items in lists]


def one_request(ranker: Ranker, _: Any) -> Row:
    """Milliseconds of one request of 50 items, 10 of them rated."""
    asked = requests(ranker, 1020)
    for items, observed in asked[:20]:
        ranker.rerank(items, observed)
    times, used = [], time.process_time()
    for items, observed in asked[20:]:
        started = time.perf_counter()
        ranker.rerank(items, observed)
        times.append(1e3 * (time.perf_counter() - started))
    used = 1e3 * (time.process_time() - used) / len(times)
    return {
        "n": 50,
        "r": 10,
        "requests": len(times),
        "limit_p50": 10.0,
        "limit_p99": 25.0,
        "cpu_ms": used,
    } | spread(times)


def batch(ranker: Ranker, options: Any) -> Row:
    """Users a second, from lists and ratings to answers."""
    asked = requests(ranker, 4096)
    items, observed = [pair[0] for pair in asked], [pair[1] for pair in asked]
    ranker.rerank(items[:256], observed[:256])
    started, used = time.perf_counter(), time.process_time()
    ranker.rerank(items, observed)
    seconds, used = time.perf_counter() - started, time.process_time() - used
    rates = {"users_per_second": len(items) / seconds, "users_per_cpu_second": len(items) / used}
    return {"n": 50, "r": 10, "users": len(items), "threads": options.threads, "limit": 1000} | rates


def service(ranker: Ranker, options: Any) -> Row:
    """Requests at a steady rate over HTTP: milliseconds from the moment each was due."""
    with tempfile.TemporaryDirectory() as folder, Server(ranker, folder) as server:
        bodies = [body(*asked) for asked in requests(ranker, 500)]
        times, faults = load(server.url, bodies, options.rate, options.seconds)
    about = {"n": 50, "r": 10, "rate": options.rate, "seconds": options.seconds, "limit_p99": 100.0}
    return about | {"requests": len(times) + len(faults), "errors": len(faults)} | spread(times)


def bad_requests(ranker: Ranker, options: Any) -> Row:
    """10,000 requests that are wrong in many ways: each has a status from 400 on, and a good one follows."""
    import httpx

    draw = random.Random(2)
    wrong: list[Callable[[], Any]] = [
        lambda: b"{" + draw.randbytes(40),
        lambda: {"items": [draw.choice(["nobody", -5, 10**9, 1.5, None, [], {}])]},
        lambda: {"items": [1, 1]},
        lambda: {"items": list(range(draw.randint(501, 900)))},
        lambda: {"items": [1], "k": draw.randint(-5, 0)},
        lambda: {"items": [1], "observed": {"1": draw.choice([9, -1, "x", 1e308])}},
        lambda: {"items": [1, 2], "pinned": {"1": draw.randint(2, 99)}},
        lambda: {"what": draw.randint(0, 9)},
        lambda: {"items": ["x" * 2_000_000]} if draw.random() < 0.01 else {},
        list,
    ]
    good = body(*requests(ranker, 1)[0])
    with tempfile.TemporaryDirectory() as folder, Server(ranker, folder) as server:
        refused = answered = failed = 0
        with httpx.Client(timeout=60) as client:
            for number in range(10_000):
                made = wrong[number % len(wrong)]()
                data = made if isinstance(made, bytes) else json.dumps(made).encode()
                status = client.post(f"{server.url}/rerank", content=data, headers=JSON).status_code
                refused += 400 <= status < 500
                failed += status >= 500 or status < 400
                if number % 1000 == 999:
                    answered += (
                        client.post(f"{server.url}/rerank", content=good, headers=JSON).status_code == 200
                    )
    return {
        "requests": 10_000,
        "refused": refused,
        "not_refused": failed,
        "good_after": answered,
        "good_sent": 10,
    }


def stopped(ranker: Ranker, options: Any) -> Row:
    """A stop while requests are under way: every one that the service accepted has its answer."""
    import httpx

    good = body(*requests(ranker, 1)[0])
    with tempfile.TemporaryDirectory() as folder, Server(ranker, folder) as server:
        outcomes: list[str] = []

        def ask() -> None:
            try:
                status = httpx.post(
                    f"{server.url}/rerank", content=good, headers=JSON, timeout=60
                ).status_code
                outcomes.append("answered" if status == 200 else f"status {status}")
            except httpx.ConnectError:
                outcomes.append("not accepted")
            except httpx.HTTPError as error:
                outcomes.append(f"lost: {type(error).__name__}")

        threads = [threading.Thread(target=ask) for _ in range(200)]
        for number, thread in enumerate(threads):
            thread.start()
            if number == 100:
                server.process.send_signal(signal.SIGINT)
        for thread in threads:
            thread.join()
        code = server.process.wait(60)
    kinds = {"answered": "answered", "not_accepted": "not accepted", "refused": "status", "lost": "lost"}
    counts = {name: sum(x.startswith(start) for x in outcomes) for name, start in kinds.items()}
    return {"requests": len(outcomes)} | counts | {"exit": code}


def table(ranker: Ranker, options: Any) -> Row:
    """Lists of 10 items for a table of users, by the command, killed once on the way and run again."""
    import polars

    small = new_ranker(10)
    with tempfile.TemporaryDirectory() as folder:
        run, users, out = (str(Path(folder) / name) for name in ("run", "users.parquet", "answers"))
        small.save(run)
        generator = torch.Generator().manual_seed(3)
        first = torch.randint(0, ITEMS - 40, (options.users,), generator=generator)
        ids = torch.tensor(list(small.catalogue.ids))
        lists = ids[first[:, None] + torch.arange(0, 40, 4)]
        frame = {
            "user": torch.arange(options.users).numpy(),
            "items": lists.numpy(),
            "observed": lists[:, 5:8].numpy(),
        }
        schema = {"items": polars.List(polars.Int64), "observed": polars.List(polars.Int64)}
        polars.DataFrame(frame).cast(schema).write_parquet(users, row_group_size=65_536)
        command = [
            sys.executable,
            "-m",
            "factorank",
            "rerank",
            "predict",
            run,
            "--users",
            users,
            "--out",
            out,
        ]
        started, done, memory = time.perf_counter(), [], []  # memory begins anew after the kill
        for stop_at in (options.users // 3, None):
            process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
            assert process.stderr is not None
            for line in process.stderr:
                count = int(line.split(" of ")[0].replace(",", ""))
                done.append((time.perf_counter() - started, count))
                memory.append(resident(process.pid))
                if stop_at is not None and count >= stop_at:
                    process.kill()
                    stop_at = 10**12
            process.wait()
        seconds = time.perf_counter() - started
        answers = polars.scan_parquet(f"{out}/part-*.parquet").select("user", "error").collect()
        whole = sorted(answers["user"].to_list()) == list(range(options.users))
    half = len(done) // 2
    rates = [
        (part[-1][1] - part[0][1]) / (part[-1][0] - part[0][0])
        for part in (done[half // 4 : half], done[half:])
    ]
    return {
        "n": 10,
        "r": 3,
        "users": options.users,
        "seconds": seconds,
        "users_per_second": options.users / seconds,
        "rate_first_half": rates[0],
        "rate_second_half": rates[1],
        "killed": True,
        "each_user_once": whole,
        "errors": len(answers) - answers["error"].null_count(),
        "memory_mb": [round(memory[i * (len(memory) - 1) // 12]) for i in range(13)],
    }


def fit(_: Ranker, options: Any) -> Row:
    """A ranker by the defaults: seconds of the whole command, and what it ends by saying."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "factorank", "rerank", "fit", options.data, "--out", f"{folder}/run"]
        started = time.perf_counter()
        ended = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - started
    lines = ended.stdout.splitlines()
    cells = [line.split() for line in lines if line.lstrip()[:1].isdigit() and len(line.split()) == 5]
    leads = [
        {"n": int(n), "r": int(r), "baseline": name, "lead": float(lead), "lead_se": float(error)}
        for n, r, name, lead, error in cells
    ]
    about = {"data": Path(options.data).name, "seconds": seconds, "limit": 600, "exit": ended.returncode}
    return about | {"leads": leads, "ends": lines[-1] if lines else ended.stderr[-200:]}


class Server:
    """``factorank rerank serve`` of a ranker in a process of its own."""

    def __init__(self, ranker: Ranker, folder: str) -> None:
        ranker.save(folder)
        self.url, self.folder = f"http://127.0.0.1:{PORT}", folder

    def __enter__(self) -> "Server":
        import httpx

        command = [sys.executable, "-m", "factorank", "rerank", "serve", self.folder, "--port", str(PORT)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # threads by its own default
        for _ in range(600):
            try:
                httpx.get(f"{self.url}/health", timeout=5)
                break
            except httpx.HTTPError:
                time.sleep(0.2)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)


def load(url: str, bodies: list[bytes], rate: float, seconds: float) -> tuple[list[float], list[str]]:
    """Post bodies at a steady rate; milliseconds of those answered, and what went wrong with the others."""
    import asyncio

    import httpx

    times: list[float] = []
    faults: list[str] = []

    async def ask(client: httpx.AsyncClient, data: bytes, due: float) -> None:
        try:
            answer = await client.post(f"{url}/rerank", content=data, headers=JSON)
            if answer.status_code == 200:
                times.append(1e3 * (time.perf_counter() - due))
            else:
                faults.append(str(answer.status_code))
        except httpx.HTTPError as error:
            faults.append(type(error).__name__)

    async def run() -> None:
        limits = httpx.Limits(max_connections=256, max_keepalive_connections=256)
        async with httpx.AsyncClient(timeout=30, limits=limits) as client:
            await asyncio.gather(
                *(ask(client, bodies[i % len(bodies)], time.perf_counter()) for i in range(50))
            )
            times.clear()
            gc.collect()
            gc.freeze()  # a pause of the client is none of the service
            started, tasks = time.perf_counter(), []
            for number in range(int(rate * seconds)):
                due = started + number / rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                tasks.append(asyncio.create_task(ask(client, bodies[number % len(bodies)], due)))
            await asyncio.gather(*tasks)

    asyncio.run(run())
    return times, faults


def body(items: list[int], observed: dict[int, int]) -> bytes:
    return json.dumps(
        {"items": items, "observed": {str(item): rating for item, rating in observed.items()}}
    ).encode()


def spread(times: list[float]) -> Row:
    """The median and the 99th percentile of milliseconds."""
    ordered = sorted(times)
    return (
        {"p50": ordered[len(ordered) // 2], "p99": ordered[int(0.99 * len(ordered))], "longest": ordered[-1]}
        if ordered
        else {}
    )


def resident(pid: int) -> float:
    """The memory of a process in megabytes, 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), 0.0)


PARTS: dict[str, Callable[[Ranker, Any], Row]] = {
    "request": one_request,
    "batch": batch,
    "service": service,
    "bad": bad_requests,
    "stop": stopped,
    "table": table,
    "fit": fit,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
