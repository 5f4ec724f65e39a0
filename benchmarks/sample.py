"""Sampling: ``law.sample`` beside the plain loop a user would write, decoding included, in one run.

    ./run bench sample [--device cuda] [--only cyclic cost] [--out results/speed.jsonl]

The plain loop runs the whole network on every sample at every step, draws with ``torch.multinomial`` and
decodes with the paper's algorithm; eager float32, TF32 products allowed on a GPU. An autoregressive one runs
it on the prefix. Ours is ``sample`` as it is, under bfloat16 autocast on a GPU. Both encode the context in
every call. Rates are permutations per second, the best of several calls, taken in turn. The limit is that of
the operations that must be done (one evaluation less where all samples share the first), or of writing the
result, whichever is lower.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from benchmarks import paper, workloads
from benchmarks.limits import Memory, copy_rate, count, product_rate
from benchmarks.rows import merge, say, speed_parser, start, table
from benchmarks.timing import seconds
from benchmarks.workloads import Workload
from factorank.kernels import dispatch
from factorank.models import PermutationModel
from factorank.sampling.partitions import Blocks

WORKLOADS: dict[str, tuple[Workload, int | None]] = {
    "sample cyclic nfe=1": (replace(workloads.CYCLIC, batch=16_384), 1),
    "sample cyclic nfe=5": (replace(workloads.CYCLIC, batch=16_384), 5),
    "sample jigsaw 4x4 nfe=1": (replace(workloads.JIGSAW, batch=4096), 1),
    "sample autoregressive n=50": (replace(workloads.AUTOREGRESSIVE, batch=4096), None),
    "sample laptop": (replace(workloads.LAPTOP, batch=2000), 4),
    "sample laptop nfe=1": (replace(workloads.LAPTOP, batch=2000), 1),
}
COSTS = ("cost sample", "cost sample batch")


def main(argv: Sequence[str] | None = None) -> int:
    names = [*WORKLOADS, *COSTS]
    parser = speed_parser("sample", __doc__, names)
    parser.add_argument("--batch", type=int, help="permutations in a call, if other than each workload's own")
    options, where = start(parser, argv)
    device = options.device
    if options.only:
        names = [name for name in names if any(part in name for part in options.only)]
    elif device == "cuda":
        names = [name for name in names if "laptop" not in name]
    else:
        names = [name for name in names if "laptop" in name]
    rows: list[dict[str, Any]] = []
    for name in names:
        if name in COSTS:
            rows += costs(name, options)
            continue
        work, nfe = WORKLOADS[name]
        work = work.small() if options.quick else work
        work = work if options.batch is None else replace(work, batch=options.batch)
        rows.append(measure(name, work, nfe, options))
        say(rows[-1])
    rows = [{"experiment": "speed"} | row | where for row in rows]
    print(f"\nSampling on {where['device']}; a matrix product does {product_rate(device) / 1e12:.3g} Top/s")
    table(rows)
    merge(options.out, rows)
    return 0


def measure(name: str, work: Workload, nfe: int | None, options: argparse.Namespace) -> dict[str, Any]:
    """Permutations per second of a workload, ours and the plain loop's."""
    device, enough = options.device, 0.02 if options.quick else 0.25
    model = work.model(device).eval()
    contexts = work.contexts(work.batch, device)
    ours = our_call(model, contexts, work.batch, nfe, device)
    theirs = plain_call(model, contexts, work.batch, nfe)
    for call in (ours, theirs):
        assert valid(call()), name
    mine, other = float("inf"), float("inf")
    for _ in range(options.rounds):
        with torch.no_grad(), dispatch.plain(*dispatch.NETWORK):
            other = min(other, seconds(theirs, device, enough, least=2))
        mine = min(mine, seconds(ours, device, enough))
    with Memory(device) as memory:
        ours()
    return {
        "what": name,
        "ratio": other / mine,
        "ours": work.batch / mine,
        "peer": work.batch / other,
        "limit": limit(model, work, nfe, device),
        "unit": "permutations/s",
        "n": work.n,
        "batch": work.batch,
        "nfe": work.n if nfe is None else nfe,
        "width": work.width,
        "depth": work.depth,
        "code": work.code,
        "objective": work.objective,
        "precision": "bf16" if device == "cuda" else "fp32",
        "memory": memory.peak,
        "threads": torch.get_num_threads() if device == "cpu" else None,
    }


def valid(order: Tensor) -> bool:
    return bool((order.sort(-1).values == torch.arange(order.shape[-1], device=order.device)).all())


def our_call(
    model: PermutationModel, contexts: Any, samples: int, nfe: int | None, device: str
) -> Callable[[], Tensor]:
    """One call that draws ``samples`` orders: of one law, or one of each row of a context."""

    def call() -> Tensor:
        narrow = torch.autocast("cuda", torch.bfloat16) if device == "cuda" else nullcontext()
        with torch.no_grad(), narrow:
            if contexts is None:
                return law.sample((samples,))
            return model.distribution(contexts, nfe=nfe).sample()

    law: Any = model.distribution(nfe=nfe) if contexts is None else None
    return call


def plain_call(model: PermutationModel, contexts: Any, samples: int, nfe: int | None) -> Callable[[], Tensor]:
    """The same by the plain loop."""
    network, n, device = model.network, model.n, model.network.places.device
    decode = f"decode-{model.code.name}"

    def drawn(logits: Tensor) -> Tensor:
        return torch.multinomial(logits.softmax(-1).view(-1, n), 1).view(logits.shape[:-1])

    def masked() -> Tensor:
        encoded = None if contexts is None else _encoded(model, contexts)
        code = torch.full((samples, n), network.mask_value, device=device)
        place = torch.rand((samples, n), device=device).argsort(-1)  # when each position is revealed
        for step in range(nfe or n):
            start, stop = Blocks(nfe or n).bounds(n, step)
            values = drawn(network.head(network.hidden(code, encoded, None)))
            code = torch.where((place >= start) & (place < stop), values, code)
        return paper.transform(code, decode)

    def autoregressive() -> Tensor:
        code = torch.full((samples, 1), network.mask_value, device=device)
        for position in range(n):
            tokens = network.values(code) + network.places[: position + 1]
            hidden = network.transformer(tokens, causal=True)[:, -1:]
            at = torch.full((samples, 1), position, device=device)
            code = torch.cat([code, drawn(network.head(hidden, at))], 1)
        return paper.transform(code[:, 1:], decode)

    return autoregressive if model.causal else masked


def _encoded(model: PermutationModel, contexts: Any) -> Any:
    from factorank.models.context import encode_context

    return encode_context(model.context, contexts, model.n, model.width)


def limit(model: PermutationModel, work: Workload, nfe: int | None, device: str) -> float:
    """Permutations per second if nothing but the products that are needed, or the result, took time."""
    order, contexts = work.orders(2, device), work.contexts(2, device)

    def evaluate() -> None:
        encoded = None if contexts is None else _encoded(model, contexts)
        network = model.network
        network.head(
            network.causal_hidden(order, encoded) if model.causal else network.hidden(order, encoded, None)
        )

    with torch.no_grad(), dispatch.plain(*dispatch.NETWORK):
        each = count(evaluate) / 2
    evaluations = 1 if nfe is None else nfe - (contexts is None)
    writing = copy_rate(device) / (8 * work.n)
    return min(writing, product_rate(device) / (each * evaluations) if evaluations else writing)


def costs(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Permutations per second and memory, against n for one batch or against the batch for one n."""
    on_gpu = options.device == "cuda"
    if name == "cost sample":
        points = [(n, 4096 if on_gpu else 256, nfe) for nfe in (1, 4) for n in options.n]
    else:
        batches = workloads.BATCHES if on_gpu else workloads.BATCHES[:4]
        points = [(10, batch, nfe) for nfe in (1, 4) for batch in batches]
    models: dict[int, PermutationModel] = {}
    for n, batch, nfe in points:
        work = workloads.of_length(n)
        work = replace(work.small(), batch=batch) if options.quick else replace(work, batch=batch)
        model = models.setdefault(n, work.model(options.device).eval())
        call = our_call(model, None, batch, nfe, options.device)
        call()
        with Memory(options.device) as memory:
            call()
        took = seconds(call, options.device, 0.02 if options.quick else 0.15)
        row = {
            "what": name,
            "ratio": None,
            "ours": batch / took,
            "peer": None,
            "limit": limit(model, work, nfe, options.device),
            "unit": "permutations/s",
            "n": n,
            "batch": batch,
            "nfe": nfe,
            "width": work.width,
            "depth": work.depth,
            "code": work.code,
            "precision": "bf16" if on_gpu else "fp32",
            "memory": memory.peak,
        }
        say(row)
        yield row


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
