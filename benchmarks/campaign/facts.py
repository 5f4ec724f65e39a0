"""All that is read from what a command has written, as values that can be compared."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import factorank as fr
from benchmarks.campaign import ingredients as made
from benchmarks.campaign.kills import Parts
from factorank.files import read_json_lines, restored
from factorank.reading import read_json

CLOCK = ("second", "commit", "device", "command", "peak", "rate")
"""Words in the names of facts that no two runs share."""


def plain(value: Any) -> Any:
    """A value without the times in it."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if not any(word in name for word in CLOCK)}
    return [plain(each) for each in value] if isinstance(value, list) else value


def weights(folder: Path) -> Any:
    """Every number of a model."""
    model = fr.PermutationModel.from_pretrained(folder)
    return model.config(), {name: weight.tolist() for name, weight in model.state_dict().items()}


def law(folder: Path) -> Any:
    """A law with the names of its items."""
    folder = restored(folder)
    read: Any = fr.load_law(folder)
    return repr(read), fr.law_items(folder), read.log_prob(made.orders()).tolist()


def rows(file: Path) -> Any:
    """Rows of results; None if there are none."""
    return plain(read_json_lines(file)) if file.exists() else None


def content(file: Path) -> bytes | None:
    """A file whose bytes are all decided by what is written."""
    return file.read_bytes() if file.exists() else None


def run_of(folder: Path) -> Parts:
    """The run of a model in training: its model, and its history."""
    return {"model": weights(folder), "history": rows(folder / "metrics.jsonl")}


def ranker_of(folder: Path) -> Parts:
    """Everything in the run of a ranker."""
    return {
        "ranker": ranker(folder),
        "users": {name: users(part) for name, part in fr.rerank.users.load_users(folder).items()},
    }


def ranker(folder: Path) -> Any:
    """Every fact of a ranker, and its answer to a user."""
    read = fr.Ranker.load(folder)
    answer = read.rerank([100, 101, 102], [105], k=1)
    return (
        weights(folder),
        read.gains.tolist(),
        read.blend,
        str(read.catalogue.ids),
        answer.items,
        answer.place.tolist(),
    )


def users(ratings: Any) -> Any:
    """Every rating."""
    return (
        ratings.ids,
        ratings.user_ids,
        ratings.starts.tolist(),
        ratings.items.tolist(),
        ratings.values.tolist(),
    )


def networks(folder: Path) -> Parts:
    """The mixture of several networks."""
    mixture, items = fr.votes.open_law(restored(folder))
    about = plain(read_json(folder / "networks.json")) | {"sha256": None}  # that of a command, too
    return {"networks": (items, mixture.log_prob(made.orders()).tolist(), about)}


def answers(folder: Path) -> Parts:
    """All parts of the answers for many users."""
    import polars

    parts = sorted(folder.glob("part-*.parquet"))
    return {"answers": [polars.read_parquet(part).to_dicts() for part in parts]}


def whole(name: str, file: Callable[[Path], Any] = content) -> Callable[[Path], Parts]:
    """Reads one file of a folder."""
    return lambda out: {name: file(out / name)}


def several(*names: str) -> Callable[[Path], Parts]:
    """Reads several files of a folder, each of which appears by itself: rows, or content."""
    return lambda out: {name: (rows if name.endswith(".jsonl") else content)(out / name) for name in names}
