"""Answers for many users, from a parquet table to a folder of parquet parts: memory does not grow with them.

The table, a parquet file or a folder of them, has a row for each user: ``user``, ``items`` (a list of those
to rank) and ``observed`` (a list, best first), perhaps with ``ratings`` (a list beside ``observed``). Without
``items`` the answers are recommendations. Each part is written whole under a name of its own. A run that was
stopped goes on with the parts that are missing; several machines may each do some of them.
"""

import hashlib
import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factorank.data.frames import error_names, polars_module
from factorank.data.parquet import NOT_PARQUET, check_parquet
from factorank.errors import FactorankError, RatingsError
from factorank.files import write_json, write_whole
from factorank.reading import read_object
from factorank.rerank.checking import check_history, check_request
from factorank.rerank.frames import rated
from factorank.rerank.ranker import Ranker
from factorank.rerank.reranking import REFERENCES, Reranking

FACTS = "answers.json"


def predict_table(
    ranker: Ranker,
    users: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    k: int = 10,
    rows: int = 8192,
    references: int = REFERENCES,
    parts: Sequence[int] | None = None,
) -> Iterator[tuple[int, int]]:
    """Answer for the users of a parquet table; yields the rows done and all rows, after each part.

    ``out/part-00000.parquet`` and so on hold ``user``, ``items`` (best first), ``place``, ``top`` and
    ``error``: what is wrong with the row of a user, who then has no items. Parts that are there already are
    not made again. A folder of other answers (another table, k, ranker or number of rows) is refused.

    Args:
        rows: of a part.
        parts: the numbers of the parts to make, all unless given.
    """
    polars = polars_module(users, RatingsError)
    plan = begin_answers(ranker, users, out, k=k, rows=rows, references=references)
    done = 0
    for part in range(plan.count) if parts is None else parts:
        if not 0 <= part < plan.count:
            raise FactorankError(f"there are parts 0 to {plan.count - 1}, not {part}")
        if not plan.file(part).exists():
            with _table(users) as table:
                asked = table.slice(part * rows, rows).collect()
            answers = answer_rows(ranker, asked.to_dicts(), k, references)
            target = io.BytesIO()
            schema = _answer_schema(ranker, asked.schema)
            polars.DataFrame(answers, schema_overrides=schema).write_parquet(target)
            write_whole(plan.file(part), target.getvalue())
        done += plan.size(part)
        yield done, plan.total


@dataclass(frozen=True)
class Plan:
    """The parts of the answers for a table of users."""

    folder: Path
    total: int
    """Users."""
    rows: int
    """Users of a part."""

    @property
    def count(self) -> int:
        """How many parts there are."""
        return -(-self.total // self.rows)

    @property
    def made(self) -> list[int]:
        """The parts that are there."""
        return [part for part in range(self.count) if self.file(part).exists()]

    @property
    def missing(self) -> list[int]:
        """The parts that are not."""
        return [part for part in range(self.count) if not self.file(part).exists()]

    def file(self, part: int) -> Path:
        """The file of a part."""
        return self.folder / f"part-{part:05d}.parquet"

    def size(self, part: int) -> int:
        """The users of a part."""
        return min(self.rows, self.total - part * self.rows)


def begin_answers(
    ranker: Ranker,
    users: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    k: int,
    rows: int,
    references: int,
) -> Plan:
    """Make the folder of the answers, or go on with it; that of other answers is refused."""
    if rows < 1:
        raise FactorankError(f"{{parameter}} is at least 1, not {rows}", parameter="rows")
    if not Path(users).exists():
        raise RatingsError(f"there is no table {users}")
    folder = Path(out)
    for each in _files(users):
        with each.open("rb") as opened:
            check_parquet(opened, each, RatingsError)
    with _table(users) as table:
        schema = table.collect_schema()
        _check_columns(users, schema)
        total = int(table.select(polars_module(users, RatingsError).len()).collect().item())
    if "items" not in schema:
        ranker.check_count(k)
    facts = {"users": _state(users), "total": total, "k": k, "rows": rows, "references": references}
    _begin(folder, facts | {"ranker": weights_digest(ranker)})
    return Plan(folder, total, rows)


@contextmanager
def _table(users: str | os.PathLike[str]) -> Iterator[Any]:
    """The table as a lazy frame; whatever is wrong with it in the block is an error that names it."""
    polars = polars_module(users, RatingsError)
    with error_names(users, RatingsError, NOT_PARQUET):
        yield polars.scan_parquet(users)


def _check_columns(users: str | os.PathLike[str], schema: Any) -> None:
    """Refuse a table without the columns, or where they hold no lists."""
    columns = list(schema)
    if "user" not in columns or not {"items", "observed"} & set(columns):
        raise RatingsError(f"{users}: the columns user and items or observed are needed, not {columns}")
    for name in ("items", "observed", "ratings"):
        if name in columns and not hasattr(schema[name], "inner"):
            raise RatingsError(f"{users}: the column {name} holds {schema[name]}, and lists are needed")


def _answer_schema(ranker: Ranker, asked: Any) -> dict[str, Any]:
    """The types of the columns of every part, whatever its rows hold."""
    polars = polars_module("the answers", RatingsError)
    if "items" in asked:  # answers name items as the table does
        name = asked["items"].inner
        name = asked["observed"].inner if name == polars.Null and "observed" in asked else name
    else:
        name = polars.Int64 if all(isinstance(each, int) for each in ranker.catalogue.ids) else polars.String
    numbers = polars.List(polars.Float64)
    types = {"user": asked["user"], "items": polars.List(name), "place": numbers, "top": numbers}
    return types | {"error": polars.String}


def faulty_rows(out: str | os.PathLike[str]) -> int:
    """How many users of a folder of answers have an error."""
    polars = polars_module(out, RatingsError)
    files = sorted(Path(out).glob("part-*.parquet"))
    errors = (polars.read_parquet(file, columns=["error"])["error"] for file in files)
    return sum(len(part) - part.null_count() for part in errors)


def answer_rows(
    ranker: Ranker, rows: Sequence[dict[str, Any]], k: int, references: int = REFERENCES
) -> dict[str, list[Any]]:
    """The columns of the answers for rows of users; see :func:`predict_table`."""
    faults: list[str | None] = [None] * len(rows)
    try:
        good = list(_answers(ranker, rows, k, references))
    except FactorankError:  # some row is at fault: the others are answered without it
        faults = [_fault(ranker, row, k) for row in rows]
        sound = [row for row, fault in zip(rows, faults, strict=True) if fault is None]
        good = list(_answers(ranker, sound, k, references)) if sound else []
    left = iter(good)
    answers = [next(left) if fault is None else None for fault in faults]
    return {
        "user": [row["user"] for row in rows],
        "items": [None if answer is None else answer.items for answer in answers],
        "place": [None if answer is None else answer.place[: len(answer)].tolist() for answer in answers],
        "top": [None if answer is None else answer.top[: len(answer)].tolist() for answer in answers],
        "error": faults,
    }


def _answers(ranker: Ranker, rows: Sequence[dict[str, Any]], k: int, references: int) -> Iterator[Reranking]:
    observed = [_observed(row) for row in rows]
    if "items" in rows[0]:
        return iter(ranker.rerank([row["items"] or [] for row in rows], observed, k=k, references=references))
    return iter(ranker.recommend(observed, k, references=references))


def _fault(ranker: Ranker, row: dict[str, Any], k: int) -> str | None:
    """What is wrong with the row of a user, found without evaluating the network."""
    try:
        observed = _observed(row)
        if "items" in row:
            check_request(ranker, row["items"] or [], observed)
        else:
            check_history(ranker, observed, k)
    except FactorankError as error:
        return str(error)
    return None


def _observed(row: dict[str, Any]) -> Any:
    items, ratings = row.get("observed") or [], row.get("ratings")
    if ratings is None:
        return list(items)
    if len(ratings) != len(items):
        counts = f"{len(items)} observed items and {len(ratings)} ratings"
        raise FactorankError(f"user {row['user']!r} has {counts}")
    return rated(items, ratings, f"user {row['user']!r}")


def weights_digest(ranker: Ranker) -> str:
    """A digest of a ranker's weights and items."""
    digest = hashlib.sha256(json.dumps([str(name) for name in ranker.catalogue.ids]).encode())
    for tensor in ranker.model.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()[:16]


def _begin(folder: Path, facts: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FACTS
    if not file.exists():
        if any(folder.glob("part-*.parquet")):
            raise FactorankError(f"{folder} holds parts but no {FACTS}; choose another folder")
        write_json(file, facts)
        return
    there = read_object(file)
    if differing := [name for name, value in facts.items() if there.get(name) != value]:
        names = ", ".join(differing)
        raise FactorankError(f"{folder} holds other answers ({names} differ); choose another folder")


def _state(file: str | os.PathLike[str]) -> list[Any]:
    """What tells a table from another one: its name, and the checksums of its files."""
    sums = []
    for each in _files(file):
        with each.open("rb") as opened:
            sums.append(hashlib.file_digest(opened, "sha256").hexdigest())
    return [Path(file).name, sums]


def _files(table: str | os.PathLike[str]) -> list[Path]:
    path = Path(table)
    return sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
