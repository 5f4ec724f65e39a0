"""Classical laws: sampling beside prefsampling and choix, Plackett-Luce fits beside choix, in one run.

    ./run bench classical [--n 10 50] [--skip-fits] [--out results/classical-speed.jsonl]

Ours draws 10,000 orders at a time. A peer draws fewer where that would take minutes; times are per order. The
peer of a fit is choix's ``ilsr_rankings``, the fastest of its solvers that take rankings, with its default
settings. (On the smaller set ``mm_rankings`` took three times as long, ``opt_rankings`` two hundred times.)
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import factorank as fr
from benchmarks.timing import seconds, show
from factorank.experiments.record import provenance, write_results

LENGTHS = (10, 50, 200)
DRAWS = 10_000
FITS = ((5_000, 10), (20_000, 50))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench classical", description=__doc__)
    parser.add_argument("--n", type=int, nargs="+", default=LENGTHS, help="lengths of the orders to sample")
    parser.add_argument("--skip-fits", action="store_true", help="sampling only")
    parser.add_argument("--out", default="runs/bench/classical.jsonl")
    options = parser.parse_args(argv)
    where = provenance(" ".join(["factorank bench classical", *(argv or ())]))
    rows = [row for n in options.n for row in sampling(n)]
    if not options.skip_fits:
        rows += [row for count, n in FITS for row in fits(count, n)]
    rows = [{"experiment": "classical-speed"} | row | where for row in rows]
    print(f"\nClassical laws on {where['device']}")
    _table(rows)
    write_results(options.out, rows)
    print(f"wrote {options.out}")
    return 0


def sampling(n: int) -> list[dict[str, Any]]:
    """Seconds per order drawn, ours and theirs."""
    import choix
    from prefsampling.ordinal import mallows, plackett_luce

    logits = torch.linspace(-1, 1, n)
    skills = logits.exp().tolist()
    few = max(DRAWS // max(n * n // 100, 1), 250)
    peers: list[tuple[str, str, Callable[[], Any], Callable[[], Any]]] = [
        (
            "Mallows",
            "prefsampling",
            lambda: fr.Mallows(torch.arange(n), 0.8).sample((DRAWS,)),
            lambda: mallows(few, n, 0.8, seed=0),
        ),
        (
            "Plackett-Luce",
            "prefsampling",
            lambda: fr.PlackettLuce(logits).sample((DRAWS,)),
            lambda: plackett_luce(few, n, skills, seed=0),
        ),
        (
            "Plackett-Luce",
            "choix",
            lambda: fr.PlackettLuce(logits).sample((DRAWS,)),
            lambda: choix.generate_rankings(logits.numpy(), few, size=n),
        ),
    ]
    rows = []
    for law, peer, ours, theirs in peers:
        mine = seconds(ours) / DRAWS
        other = seconds(theirs, enough=0.2, least=1) / few
        rows.append(_row(f"sample {law}", peer, n, mine, other, orders=DRAWS, peer_orders=few))
    return rows


def fits(count: int, n: int) -> list[dict[str, Any]]:
    """Seconds per Plackett-Luce fit, ours and choix's, and how far the logits are apart."""
    import choix

    truth = torch.randn(n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    votes = fr.PlackettLuce(truth).sample((count,), generator=torch.Generator().manual_seed(0))
    mine = seconds(lambda: fr.PlackettLuce.fit(votes))
    logits = fr.PlackettLuce.fit(votes).logits
    lists = votes.tolist()
    start = time.perf_counter()
    theirs = torch.from_numpy(choix.ilsr_rankings(n, lists))
    other = time.perf_counter() - start
    apart = float((theirs - theirs.mean() - logits).abs().max())
    return [_row(f"fit Plackett-Luce to {count:,}", "choix", n, mine, other, apart=apart)]


def _row(what: str, peer: str, n: int, ours: float, other: float, **more: Any) -> dict[str, Any]:
    row = {"what": what, "peer_name": peer, "n": n, "ours": ours, "peer": other, "ratio": other / ours}
    if sys.stderr.isatty():
        print(f"  {what}, n={n}, {peer}: {row['ratio']:.0f}×", file=sys.stderr)
    return row | more


def _table(rows: Sequence[dict[str, Any]]) -> None:
    body = []
    for row in rows:
        apart = f"{row['apart']:.0e}" if "apart" in row else "–"
        times = [_time(row["ours"]), _time(row["peer"]), f"{row['ratio']:.0f}×"]
        body.append([row["what"], row["peer_name"], str(row["n"]), *times, apart])
    show(["what", "peer", "n", "ours", "theirs", "ratio", "logits apart"], body)


def _time(value: float) -> str:
    """A time in a unit that leaves one to three digits before the point."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1 or not math.isfinite(value):
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
