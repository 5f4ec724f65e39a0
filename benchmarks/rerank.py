"""Re-ranking: how long the default ranker takes for many users, and exact places beside sampled ones.

    ./run bench rerank [--users 10000] [--n 50] [--observed 10] [--threads 2] [--out FILE]

The weights are random: the time does not depend on them.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.timing import show
from factorank.data.ratings import Ratings
from factorank.experiments.record import provenance, write_results
from factorank.rerank import Catalogue, Lists, Ranker, preset
from factorank.rerank.lists import list_reference
from factorank.rerank.place_probabilities import list_law
from factorank.rerank.training import new_model

ITEMS = 1000


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench rerank", description=__doc__)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--n", type=int, default=50, help="items in a list")
    parser.add_argument("--observed", type=int, default=10, help="how many of them are observed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", default="runs/bench/rerank.jsonl")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    where = provenance(" ".join(["factorank bench rerank", *(argv or ())]))
    rows = [answers(options.users, options.n, options.observed), places(options.n, options.observed)]
    rows = [{"experiment": "rerank-speed"} | row | where for row in rows]
    print(f"\nRe-ranking on {where['device']}")
    show(
        ["what", "n", "users", "seconds", "largest difference"],
        [
            [row["what"], str(row["n"]), f"{row['users']:,}", f"{row['seconds']:.2f}", _difference(row)]
            for row in rows
        ],
    )
    write_results(options.out, rows)
    print(f"wrote {options.out}")
    return 0


def new_ranker(n: int) -> Ranker:
    """The default ranker of a thousand items with random weights."""
    generator = torch.Generator().manual_seed(0)
    users = torch.arange(ITEMS).repeat_interleave(60).tolist()
    items = torch.stack([torch.randperm(ITEMS, generator=generator)[:60] for _ in range(ITEMS)])
    values = torch.randint(1, 6, (len(users),), generator=generator).tolist()
    ratings = Ratings.from_rows(users, items.flatten().tolist(), [float(value) for value in values])
    setting = preset("default", n=n)
    model, features = new_model(setting, ratings)
    catalogue = Catalogue(ratings.ids, None, features.names)
    return Ranker(model.eval(), catalogue, torch.linspace(31, 1, n), setting)


def drawn_lists(ids: Sequence[Any], users: int, n: int, r: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random lists ``(users, n)`` of ids, of which the first r are observed, in another order."""
    generator = torch.Generator().manual_seed(1)
    chosen = torch.rand((users, ITEMS), generator=generator).topk(n).indices
    items = torch.tensor(list(ids))[chosen]
    return items, items[:, :r].flip(-1)


def answers(users: int, n: int, r: int) -> dict[str, Any]:
    """Seconds from ids to answers, and whether every answer keeps the observed order."""
    ranker = new_ranker(n)
    items, observed = drawn_lists(ranker.catalogue.ids, users, n, r)
    ranker.rerank(items[:100], observed[:100])
    start = time.perf_counter()
    answer = ranker.rerank(items, observed)
    seconds = time.perf_counter() - start
    place = answer.order.argsort(-1)  # of each item of the list; the observed ones stand first in it
    kept = bool((place[:, :r].flip(-1).diff() > 0).all())
    if not kept:
        raise AssertionError("an answer does not keep the observed order")
    parameters = sum(p.numel() for p in ranker.model.parameters()) - ITEMS * ranker.model.width
    return {
        "what": "rerank, 1 NFE",
        "n": n,
        "r": r,
        "users": users,
        "seconds": seconds,
        "limit": 15.0,
        "parameters": parameters,
        "threads": torch.get_num_threads(),
    }


def places(n: int, r: int, users: int = 1000, samples: int = 64) -> dict[str, Any]:
    """The probabilities of places by recursion beside those of 64 samples: seconds of each, and the largest
    error of the sampled probability of the top 10."""
    ranker = new_ranker(n)
    chosen = torch.rand((users, ITEMS), generator=torch.Generator().manual_seed(1)).topk(n).indices
    lists = Lists(chosen, torch.arange(r).flip(-1).expand(users, r))
    reference = list_reference(lists, torch.rand(n, generator=torch.Generator().manual_seed(2)))
    law = list_law(ranker.model, lists, reference)
    start = time.perf_counter()
    exact = law.marginals()
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    drawn = law.sample((samples,), generator=torch.Generator().manual_seed(3))
    top = torch.zeros(users, n).scatter_add_(
        -1, drawn[..., :10].movedim(0, 1).reshape(users, -1), torch.ones(users, samples * 10)
    )
    sampled = time.perf_counter() - start
    return {
        "what": "exact places",
        "n": n,
        "r": r,
        "users": users,
        "seconds": seconds,
        "sampled_seconds": sampled,
        "samples": samples,
        "difference": float((top / samples - exact[..., :10].sum(-1)).abs().max()),
    }


def _difference(row: dict[str, Any]) -> str:
    if "difference" not in row:
        return "–"
    return f"{row['difference']:.2f} of {row['samples']} samples, {row['sampled_seconds']:.2f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
