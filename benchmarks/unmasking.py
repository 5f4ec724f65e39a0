"""Which order of unmasking and which sizes of blocks suit which code: cross-entropies of small models.

    python -m benchmarks.unmasking [--steps 1500] [--out results/unmasking.jsonl]

Two laws of n = 8 items. *Mallows mixture*: one of three Mallows laws (dispersion .4) around fixed orders.
*Tastes*, with a context: the items are eight of 40, each with two hidden qualities; a list is a Plackett-Luce
order by the first or by the second quality, and the context is the items. Both make the positions of every
code depend on one another. A masked model learns each, for each code. ``nats`` is the mean of -log p of fresh
orders at some number of evaluations; for random orders of revealing it is the bound over partitions. ``lost``
is what that exceeds the best of the same model at full NFE by, ``error`` its standard error.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import factorank as fr
from factorank.experiments.record import provenance, write_results
from factorank.models.unmasking import SCHEDULES, UNMASK

N, ITEMS = 8, 40
CODES = ("lehmer", "fisher-yates", "left-lehmer", "insertion")
LAWS = ("mallows mixture", "tastes")
NFE = (1, 2, 3, 4, 5, 7)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--tested", type=int, default=1000, help="fresh orders")
    parser.add_argument("--codes", nargs="+", default=CODES, choices=CODES)
    parser.add_argument("--laws", nargs="+", default=LAWS, choices=LAWS)
    parser.add_argument("--out", default=None, help="a results file to write")
    options = parser.parse_args(arguments)
    source = provenance("python -m benchmarks.unmasking " + " ".join(arguments))
    rows: list[dict[str, Any]] = []
    for law in options.laws:
        for code in options.codes:
            started = time.perf_counter()
            measured = list(measure(law, code, options))
            for row in measured:
                row |= {"experiment": "unmasking", "law": law, "code": code, "objective": "masked", "n": N}
                row |= {"steps": options.steps, **source, "seconds": time.perf_counter() - started}
                print(f"{law:16} {code:13} {row['unmask']:14} {row['schedule']:8} {row['nfe']}  "
                      f"{row['nats']:.3f}  {row['lost']:+.3f} ± {row['error']:.3f}", flush=True)  # fmt: skip
            rows += measured
            if options.out:
                write_results(options.out, rows)
    return 0


def measure(law: str, code: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train a model on a law, and score fresh orders at every NFE, way of unmasking and schedule."""
    torch.manual_seed(0)
    context = None if law == "mallows mixture" else fr.ItemContext(ITEMS, 64)
    model = fr.PermutationModel(N, code, width=64, depth=2, heads=4, context=context)
    fr.train(model, Source(law), steps=options.steps, batch_size=256, lr=2e-3, device="cpu")
    drawn = Source(law)(options.tested, torch.Generator().manual_seed(1))
    orders, items = (drawn, None) if isinstance(drawn, Tensor) else drawn
    values: dict[tuple[str, str, int], Tensor] = {}
    with torch.no_grad():
        for unmask in UNMASK:
            for nfe in NFE:
                for schedule in SCHEDULES if 1 < nfe < N - 1 else SCHEDULES[:1]:
                    asked = model.distribution(items, nfe=nfe, unmask=unmask, schedule=schedule)
                    generator = torch.Generator().manual_seed(2)
                    values[unmask, schedule, nfe] = -asked.log_prob_bound(
                        orders, samples=4, generator=generator
                    )
    best = min(
        (value for (_, _, nfe), value in values.items() if nfe == N - 1), key=lambda x: float(x.mean())
    )
    for (unmask, schedule, nfe), value in values.items():
        more = (value - best).double()
        yield {
            "unmask": unmask, "schedule": schedule, "nfe": nfe, "nats": float(value.mean()),
            "lost": float(more.mean()), "error": float(more.std() / len(more) ** 0.5),
        }  # fmt: skip


class Source:
    """Orders of a law, and their contexts where it has any: ``source(count, generator)``."""

    def __init__(self, law: str) -> None:
        generator = torch.Generator().manual_seed(0)
        self.law = law
        self.centres = fr.random_permutations(N, (3,), generator=generator)
        self.qualities = 2 * torch.randn(2, ITEMS, generator=generator)

    def __call__(self, count: int, generator: torch.Generator) -> Tensor | tuple[Tensor, Tensor]:
        if self.law == "mallows mixture":
            which = torch.randint(3, (count,), generator=generator)
            return fr.Mallows(self.centres[which], 0.4).sample(generator=generator)
        items = torch.rand(count, ITEMS, generator=generator).argsort(-1)[:, :N]
        which = torch.randint(2, (count, 1), generator=generator)
        return fr.PlackettLuce(self.qualities[which, items]).sample(generator=generator), items


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
