"""Where the time of a training step goes: each kind of kernel beside what the machine can do at best.

    ./run bench roofline [--device cuda] [--only cyclic] [--compile] [--out results/roofline.jsonl]

Steps of ``fr.train`` after its first ones are profiled as they run, captured graphs included. Operations are
counted on the plain network; bytes are the least that a kind must move if every tensor is read and written
once, where that can be counted. The share of the limit is the larger of operations over the rate of a large
matrix product and bytes over the rate of a large copy, both measured in the same run, over the time taken.
"""

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import factorank as fr
from benchmarks import workloads
from benchmarks.limits import copy_rate, operations, product_rate
from benchmarks.rows import merge
from benchmarks.timing import show
from benchmarks.train import plain_loop
from benchmarks.workloads import Workload
from factorank.experiments.record import provenance
from factorank.kernels import dispatch
from factorank.training.step import Step

WORKLOADS = {
    "step cyclic": workloads.CYCLIC,
    "step jigsaw 4x4": workloads.JIGSAW,
    "step jigsaw 6x6": workloads.JIGSAW_LARGE,
    "step rerank n=50": workloads.RERANK,
    "step laptop": workloads.LAPTOP,
}
PRODUCTS, ATTENTION, ELEMENTWISE = "matrix products", "attention", "norms and elementwise"
UPDATE, DRAW, OTHER = "update", "draw, encode, mask", "other"
KINDS = (
    (ATTENTION, r"flash|fmha|attention|sdpa"),
    (PRODUCTS, r"^up_gelu$|^add_to_stream$|^gelu_backward$|^norm_backward$"),
    (PRODUCTS, r"gemm|cutlass|nvjet|xmma|cublas|splitK"),
    (PRODUCTS, r"^aten::(addmm|mm|bmm|linear|matmul)|triton_(tem|mm)|factorank::blocks"),
    (UPDATE, r"^_sum_squares$|^_change$|multi_tensor|adam|_foreach|aten::(norm|linalg_vector_norm)|lpnorm"),
    (DRAW, r"walk_|distribution|philox|random|rand|sort|bitonic|gather|scatter|index|embedding|arange"),
    (DRAW, r"factorank::transform|searchsorted|scan"),
    (
        ELEMENTWISE,
        r"^norm$|^dropout_backward$|layer_?norm|elementwise|vectorized|reduce|softmax|triton_|gelu",
    ),
    (ELEMENTWISE, r"^aten::(add|sub|mul|div|sum|where|masked_fill|native_|_log_softmax|neg|clamp|le|lt|ge)"),
)
"""The first pattern that a kernel's name (on the CPU an operator's) matches tells its kind."""
ORDER = (PRODUCTS, ATTENTION, ELEMENTWISE, UPDATE, DRAW, OTHER)


def kind_of(name: str) -> str:
    """The kind of a kernel.

    >>> kind_of("gelu_backward"), kind_of("void at::native::vectorized_elementwise_kernel<4>")
    ('matrix products', 'norms and elementwise')
    """
    return next((kind for kind, pattern in KINDS if re.search(pattern, name, re.IGNORECASE)), OTHER)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench roofline", description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="+", help=f"parts of the names of {', '.join(WORKLOADS)}")
    parser.add_argument("--compile", action="store_true", help="pass the loss through torch.compile")
    parser.add_argument("--steps", type=int, default=20, help="steps to profile")
    parser.add_argument("--kernels", type=int, default=0, help="also list that many of the longest kernels")
    parser.add_argument("--quick", action="store_true", help="tiny networks: does everything run?")
    parser.add_argument("--out", default="runs/bench/roofline.jsonl", help="rows of other devices are kept")
    options = parser.parse_args(argv)
    torch.set_float32_matmul_precision("high")
    where = provenance(" ".join(["factorank bench roofline", *(argv or ())]))
    names = [name for name in WORKLOADS if ("laptop" in name) != (options.device == "cuda")]
    if options.only:
        names = [name for name in WORKLOADS if any(part in name for part in options.only)]
    rows = []
    for name in names:
        work = WORKLOADS[name].small() if options.quick else WORKLOADS[name]
        profiled = profiled_steps(work, options)
        measured = parts(work, profiled, options.device)
        _table(name, work, measured)
        if options.kernels:
            _kernels(profiled, options.kernels)
        same = {"experiment": "roofline", "what": name}
        rows += [same | row | {"compile": options.compile} | where for row in measured]
    merge(options.out, rows, figure=False)
    return 0


@dataclass
class Profile:
    """Some steps as they ran: seconds and launches by kernel, and the time on the clock."""

    steps: int
    wall: float = 0.0
    kernels: dict[str, tuple[float, int]] = field(default_factory=dict)


def profiled_steps(work: Workload, options: argparse.Namespace) -> Profile:
    """Profile steps of a run of ``fr.train``."""
    first = 4 if options.quick else 30
    steps = 3 if options.quick else options.steps
    on_gpu = options.device == "cuda"
    with tempfile.TemporaryDirectory() as folder, profiling(first, steps, options.device) as profiled:
        fr.train(
            work.model(options.device),
            work.data(16 * work.batch, options.device),
            steps=first + 2 * steps + 1,
            batch_size=work.batch,
            precision="bf16" if on_gpu else "fp32",
            compile=options.compile,
            device=options.device,
            out=folder,
            log_every=10_000,
            checkpoint_seconds=None,
            progress=False,
        )
    return profiled


@contextmanager
def profiling(first: int, steps: int, device: str) -> Iterator[Profile]:
    """Time ``steps`` steps of the next run from step ``first`` on, then profile as many: the profiler itself
    takes time, so that the clock is read without it."""
    profiled, run = Profile(steps), Step.run
    activity = ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU
    profiler = profile(activities=[activity])
    state = {"step": 0, "started": 0.0}

    def wait() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def step(self: Step, number: int, lr: float) -> None:
        if state["step"] == first:
            state["started"] = wait()
        if state["step"] == first + steps:
            profiled.wall = wait() - state["started"]
            profiler.start()
        if state["step"] == first + 2 * steps:
            wait()
            profiler.stop()
        state["step"] += 1
        run(self, number, lr)

    Step.run = step  # type: ignore[method-assign,assignment]
    try:
        yield profiled
    finally:
        Step.run = run  # type: ignore[method-assign]
    on_device = DeviceType.CUDA if device == "cuda" else DeviceType.CPU
    for event in profiler.events() or ():
        if event.device_type != on_device or getattr(event, "is_user_annotation", False):
            continue
        took = event.time_range.elapsed_us() if device == "cuda" else event.self_cpu_time_total
        before, launches = profiled.kernels.get(event.name, (0.0, 0))
        profiled.kernels[event.name] = before + took / 1e6, launches + 1


def parts(work: Workload, profiled: Profile, device: str) -> list[dict[str, Any]]:
    """A row for each kind of kernel and one for the whole step; times and counts of one step."""
    step = plain_loop(replace(work, batch=2), device)
    with dispatch.plain(*dispatch.NETWORK):
        counted = operations(step)
    scale = work.batch / 2
    done: dict[str, float] = {
        PRODUCTS: counted["products"] * scale,
        ATTENTION: counted["attention"] * scale,
    }
    moved = least_bytes(work, 2 if device == "cuda" else 4)
    totals = dict.fromkeys(ORDER, (0.0, 0))
    for name, (took, launches) in profiled.kernels.items():
        before, count = totals[kind_of(name)]
        totals[kind_of(name)] = before + took / profiled.steps, count + launches
    busy = sum(took for took, _ in totals.values())
    rows = []
    for kind, (took, launches) in totals.items():
        rows.append(_row(kind, took, launches / profiled.steps, done.get(kind), moved.get(kind), device))
    whole = _row("whole step", profiled.wall / profiled.steps, 0, sum(done.values()), None, device)
    whole["launches"] = sum(row["launches"] for row in rows)
    whole["busy"] = busy
    return [*(row | {"n": work.n, "batch": work.batch} for row in (*rows, whole))]


def _row(
    kind: str, took: float, launches: float, done: float | None, moved: float | None, device: str
) -> dict[str, Any]:
    best = max((done or 0.0) / product_rate(device), (moved or 0.0) / copy_rate(device))
    return {
        "kind": kind,
        "seconds": took,
        "launches": launches,
        "operations": done,
        "bytes": moved,
        "limit": best or None,
        "share_of_limit": best / took if best and took else None,
    }


def least_bytes(work: Workload, size: int) -> dict[str, float]:
    """Bytes of one step by kind, every tensor of ``size`` bytes a number read and written once.

    A product of a block (forward, then one for each of its two gradients) reads two of input, weight and
    output and writes the third. Attention reads qkv and writes the mixture, then reads both and the gradient
    and writes that of qkv. The update reads and writes weights, both moments and the average, and reads the
    gradients twice, in float32.
    """
    tokens, width = work.batch * work.n, work.width
    shapes = ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
    products = sum(3 * (tokens * (a + b) + a * b) for a, b in shapes) * work.depth * size
    attention = (3 + 1 + 3 + 1 + 3) * tokens * width * work.depth * size
    weights = sum(weight.numel() for weight in work.model("cpu").parameters())
    return {PRODUCTS: float(products), ATTENTION: float(attention), UPDATE: 10.0 * 4 * weights}


def _table(name: str, work: Workload, rows: list[dict[str, Any]]) -> None:
    whole = rows[-1]["seconds"]
    print(f"\n{name}: n = {work.n}, {work.width} × {work.depth}, batch {work.batch}, one step")
    body = []
    for row in rows:
        took = row["seconds"]
        share = "–" if row["share_of_limit"] is None else f"{100 * row['share_of_limit']:.0f}%"
        numbers = [
            f"{row['launches']:.0f}",
            f"{1e6 * took:.0f}",
            f"{100 * took / whole:.0f}%" if whole else "–",
        ]
        scaled = ["–" if row[key] is None else f"{row[key] / 1e9:.3g}" for key in ("operations", "bytes")]
        body.append([row["kind"], *numbers, *scaled, share])
    show(["kind", "launches", "µs", "of step", "Gop", "GB", "of limit"], body)
    print(f"the device is at work for {100 * rows[-1]['busy'] / whole:.0f}% of the step" if whole else "")


def _kernels(profiled: Profile, most: int) -> None:
    longest = sorted(profiled.kernels.items(), key=lambda item: -item[1][0])[:most]
    for name, (took, launches) in longest:
        each = f"{1e6 * took / profiled.steps:9.1f} µs {launches / profiled.steps:6.1f} ×"
        print(f"  {each} {kind_of(name)}: {name[:70]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
