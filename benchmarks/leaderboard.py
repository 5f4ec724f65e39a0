"""Leaderboards: fits of 1.67 million battles beside other packages', and speed, in one run.

    ./run bench leaderboard --arena FILE [--only fit ranking speed] [--out results/leaderboard.jsonl]

FILE is ``chatbotarena_20240814.json`` of the PyPI package leaderbot (BSD): how often each of 129 models beat
each other, with ties and with answers that were both bad. The battles become rows of names, as an arena has
them. Peers are evalica, choix and scipy, and arena-rank where it is installed (it has many dependencies; a
folder of its own on PYTHONPATH does). Times are CPU seconds of the process, all threads together, which other
programs on the machine do not lengthen. Rows of another kind that the file holds are kept.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import factorank as fr
from benchmarks.timing import show
from factorank.distributions.comparisons import ComparisonLaw
from factorank.experiments.record import provenance, write_results
from factorank.files import read_json_lines

WINNERS = ("model_a", "model_b", "tie", "tie (bothbad)")
LAWS: tuple[type[ComparisonLaw], ...] = (fr.BradleyTerry, fr.Davidson, fr.RaoKupper)
PUBLISHED = {
    ("BradleyTerry", False): 0.6554,
    ("Davidson", False): 1.0100,
    ("Davidson", True): 1.0075,
    ("RaoKupper", False): 1.0095,
    ("RaoKupper", True): 1.0092,
}
"""The losses in leaderbot's documentation (0.4.3): of the law itself, and of its best with factors."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench leaderboard", description=__doc__)
    parser.add_argument("--arena", type=Path, required=True, help="chatbotarena_20240814.json")
    parser.add_argument("--only", nargs="+", choices=("fit", "ranking", "speed"), default=[])
    parser.add_argument("--out", default="runs/bench/leaderboard.jsonl")
    options = parser.parse_args(argv)
    chosen = options.only or ["fit", "ranking", "speed"]
    told = ["--only", *options.only] if options.only else []
    where = provenance(" ".join(["factorank bench leaderboard --arena FILE", *told]))
    arena = Arena(options.arena)
    measured = {"fit": fits, "ranking": rankings, "speed": speeds}
    rows = []
    for what in chosen:
        for row in measured[what](arena):
            rows.append({"experiment": "leaderboard", "what": what} | row | where)
            print("  " + _line(rows[-1]), file=sys.stderr, flush=True)
    kept = (
        [row for row in read_json_lines(options.out) if row["what"] not in chosen]
        if Path(options.out).exists()
        else []
    )
    write_results(options.out, kept + rows)
    show(["what", "case", "ours", "theirs", "by"], [_cells(row) for row in rows])
    print(f"wrote {options.out}")
    return 0


class Arena:
    """The battles: counts of pairs, and rows in random order."""

    def __init__(self, path: Path) -> None:
        data = json.loads(path.read_bytes())
        self.models = np.array(data["models"], dtype=object)
        self.pairs, self.counts = np.array(data["X"]), np.array(data["Y"])
        order = np.random.default_rng(0).permutation(int(self.counts.sum()))
        cells = self.counts.reshape(-1)
        self.rows = np.repeat(np.repeat(self.pairs, 4, 0), cells, 0)[order]
        self.outcomes = np.repeat(np.tile(np.arange(4), len(self.pairs)), cells)[order]

    def table(self) -> dict[str, np.ndarray]:
        """Columns of names."""
        words = np.array(WINNERS, dtype=object)
        names = self.models[self.rows]
        return {"model_a": names[:, 0].copy(), "model_b": names[:, 1].copy(), "winner": words[self.outcomes]}

    def counted(self, *, both_bad: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pairs, outcomes 0, 1, 2 and how often; answers that were both bad are ties, or left out."""
        counts = self.counts[:, :3].copy()
        if both_bad:
            counts[:, 2] += self.counts[:, 3]
        return (
            np.repeat(self.pairs, 3, 0),
            np.tile(np.arange(3), len(self.pairs)),
            counts.reshape(-1).astype(float),
        )


def fits(arena: Arena) -> Iterator[dict[str, Any]]:
    """The negative log-likelihood of a battle, in nats, beside what leaderbot's documentation says."""
    for both_bad in (False, True):  # leaderbot leaves them out
        pairs, outcomes, counts = arena.counted(both_bad=both_bad)
        for law, item_ties in itertools.product(LAWS, (False, True)):
            if item_ties and law is fr.BradleyTerry:
                continue
            fitted = law.fit(pairs, outcomes, counts, items=len(arena.models), item_ties=item_ties)
            assert fitted.report is not None
            row: dict[str, Any] = {"case": law.__name__ + (", ties of items" if item_ties else "")}
            row |= {
                "both_bad": both_bad,
                "battles": int(counts.sum()),
                "parameters": fitted.report.parameters,
            }
            row |= {"ours": -fitted.report.log_likelihood / counts.sum()}
            yield row | (
                {} if both_bad else {"peer_name": "leaderbot", "peer": PUBLISHED[law.__name__, item_ties]}
            )


def rankings(arena: Arena) -> Iterator[dict[str, Any]]:
    """Bradley and Terry's scores, ties as half wins, beside evalica's and choix's."""
    import choix
    import evalica

    table = arena.table()
    board = fr.Leaderboard.fit(table, "half")
    ours = board.scores.numpy()
    theirs = evalica.bradley_terry(*_for_evalica(table), tolerance=1e-9, limit=10_000).scores
    yield _agreement("evalica", ours, np.log(theirs.reindex(list(board.items)).to_numpy()))
    wins = np.zeros((len(arena.models),) * 2)
    halves = (arena.counts[:, 2] + arena.counts[:, 3]) / 2
    a, b = np.searchsorted(board.items, arena.models[arena.pairs].astype(str)).T
    np.add.at(wins, (a, b), arena.counts[:, 0] + halves)
    np.add.at(wins, (b, a), arena.counts[:, 1] + halves)
    yield _agreement("choix", ours, choix.ilsr_pairwise_dense(wins, tol=1e-10))


def _agreement(name: str, ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    apart = float(np.abs(ours - theirs + theirs.mean()).max())
    same = bool((np.argsort(-ours) == np.argsort(-theirs)).all())
    return {"case": f"scores of {len(ours)} models", "peer_name": name, "same_order": same, "apart": apart}


def speeds(arena: Arena) -> Iterator[dict[str, Any]]:
    """CPU seconds, ours and theirs."""
    import evalica
    from scipy.stats import kendalltau

    table = arena.table()
    ours = seconds(lambda: fr.Leaderboard.fit(table, "half"))
    case = f"Bradley-Terry, {len(arena.rows):,} rows of names"
    given = _for_evalica(table)
    yield _speed(case, "evalica", ours, seconds(lambda: evalica.bradley_terry(*given), 2))
    theirs = _arena_rank(table)
    if theirs is not None:
        yield _speed(case, "arena-rank", ours, theirs)
    fitted = fr.Leaderboard.fit(table).comparisons
    assert fitted is not None
    refits = fitted.checked_fit().refits
    took = seconds(lambda: refits(1000, torch.Generator().manual_seed(0)), 1)
    yield {"case": f"1,000 bootstrap refits of {fitted.n} models, Davidson", "ours": took, "limit": 10.0}
    generator = torch.Generator().manual_seed(0)
    x, y = (fr.random_permutations(100, (1_000_000,), generator=generator) for _ in range(2))
    ours = seconds(lambda: fr.kendall(x, y), 2)
    some = 2000
    pairs = list(zip(x[:some].numpy(), y[:some].numpy(), strict=True))
    theirs = seconds(lambda: [kendalltau(a, b) for a, b in pairs], 2) * len(x) / some
    yield _speed("Kendall distances of 1,000,000 pairs, n = 100", "scipy", ours, theirs, peer_pairs=some)
    scores = torch.randn(4096, 64, generator=generator, requires_grad=True)
    order = fr.random_permutations(64, (4096,), generator=generator)
    ours = seconds(lambda: fr.losses.plackett_luce(scores, order).mean().backward(), 5)
    theirs = seconds(lambda: _by_places(scores, order).mean().backward(), 5)
    yield _speed("listwise loss and gradient, batch 4,096, n = 64", "a loop over places", ours, theirs)


def _by_places(scores: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """The loss as it is mostly written."""
    ordered = scores.gather(-1, order)
    loss = torch.zeros(len(scores))
    for place in range(order.shape[-1]):
        loss = loss + ordered[:, place:].logsumexp(-1) - ordered[:, place]
    return loss


def _arena_rank(table: dict[str, np.ndarray]) -> float | None:
    try:
        import pandas
        from arena_rank.models.bradley_terry import BradleyTerry
        from arena_rank.utils.data_utils import PairDataset
    except ImportError:
        return None
    winner = np.where(np.char.startswith(table["winner"].astype(str), "tie"), "tie", table["winner"])
    frame = pandas.DataFrame(table | {"winner": winner})

    def run() -> None:
        data = PairDataset.from_pandas(frame)
        BradleyTerry(len(data.competitors)).compute_ratings_and_cis(data)

    run()  # compiles
    return seconds(run, 2)


def _for_evalica(table: dict[str, np.ndarray]) -> tuple[list[str], list[str], list[Any]]:
    from evalica import Winner

    kinds = dict(zip(WINNERS, (Winner.X, Winner.Y, Winner.Draw, Winner.Draw), strict=True))
    return table["model_a"].tolist(), table["model_b"].tolist(), [kinds[word] for word in table["winner"]]


def seconds(call: Callable[[], Any], times: int = 5) -> float:
    """CPU seconds of the process: the least of some calls, after one to warm up."""
    took = []
    for _ in range(times + (times > 1)):
        start = time.process_time()
        call()
        took.append(time.process_time() - start)
    return min(took)


def _speed(case: str, peer: str, ours: float, theirs: float, **more: Any) -> dict[str, Any]:
    return {"case": case, "peer_name": peer, "ours": ours, "peer": theirs, "ratio": theirs / ours} | more


def _cells(row: dict[str, Any]) -> list[str]:
    if row["what"] == "ranking":
        text = "the same order" if row["same_order"] else "ANOTHER ORDER"
        return [row["what"], row["case"], text, f"{row['apart']:.1e} apart", row["peer_name"]]
    peer = row.get("peer")
    shown = "–" if peer is None else f"{peer:.4g}" + (f" ({row['ratio']:.0f}×)" if "ratio" in row else "")
    return [row["what"], row["case"], f"{row['ours']:.5g}", shown, row.get("peer_name") or "–"]


def _line(row: dict[str, Any]) -> str:
    return "  ".join(_cells(row))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
