"""Calls of the library that write, and commands that are small only if something of them is replaced."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

import factorank as fr
from benchmarks.campaign import facts
from benchmarks.campaign import ingredients as made
from benchmarks.campaign.facts import content, rows, whole
from benchmarks.campaign.ingredients import run
from benchmarks.campaign.kills import Act, Command, Parts
from factorank.data.ratings import Ratings


def _sort(data: Path, out: Path) -> None:
    """What ``sort train`` does, ended by its steps and not by the clock."""
    from factorank.data.digits import mnist
    from factorank.experiments import sort

    with made.known_digits():
        sets = mnist(data)
    setting = sort.SortSetting(channels=(2,), n=6, batch_size=2, tries=1, seconds=1e6)
    given: dict[str, Any] = {"steps": 3, "schedule": "cosine", "warmup": 1, "device": "cpu"}
    known = mock.Mock(return_value="digits")  # otherwise 1,024 lists are compared, in five seconds
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(sort, "score", partial(sort.score, lengths=(5,))))
        patches.enter_context(mock.patch.object(sort.SortedLists, "fingerprint", known, create=True))
        sort.run(setting, sets, out, lists=5, max_seconds=None, **given)


def _sorted(out: Path) -> Parts:
    folder = out / "factorank-0"
    return {"rows": rows(folder / "rows.jsonl"), "model": content(folder / "run" / "model.safetensors")}


def _sort_eval(n: int) -> Act:
    def score(data: Path, out: Path) -> None:
        lists = ("--data", data, "--n", n, "--lists", 5)
        with made.known_digits():
            run("sort", "eval", data / "sorter", *lists, "--out", out / "rows.jsonl")

    return score


def _laws(data: Path, out: Path) -> None:
    from factorank.experiments import laws
    from factorank.experiments.record import gather_rows, write_results

    small: dict[str, Any] = {"width": 8, "depth": 1, "heads": 2, "batch_size": 4}
    (chosen,) = laws.settings(["lehmer-masked"], ["mlp+neighbours"], [2], [1e-3], steps=2, **small)
    laws.run(chosen, out, made.pictures(), most=8, device="cpu")
    write_results(out / "laws.jsonl", laws.best_rates(gather_rows(out, "rows")))


def _votes(*families: str) -> Act:
    def compare(data: Path, out: Path) -> None:
        from factorank.experiments import votes

        small = tuple(replace(each, splits=2, restarts=1, max_iterations=3) for each in votes.SETS)
        with mock.patch.object(votes, "SETS", small), mock.patch.object(votes, "COMPONENTS", 1):
            run("votes", "--data", data, "--sets", "courses-2003", "--families", *families, "--out", out)

    return compare


def _vote_rows(out: Path) -> Parts:
    """Rows are written after each split of the voters, beside those that are there."""
    listed = rows(out / "votes.jsonl") or []
    return {"figure": content(out / "votes.png")} | {f"{row['family']} {row['seed']}": row for row in listed}


def _unscramble(steps: int) -> Act:
    def train(data: Path, out: Path) -> None:
        from factorank.experiments import unscramble

        small: dict[str, Any] = {
            "width": 8,
            "depth": 1,
            "heads": 1,
            "memory": 8,
            "batch_size": 8,
            "held_out": 0,
        }
        size, score = partial(unscramble.UnscrambleSize, **small), partial(unscramble.score, samples=2)
        with mock.patch.multiple(unscramble, UnscrambleSize=size, score=score):
            run("unscramble", "--train", "--steps", steps, "--words", data / "words", "--out", out)

    return train


def _unscrambled(out: Path) -> Parts:
    models = {name: facts.weights(out / name) for name in ("model", "run")}
    return {"rows": rows(out / "unscramble.jsonl"), "words": content(out / "words.txt")} | models


def _model(seed: int) -> Act:
    return lambda data, out: made.model(seed).save_pretrained(out)


def _law(law: Callable[[], Any], items: list[str] | None) -> Act:
    return lambda data, out: fr.save_law(law(), out, items=items)


def _ranker(more: float) -> Act:
    def save(data: Path, out: Path) -> None:
        loaded = fr.Ranker.load(data / "ranker")
        with torch.no_grad():
            for weight in loaded.model.parameters():
                weight.add_(more)
        loaded.save(out)

    return save


def _ratings(users: int) -> Act:
    return lambda data, out: made.ratings(users).save(out / "r.safetensors")


def _cached(**options: Any) -> Act:
    """Keep a copy of a table in a cache."""

    def load(data: Path, out: Path) -> None:
        fr.load_ratings(data / "table.csv", cache=out, **options)

    return load


def _copies(out: Path) -> Parts:
    return {"copies": [facts.users(Ratings.load(file)) for file in sorted(out.glob("*.safetensors"))]}


def _rankings(suffix: str, seed: int) -> Act:
    return lambda data, out: fr.write_rankings(made.rankings(seed=seed), out / f"votes{suffix}")


def _ranked(suffix: str) -> Callable[[Path], Parts]:
    def read(out: Path) -> Parts:
        votes = fr.read_rankings(out / f"votes{suffix}")
        return {"votes": (votes.items, votes.ranks.tolist(), votes.counts.tolist())}

    return read


def _onnx(width: int) -> Act:
    """The graph is traced once, which takes seconds; here it is only written."""

    def write(data: Path, out: Path) -> None:
        from onnx import load

        traced = SimpleNamespace(model_proto=load(data / "onnx" / f"{width}.onnx"))
        with mock.patch.object(torch.onnx, "export", return_value=traced):
            made.model(0, width).export_onnx(out / "model.onnx")

    return write


def _downloaded(data: Path, out: Path) -> None:
    from factorank.data.downloads import find

    find(made.published(data), out)


def _things(out: Path) -> Parts:
    return {name: content(out / "things" / name) for name in made.THINGS}


CALLS = [
    Command("unscramble --train", _unscramble(3), _unscrambled, ("words",), _unscramble(2)),
    Command("sort train", _sort, _sorted, ("mnist",)),
    Command("sort eval", _sort_eval(5), whole("rows.jsonl", rows), ("mnist", "sorter"), _sort_eval(6)),
    Command("laws", _laws, whole("laws.jsonl", rows)),
    Command("votes", _votes("uniform", "mallows"), _vote_rows, ("preflib",), _votes("uniform")),
    Command("save_pretrained", _model(1), lambda out: {"model": facts.weights(out)}, before=_model(0)),
    Command(
        "save_law",
        _law(lambda: fr.RIM.fit(made.orders()), None),
        lambda out: {"law": facts.law(out)},
        before=_law(lambda: fr.Mallows([3, 2, 1, 0], 0.3), made.NAMES),
    ),
    Command("Ranker.save", _ranker(1), lambda out: {"ranker": facts.ranker(out)}, ("ranker",), _ranker(2)),
    Command(
        "Ratings.save",
        _ratings(40),
        lambda out: {"ratings": facts.users(Ratings.load(out / "r.safetensors"))},
        before=_ratings(30),
    ),
    Command("load_ratings cache", _cached(), _copies, ("table.csv",), _cached(user="user")),
    *(
        Command(f"write_rankings {kind}", _rankings(kind, 1), _ranked(kind), before=_rankings(kind, 0))
        for kind in (".soc", ".csv", ".parquet")
    ),
    Command("export_onnx", _onnx(8), whole("model.onnx"), ("onnx",), _onnx(16)),
    Command("download", _downloaded, _things, ("things.tar.gz",)),
]
