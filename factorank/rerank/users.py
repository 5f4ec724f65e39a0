"""The users of a ranker's run: whose ratings it was trained on, chosen by, and can be tested on."""

import os
from pathlib import Path

import torch

from factorank.data.ratings import Ratings
from factorank.errors import RatingsError

PARTS = ("train", "validation", "test")
FOLDER = "users"


def save_users(run: str | os.PathLike[str], parts: dict[str, Ratings]) -> None:
    """Write the ratings of each part of the users beside a ranker, a file each, none for a part of nobody."""
    for name in PARTS:
        file = Path(run) / FOLDER / f"{name}.safetensors"
        if name in parts and len(parts[name]):
            parts[name].save(file)
        else:
            file.unlink(missing_ok=True)


def load_users(run: str | os.PathLike[str]) -> dict[str, Ratings]:
    """The ratings that :func:`save_users` wrote, by the name of the part."""
    files = {name: Path(run) / FOLDER / f"{name}.safetensors" for name in PARTS}
    if not files["train"].exists():
        raise RatingsError(
            f"{run}: the ratings it was trained on are missing; Ranker.fit(…, out={str(run)!r}) writes them"
        )
    return {name: Ratings.load(file) for name, file in files.items() if file.exists()}


def split_users(ratings: Ratings, seed: int = 0) -> dict[str, Ratings]:
    """The ratings of the training users, and of a tenth each to choose settings by and to test on."""
    return dict(zip(PARTS, ratings.split(validation=0.1, test=0.1, seed=seed), strict=True))


def split_as(ratings: Ratings, earlier: dict[str, Ratings]) -> dict[str, Ratings]:
    """Ratings of the users of each part of an earlier run; users whom it did not have are trained on."""
    part_of: dict[object, str] = {name: part for part, own in earlier.items() for name in own.user_ids}
    parts: dict[str, list[int]] = {part: [] for part in PARTS}
    for number, name in enumerate(ratings.user_ids):
        parts[part_of.get(name, "train")].append(number)
    return {part: ratings.of_users(torch.tensor(own, dtype=torch.int64)) for part, own in parts.items()}
