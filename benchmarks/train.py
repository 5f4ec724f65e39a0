"""Training: ``fr.train`` beside the plain loop a user would write, in one run.

    ./run bench train [--device cuda] [--only cyclic rerank] [--compile both] [--out results/speed.jsonl]

The plain loop has the same network, the library's attention, eager float32 (TF32 products allowed on a GPU),
torch's AdamW and one batch that lies on the device already; it neither clips nor averages. Ours is a run of
``fr.train`` with its defaults, in bfloat16 on a GPU: rows drawn, clipping and average included, the rate as
its own ``metrics.jsonl`` has it in windows of 50 steps or more (for the costs against n of fewer, the larger
n). Both are the best of several windows, taken in turn. What the first steps cost (compilation, capture) is
in a column of its own. The limit is the number of operations of a plain step over the rate of a large matrix
product in the same run.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import factorank as fr
from benchmarks import workloads
from benchmarks.limits import Memory, count, product_rate
from benchmarks.rows import merge, say, speed_parser, start, table
from benchmarks.workloads import Workload
from factorank.kernels import dispatch
from factorank.training.settings import Precision

WORKLOADS = {
    "train cyclic": workloads.CYCLIC,
    "train jigsaw 4x4": workloads.JIGSAW,
    "train rerank n=50": workloads.RERANK,
}
COST = "cost train"


def main(argv: Sequence[str] | None = None) -> int:
    parser = speed_parser("train", __doc__, [*WORKLOADS, COST])
    parser.add_argument("--compile", choices=("no", "yes", "both"), help="both where a GPU is, no elsewhere")
    parser.add_argument("--precision", choices=("fp32", "bf16"), help="bf16 on a GPU, fp32 elsewhere")
    options, where = start(parser, argv)
    device = options.device
    rows: list[dict[str, Any]] = []
    names = chosen(options.only, device)
    if not names:
        parser.error("these workloads are made for a GPU: name those to measure on a CPU by --only")
    for name in names:
        if name == COST:
            rows += costs(options)
            continue
        work = WORKLOADS[name].small() if options.quick else WORKLOADS[name]
        rows.append(measure(name, work, options))
        say(rows[-1])
    rows = [{"experiment": "speed"} | row | where for row in rows]
    print(f"\nTraining on {where['device']}; a matrix product does {product_rate(device) / 1e12:.3g} Top/s")
    table(rows)
    merge(options.out, rows)
    return 0


def chosen(only: Sequence[str] | None, device: str) -> list[str]:
    """The workloads to measure: those named by ``only``, else all of them on a GPU."""
    names = [*WORKLOADS, COST]
    if only:
        return [name for name in names if any(part in name for part in only)]
    return names if device == "cuda" else []


def measure(name: str, work: Workload, options: argparse.Namespace) -> dict[str, Any]:
    """Steps per second of a workload, ours and the plain loop's."""
    device = options.device
    plain_step = plain_loop(work, device)
    limit = product_rate(device) / (operations_of_row(work, device) * work.batch)
    ways = {"no": [False], "yes": [True], "both": [False, True]}
    peer, best, runs = 0.0, 0.0, []
    for turn in range(options.rounds):
        peer = max(peer, plain_rate(plain_step, device, options.quick))
        # Compiling takes long; a captured graph gives the same rate in every run.
        for compiled in ways[options.compile or ("both" if device == "cuda" else "no")]:
            if turn == 0 or device != "cuda":
                runs.append(our_run(work, options, compiled))
    best_run = max(runs, key=lambda run: run["rate"])
    best = best_run["rate"]
    return {
        "what": name,
        "ratio": best / peer,
        "ours": best,
        "peer": peer,
        "limit": limit,
        "unit": "steps/s",
        "n": work.n,
        "batch": work.batch,
        "width": work.width,
        "depth": work.depth,
        "code": work.code,
        "objective": work.objective,
        "precision": _precision(options),
        "compile": best_run["compile"],
        "setup_seconds": round(best_run["setup"], 2),
        "rate_eager": max((run["rate"] for run in runs if not run["compile"]), default=None),
        "rate_compiled": max((run["rate"] for run in runs if run["compile"]), default=None),
        "memory": best_run["memory"],
        "threads": torch.get_num_threads() if device == "cpu" else None,
    }


def plain_loop(work: Workload, device: str) -> Callable[[], None]:
    """One step of the plain loop, on one batch that lies on the device."""
    model = work.model(device).train()
    model.padded = False
    orders, contexts = work.orders(work.batch, device), work.contexts(work.batch, device)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        loss = model.loss(orders, contexts).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def operations_of_row(work: Workload, device: str) -> float:
    """Operations of a training step for each row of its batch: counted on two, so that it takes no memory."""
    step = plain_loop(replace(work, batch=2), device)
    with dispatch.plain(*dispatch.NETWORK):
        return count(step) / 2


def plain_rate(step: Callable[[], None], device: str, quick: bool) -> float:
    """The best rate of several windows, each of a quarter of a second or more."""
    with dispatch.plain(*dispatch.NETWORK):
        for _ in range(3):
            step()
        many, best = 1, 0.0
        while (took := _window(step, many, device)) < (0.02 if quick else 0.25):
            many = max(many + 1, int(many * 0.3 / took))
        for _ in range(1 if quick else 3):
            best = max(best, many / _window(step, many, device))
    return max(best, many / took)


def _window(step: Callable[[], None], many: int, device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(many):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def our_run(
    work: Workload, options: argparse.Namespace, compiled: bool, window: int | None = None
) -> dict[str, Any]:
    """A run of ``fr.train``: the best rate after the first two windows, and what came before them."""
    window, windows = (window or 50, 8) if options.device == "cpu" else (window or 100, 12)
    if options.quick:
        window, windows = 2, 3
    model = work.model(options.device)
    rows = min(16 * work.batch, max(2**14, work.batch))
    data = work.data(rows, options.device)
    with tempfile.TemporaryDirectory() as folder, Memory(options.device) as memory:
        result = fr.train(
            model,
            data,
            steps=window * windows,
            batch_size=work.batch,
            precision=_precision(options),
            compile=compiled,
            device=options.device,
            out=folder,
            log_every=window,
            checkpoint_seconds=None,
            progress=False,
        )
        lines = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
    rates = [line["rate"] for line in lines if "rate" in line]
    rate = max(rates[2:])
    setup = result.seconds - result.steps / sorted(rates[1:])[len(rates[1:]) // 2]
    return {"rate": rate, "setup": setup, "compile": compiled, "memory": memory.peak}


def _precision(options: argparse.Namespace) -> Precision:
    return options.precision or ("bf16" if options.device == "cuda" else "fp32")


def costs(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Permutations per second in training, and the memory, against n."""
    for n in options.n:
        work = workloads.of_length(n)
        batch = max(16, min(1024, 2**17 // n if options.device == "cuda" else 2**12 // n))
        work = replace(work, batch=batch)
        work = work.small() if options.quick else work
        limit = product_rate(options.device) / operations_of_row(work, options.device)
        try:
            run = our_run(work, options, False, window=max(5, 1000 // n))
        except torch.OutOfMemoryError as error:
            print(f"  {COST} n={n}: out of memory; {' '.join(getattr(error, '__notes__', ()))}")
            continue
        row = {
            "what": COST,
            "ratio": None,
            "ours": run["rate"] * work.batch,
            "peer": None,
            "limit": limit,
            "unit": "permutations/s",
            "n": n,
            "batch": work.batch,
            "width": work.width,
            "depth": work.depth,
            "code": work.code,
            "precision": _precision(options),
            "setup_seconds": round(run["setup"], 2),
            "memory": run["memory"],
        }
        say(row)
        yield row


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
