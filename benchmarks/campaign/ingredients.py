"""What the commands of the campaign read: tables, pictures, models, all small and the same at each call."""

import gzip
import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import factorank as fr
from factorank import cli
from factorank.data import digits
from factorank.data.downloads import Published
from factorank.data.picture_sets import Pictures
from factorank.data.ratings import Ratings
from factorank.jigsaw import setting

RANKER: dict[str, Any] = {"n": 8, "shortest": 4, "width": 16, "depth": 1, "heads": 2, "rank": 2, "steps": 3}
RANKER |= {"batch_size": 16, "held_out": 16, "told": "order", "features": ("mean", "factors")}
NAMES = ["ann", "bob", "cat", "dan"]
WORDS = ["eat", "ate", "tea", "see", "stop", "spot", "noon"]
THINGS = {"a.bin": b"one" * 1000, "b.bin": b"two"}


def run(*arguments: Any) -> None:
    """A command that must not fail."""
    code = cli.main([str(argument) for argument in arguments])
    if code:
        raise RuntimeError(f"exit code {code}")


def orders(n: int = 4, count: int = 40, seed: int = 0) -> torch.Tensor:
    """Some orders."""
    return fr.random_permutations(n, (count,), generator=torch.Generator().manual_seed(seed))


def rankings(n: int = 4, count: int = 40, seed: int = 0) -> fr.Rankings:
    """Some votes."""
    return fr.Rankings.from_orders(orders(n, count, seed), items=NAMES[:n])


def ratings(users: int = 40, seed: int = 0) -> Ratings:
    """Users who have rated most of 12 items."""
    chance, rows = np.random.default_rng(seed), []
    for user in range(users):
        for item in chance.permutation(12)[: chance.integers(8, 13)].tolist():
            rows.append((user, 100 + item, float(np.clip(round(item / 3 + chance.normal()), 0, 5))))
    return Ratings.from_rows(*map(list, zip(*rows, strict=True)))


def ranker(out: Path | None = None, seed: int = 0, **changes: Any) -> fr.Ranker:
    """A ranker that is hardly trained."""
    chosen = fr.rerank.preset("small", **RANKER | {"seed": seed} | changes)
    return fr.Ranker.fit(ratings(), 0.2, test=0.2, setting=chosen, device="cpu", out=out)


def model(seed: int = 0, width: int = 8) -> fr.PermutationModel:
    """A model that is not trained."""
    torch.manual_seed(seed)
    return fr.PermutationModel(4, "insertion", width=width, depth=1, heads=1)


def pixels(height: int = 24, width: int = 24, seed: int = 0) -> np.ndarray:
    """A picture."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def pictures(side: int = 16) -> Pictures:
    """Pictures to cut into pieces."""
    train, held_out, test = (
        torch.from_numpy(np.stack([pixels(side, side, first + i) for i in range(20)]))
        for first in (0, 100, 200)
    )
    return Pictures(train, held_out, test)


def published(folder: Path) -> Published:
    """A data set whose archive is a file here."""
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in THINGS.items()}
    return Published("Things", (folder / "things.tar.gz").as_uri(), "things", sums)


def write_archive(folder: Path) -> None:
    """The archive of that data set."""
    with tarfile.open(folder / "things.tar.gz", "w:gz") as tar:
        for name, data in THINGS.items():
            entry = tarfile.TarInfo(f"things/{name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def digit_files() -> dict[str, bytes]:
    """Files in the format of MNIST."""
    chance, files = np.random.default_rng(0), {}
    for name, count in zip(digits.FILES, (60, 60, 20, 20), strict=True):
        shape = (count, 28, 28) if "images" in name else (count,)
        values = chance.integers(0, 256, shape) if "images" in name else np.arange(count) % 10
        head = struct.pack(f">BBBB{len(shape)}i", 0, 0, 8, len(shape), *shape)
        files[name] = head + values.astype(np.uint8).tobytes()
    return files


def write_digits(folder: Path) -> None:
    """The four files of digits, one of them packed."""
    (folder / "mnist").mkdir()
    for name, data in digit_files().items():
        packed = name.startswith("t10k-labels")
        path = folder / "mnist" / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(data, mtime=0) if packed else data)


@contextmanager
def known_digits() -> Iterator[None]:
    """These files are taken for those that are published."""
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in digit_files().items()}
    few = {"held_out": 10, "seed": 0}
    with mock.patch.object(digits, "FILES", sums), mock.patch.object(digits.mnist, "__kwdefaults__", few):
        yield


def _battles(folder: Path) -> None:
    chance, lines = np.random.default_rng(0), ["model_a,model_b,winner"]
    for _ in range(120):
        a, b = chance.choice(4, 2, replace=False)
        winner = (
            "tie"
            if chance.random() < 0.1
            else "model_a"
            if chance.random() < 0.8 - 0.2 * (a > b)
            else "model_b"
        )
        lines.append(f"m{a},m{b},{winner}")
    (folder / "battles.csv").write_text("\n".join(lines) + "\n")


def _table(folder: Path) -> None:
    table = ratings()
    rows = zip(table.users.tolist(), table.items.tolist(), table.values.tolist(), strict=True)
    lines = [f"u{user},{table.ids[item]},{value}" for user, item, value in rows]
    (folder / "table.csv").write_text("\n".join(["user,item,rating", *lines]) + "\n")


def _users(folder: Path) -> None:
    import polars

    rows = [{"user": u, "items": [100, 101, 102, 103], "observed": [104 + u % 5, 110]} for u in range(12)]
    polars.DataFrame(rows).write_parquet(folder / "users.parquet")


def _pictures(folder: Path) -> None:
    from PIL import Image

    (folder / "pictures").mkdir()
    for index in range(12):
        Image.fromarray(pixels(40, 50, index)).save(folder / "pictures" / f"{index}.png")


def _preflib(folder: Path) -> None:
    (folder / "preflib").mkdir()
    fr.write_rankings(rankings(), folder / "preflib" / "00009-00000001.soc")


def _rows(folder: Path) -> None:
    shared = {"experiment": "votes", "data": "sushi", "bits_se": 0.1, "difference_se": 0.1, "seed": 0}
    rows = [
        shared | {"family": family, "components": k, "bits": 2.0 - k / 9, "difference": 0.0}
        for family in ("uniform", "mallows")
        for k in (1, 2)
    ]
    (folder / "votes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "other.jsonl").write_text("".join(json.dumps(row | {"data": "other"}) + "\n" for row in rows))


def _sorter(folder: Path) -> None:
    from factorank.experiments.number_sorter import NumberSorter

    torch.manual_seed(0)
    NumberSorter("factorank", (2,)).save_pretrained(folder / "sorter")


def _puzzle_model(folder: Path) -> None:
    from factorank.jigsaw import new_model

    torch.manual_seed(0)
    new_model(setting("default", grid=2, width=16, depth=1, heads=2, steps=3), 32).save_pretrained(
        folder / "puzzles"
    )


def _graphs(folder: Path) -> None:
    (folder / "onnx").mkdir()
    for width in (8, 16):
        model(0, width).export_onnx(folder / "onnx" / f"{width}.onnx")


INGREDIENTS: dict[str, Callable[[Path], Any]] = {
    "votes.soc": lambda folder: fr.write_rankings(rankings(), folder / "votes.soc"),
    "other.soc": lambda folder: fr.write_rankings(rankings(seed=1), folder / "other.soc"),
    "law": lambda folder: fr.save_law(fr.Mallows(torch.arange(4), 0.5), folder / "law", items=NAMES),
    "battles.csv": _battles,
    "table.csv": _table,
    "user.csv": lambda folder: (folder / "user.csv").write_text("item,rating\n103,5\n101,1\n102,3\n110,\n"),
    "users.parquet": _users,
    "ranker": lambda folder: ranker(folder / "ranker"),
    "pictures": _pictures,
    "puzzles": _puzzle_model,
    "words": lambda folder: (folder / "words").write_text("\n".join(WORDS) + "\n"),
    "mnist": write_digits,
    "sorter": _sorter,
    "preflib": _preflib,
    "rows": _rows,
    "things.tar.gz": write_archive,
    "onnx": _graphs,
}
"""What there is, and how it is made in a folder."""
