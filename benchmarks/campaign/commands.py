"""The commands and calls that are killed: all that write, at a size that takes a second or two at most.

Left out are ``playground --build`` (half a minute, and it loads packages from the network; it is one folder
made whole, as ``fit`` writes it), ``docs`` (another program, Sphinx, writes the site), ``bench`` (benchmarks
write rows as ``posterior`` does), ``coverage phi`` (two seconds at least; ``coverage ranks`` writes the same
file) and ``jigsaw eval`` of photographs (seconds for the shipped model; ``jigsaw eval`` of a run writes the
same file). ``compare``, ``codes`` and ``rerank serve`` write nothing.
"""

from collections.abc import Callable
from pathlib import Path
from unittest import mock

from benchmarks.campaign import facts
from benchmarks.campaign.calls import CALLS
from benchmarks.campaign.facts import content, rows, several, whole
from benchmarks.campaign.ingredients import run
from benchmarks.campaign.kills import Act, Command, Parts
from factorank.files import restored
from factorank.reading import read_json


def _line(text: str) -> Act:
    """A command line with the folders {data} and {out}."""
    return lambda data, out: run(*(word.format(data=data, out=out) for word in text.split()))


def _both(text: str, now: object, before: object) -> tuple[Act, Act]:
    """A command line, and one that differs from it in {it}, as what made the earlier result."""
    now_line, before_line = (_line(text.replace("{it}", str(each))) for each in (now, before))
    return now_line, before_line


def _untimed(act: Act) -> Act:
    """A command that measures no speed, which takes a second."""

    def untimed(data: Path, out: Path) -> None:
        from factorank.experiments import jigsaw

        with mock.patch.object(jigsaw, "puzzles_per_second", return_value=1.0):
            act(data, out)

    return untimed


def _command(name: str, text: str, read: Callable[[Path], Parts], needs: str, *values: object) -> Command:
    """A command; of two values one stands in its line for {it}, the other in that of the earlier result."""
    act, before = _both(text, *values) if values else (_line(text), None)
    if name.startswith("jigsaw"):
        act, before = _untimed(act), None if before is None else _untimed(before)
    return Command(name, act, read, tuple(needs.split()), before)


def _board(out: Path) -> Parts:
    board = restored(out / "board")
    drawn = [content(board / f"leaderboard.{kind}") for kind in ("html", "png")]
    return {"page": content(out / "page.html"), "board": drawn}


FIT = "rerank fit {data}/table.csv --told order --features mean --preset small --n 6 --min-item-ratings 1 "
ONE = "rerank predict {data}/ranker --user {data}/user.csv --k {it} --out {out}/answer"
EVAL = "rerank eval {data}/ranker --n 8 --r 2 --lists {it} --baselines mean-rating --fillers 0 --out {out}"
PUZZLE = "--grid 2 --width 16 --depth 1 --batch-size 8 --steps 3 --pictures {data}/pictures --out {out}"
COINS = "--tasks coin-sort --codes lehmer --methods masked --lrs 1e-3 --batch-size 8 --width 8 --depth 1"
COMMANDS = [
    _command(
        "fit",
        "fit {data}/{it}.soc --out {out} --bootstrap 0 --no-picture",
        lambda out: {"fit": (facts.law(out), facts.plain(read_json(restored(out) / "fit.json")))},
        "votes.soc other.soc",
        *("votes", "other"),
    ),
    _command(
        "sample",
        "sample {data}/law --count 50 --seed {it} --out {out}/orders.csv",
        whole("orders.csv"),
        "law",
        *(0, 1),
    ),
    _command(
        "score",
        "score {data}/law {data}/{it}.soc --out {out}/bits.csv",
        whole("bits.csv"),
        "law votes.soc other.soc",
        *("votes", "other"),
    ),
    _command(
        "posterior",
        "posterior {data}/{it}.soc --draws 20 --out {out}/rows.jsonl",
        whole("rows.jsonl", rows),
        "votes.soc other.soc",
        *("votes", "other"),
    ),
    _command(
        "train",
        "train {data}/votes.soc --code insertion --objective masked --width 8 --depth 1 --heads 1 "
        "--steps {it} --out {out}",
        facts.run_of,
        "votes.soc",
        *(6, 3),
    ),
    _command(
        "train auto",
        "train {data}/{it}.soc --steps 2 --width 8 --rounds 1 --out {out}/run",
        lambda out: facts.networks(out / "run"),
        "votes.soc other.soc",
        *("votes", "other"),
    ),
    _command(
        "rerank fit",
        FIT + "--min-user-ratings 8 --steps {it} --out {out}",
        facts.ranker_of,
        "table.csv",
        *(4, 2),
    ),
    _command("rerank predict .csv", ONE + ".csv", whole("answer.csv"), "ranker user.csv", 2, 1),
    _command("rerank predict .json", ONE + ".json", whole("answer.json"), "ranker user.csv", 2, 1),
    _command(
        "rerank predict users",
        "rerank predict {data}/ranker --users {data}/users.parquet --rows 3 --k 2 --out {out}",
        facts.answers,
        "ranker users.parquet",
    ),
    _command(
        "rerank eval",
        EVAL,
        several("rerank.jsonl", "rerank-calibration.jsonl", "rerank.png", "rerank-calibration.png"),
        "ranker",
        *(10, 20),
    ),
    _command(
        "leaderboard",
        "leaderboard {data}/battles.csv --out {out}/board --html {out}/page.html --level {it}",
        _board,
        "battles.csv",
        *(0.95, 0.9),
    ),
    _command(
        "jigsaw train",
        "jigsaw train " + PUZZLE,
        lambda out: {"rows": rows(out / "jigsaw.jsonl"), **facts.run_of(next(out.glob("default-*")))},
        "pictures",
    ),
    _command(
        "jigsaw eval",
        "jigsaw eval {data}/puzzles --pictures {data}/pictures --split {it} --out {out}/rows.jsonl",
        whole("rows.jsonl", rows),
        "puzzles pictures",
        *("test", "held_out"),
    ),
    _command(
        "jigsaw solve",
        "jigsaw solve {data}/pictures/{it}.png --weights {data}/puzzles --out {out}/solved.png "
        "--steps {out}/steps.gif",
        several("solved.png", "steps.gif"),
        "puzzles pictures",
        *(3, 4),
    ),
    _command(
        "cyclic",
        "cyclic --codes lehmer --objectives masked --nfe 1 --steps 3 --out {out}",
        several("cyclic.jsonl", "cyclic.png"),
        "",
    ),
    _command(
        "ambiguous",
        f"ambiguous {COINS} --cases 10 --steps 3 --out {{out}}",
        whole("ambiguous.jsonl", rows),
        "",
    ),
    _command(
        "coverage ranks",
        "coverage ranks --elections 1 --scores tied --out {out}",
        whole("coverage.jsonl", rows),
        "",
    ),
    _command(
        "figure",
        "figure votes --results {data}/{it}.jsonl --out {out}/votes.svg",
        whole("votes.svg"),
        "rows",
        *("votes", "other"),
    ),
    *CALLS,
]
