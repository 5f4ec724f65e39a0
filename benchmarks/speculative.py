"""Speculative sampling on re-ranking: passes one after the other, rows and samples a second, in one run.

    python -m benchmarks.speculative --data ml-1m --models runs/speculative [--device cuda] [--seconds 300]

With ``--train masked`` that ranker alone is trained and nothing is measured, so that both may train side by
side before a third call measures. ``--data`` is also a file of ``Ratings.save``, which needs no polars.

Two rankers of lists of n films are trained on MovieLens-1M, or loaded if ``--models`` holds them: an
autoregressive and a masked one, of the same size and with references drawn at random. Their laws at n
evaluations, given the order of r films of users not trained on, are then sampled as they are and with drafts:
by the model itself, and by the masked model for the autoregressive one. The law is the same in every row of
an objective. ``bits`` is the code length of the users' own orders under it. ``passes`` is the largest number
of network evaluations one after the other of any sample, ``passes_mean`` the mean; ``rows`` counts the codes
that the networks read for each sample.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import seconds, show
from factorank.data.ratings import load_ratings
from factorank.experiments.record import provenance, write_results
from factorank.models import PermutationLaw, PermutationModel
from factorank.permutations import inverse
from factorank.rerank import Ranker, preset
from factorank.rerank.evaluation import draw_lists
from factorank.rerank.evaluation.protocol import EvaluationLists
from factorank.rerank.users import split_users

OBJECTIVES = ("autoregressive", "masked")
SHOWN = (
    "objective",
    "draft",
    "ahead",
    "r",
    "lists",
    "passes",
    "passes_mean",
    "rows",
    "accepted",
    "per_second",
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", required=True, help="ratings of MovieLens-1M")
    parser.add_argument("--models", required=True, help="folder of the trained rankers")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=300.0, help="of training, for each of the two")
    parser.add_argument("--train", choices=OBJECTIVES, help="train this ranker and stop")
    parser.add_argument("--enough", type=float, default=1.0, help="seconds of sampling for each row")
    parser.add_argument("--preset", default="default", help="of the rankers' network")
    parser.add_argument("--n", type=int, default=50)
    parser.add_argument("--observed", type=int, nargs="+", default=[0, 10])
    parser.add_argument("--lists", type=int, nargs="+", default=[1, 32, 512])
    parser.add_argument("--out", default=None, help="a results file to write")
    options = parser.parse_args(arguments)
    users = split_users(load_ratings(options.data))
    if options.train is not None:
        ranker(options.train, users, options)
        return 0
    models = {objective: ranker(objective, users, options) for objective in OBJECTIVES}
    lists = draw_lists(users["test"], options.n, lists=max(512, *options.lists))
    folders = {options.data: "DIR", options.models: "runs/speculative", options.out: "FILE"}
    told = " ".join(folders.get(word, word) for word in arguments)
    source = provenance("python -m benchmarks.speculative " + told)
    rows = []
    for r in options.observed:
        for objective in OBJECTIVES:
            for row in measured(models, objective, lists, r, options):
                rows.append({"experiment": "speculative", "data": "ml-1m", **row, **source})
                print("  ".join(f"{name}={_short(row[name])}" for name in SHOWN), flush=True)
                if options.out:
                    write_results(options.out, rows)
    show(["objective", "draft", "r", "lists", "passes", "samples/s"], [_line(row) for row in rows])
    return 0


def ranker(objective: str, users: dict[str, Any], options: argparse.Namespace) -> PermutationModel:
    """A trained model, from its folder if it is there."""
    folder = Path(options.models) / objective
    if not (folder / "model.safetensors").exists():
        setting = preset(
            options.preset, n=options.n, objective=objective, reference="random", shortest=None,
            masks="suffix" if objective == "masked" else "any", schedule="time",
        )  # fmt: skip
        options_ = {"max_seconds": options.seconds, "device": options.device}
        trained = Ranker.fit(users["train"], users["validation"], setting=setting, **options_)
        trained.save(folder)
    return Ranker.load(folder).model.to(options.device)


def measured(
    models: dict[str, PermutationModel],
    objective: str,
    lists: EvaluationLists,
    r: int,
    options: argparse.Namespace,
) -> Iterator[dict[str, Any]]:
    """Rows of the laws of one objective given r observed items, plain and with drafts."""
    model, device = models[objective], options.device
    items, order = lists.items.to(device), lists.order.to(device)
    # The first r items of each list, in the order that their user has them.
    observed = inverse(order)[:, :r].argsort(-1) if r else None
    drafts: list[tuple[str | None, Any, int | None]] = [(None, None, None), ("self", "self", None)]
    if objective == "autoregressive":
        drafts.append(("masked", models["masked"], None))
    else:
        drafts += [("self", "self", ahead) for ahead in (4, 16)]
    unmask = "left-to-right"
    for count in options.lists:
        context = items[:count]
        given = None if observed is None else observed[:count]
        for name, draft, ahead in drafts:
            torch.manual_seed(0)
            law = partial(
                model.distribution, context, observed=given, unmask=unmask, draft=draft, ahead=ahead
            )
            with torch.no_grad():
                now = law()
                bits = -float(now.log_prob(order[:count]).double().mean()) / math.log(2)
            _, nfe = now.sample_with_nfe()
            report = now.sample_with_report()[1] if draft is not None else None
            started = time.perf_counter()
            took = seconds(partial(drawn, law), device, enough=options.enough)
            yield {
                "code": model.code.name, "objective": objective, "unmask": unmask, "nfe": now.nfe,
                "n": options.n, "r": r, "lists": count,
                "draft": name, "ahead": getattr(now.draft, "ahead", None),
                "width": model.width, "depth": model.depth,
                "passes": int(nfe.max()), "passes_mean": float(nfe.double().mean()),
                "rows": _rows(report, nfe) / count,
                "accepted": None if report is None else report.accepted / max(report.drafted, 1),
                "bits": bits, "per_second": count / took, "seconds": time.perf_counter() - started,
            }  # fmt: skip


def drawn(law: Callable[[], PermutationLaw]) -> torch.Tensor:
    """A sample for each list: the law is made anew, as for lists that are asked once."""
    return law().sample()


def _rows(report: Any, nfe: torch.Tensor) -> float:
    return float(nfe.sum()) if report is None else float(report.rows + report.draft_rows)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _line(row: dict[str, Any]) -> list[str]:
    draft = row["draft"] if row["draft"] is None else f"{row['draft']}, {row['ahead']} ahead"
    numbers = (row["r"], row["lists"], row["passes"], f"{row['per_second']:.1f}")
    return [row["objective"], str(draft), *map(str, numbers)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
