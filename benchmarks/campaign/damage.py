"""Damaged and hostile files of every kind that is read: refused in our words, or read as they were.

A file of a kind with checksums must never be read with another meaning. Text and pictures have none: there a
changed digit is another number, and only errors that are not ours, new processes and large costs are faults.
"""

import contextlib
import random
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import factorank as fr
from factorank.data.pictures import read_picture
from factorank.data.ratings import Ratings
from factorank.data.words import read_words
from factorank.training import checkpoints

STARTED = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn")
HOSTILE = [
    *(
        b"",
        b"{}",
        b"[]",
        b"null",
        b"3",
        b'"text"',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"\xff\xfe\x00",
        b"\x00" * 64,
    ),
    *(b'{"format": NaN}', b'{"n": 1e999}', b'{"a": 1, "a": 2}', b'{"version": ' + b"9" * 5000 + b"}"),
    *(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        b"PK\x03\x04" + b"\x00" * 40,
        b"PAR1" + b"\xff" * 60,
    ),
    *(b"\x89PNG\r\n\x1a\n" + b"\xff" * 80, b"\xff\xd8\xff\xe0" + b"\x00" * 80, b"\x80\x04\x95cos\nsystem\n."),
    *(b"a,b\n" + b"1," * 5000 + b"\n", b"item\n\x1b[31m\n", b" " * 4000 + b"x\n", b'"' * 3000, b"1::" * 3000),
]


class Kind(NamedTuple):
    """A kind of file: how a whole one is made, how it is read to something that can be compared."""

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    sealed: bool


def _model() -> Any:
    torch.manual_seed(0)
    return fr.PermutationModel(4, "insertion", width=8, depth=1, heads=1, context=fr.ItemContext(5, 8))


def _model_facts(path: Path) -> Any:
    model = fr.PermutationModel.from_pretrained(path)
    return model.config(), [weight.tolist() for weight in model.state_dict().values()]


def _ratings() -> Ratings:
    return Ratings.from_rows([1, 1, 2, 2], [10, 20, 10, 30], [5.0, 3.0, 4.0, 1.0])


def _rating_facts(ratings: Any) -> Any:
    return ratings.ids, ratings.user_ids, ratings.items.tolist(), ratings.values.tolist()


def _law_facts(path: Path) -> Any:
    law: Any = fr.load_law(path)
    return repr(law), fr.law_items(path), law.log_prob(torch.arange(4)).tolist(), repr(law.report)


def _checkpoint(path: Path) -> None:
    tensors = {"weights": {"w": torch.arange(3.0)}, "optimizer": {"m": torch.ones(3)}}
    checkpoints.write(path, checkpoints.Checkpoint(4, tensors, {"seconds": 1.5}))


def _checkpoint_facts(path: Path) -> Any:
    held = checkpoints.read(path / "4")
    return held.step, held.state, {name: str(tensors) for name, tensors in held.tensors.items()}


def _votes() -> Any:
    orders = fr.random_permutations(4, (30,), generator=torch.Generator().manual_seed(0))
    return fr.Rankings.from_orders(orders, items=["ann", "bob", "cat", "dan"])


def _ranking_facts(rankings: Any) -> Any:
    return rankings.items, rankings.ranks.tolist(), rankings.counts.tolist()


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path / "ratings.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ratings.csv", "userId,movieId,rating\n1,10,5\n1,20,3\n2,10,4\n")


def _picture(path: Path, suffix: str) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 255, (24, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path / f"picture{suffix}")


@cache
def kinds() -> list[Kind]:
    """Every kind of file that is read."""
    law = fr.Mallows.fit(fr.random_permutations(4, (20,), generator=torch.Generator().manual_seed(0)))
    text = [
        Kind(f"votes {name}", lambda p, n=name: fr.write_rankings(_votes(), p / f"votes{n}"),  # type: ignore[misc]
             lambda p, n=name: _ranking_facts(fr.read_rankings(p / f"votes{n}")), False)  # type: ignore[misc]
        for name in (".soc", ".csv", ".parquet")
    ]  # fmt: skip
    pictures = [
        Kind(f"picture {name}", lambda p, n=name: _picture(p, n),  # type: ignore[misc]
             lambda p, n=name: read_picture(p / f"picture{n}").tolist(), False)  # type: ignore[misc]
        for name in (".png", ".jpg", ".webp", ".gif", ".bmp", ".tif", ".ppm")
    ]  # fmt: skip
    csv, user = "user,item,rating\n1,10,5\n1,20,3\n2,10,4\n", "item,rating\n10,3\n20,4\n"
    return [
        Kind("law", lambda p: fr.save_law(law, p / "law", items=list("abcd")),
             lambda p: _law_facts(p / "law"), True),
        Kind("model", lambda p: _model().save_pretrained(p), _model_facts, True),
        Kind("checkpoint", _checkpoint, _checkpoint_facts, True),
        Kind("ratings", lambda p: _ratings().save(p / "r.safetensors"),
             lambda p: _rating_facts(Ratings.load(p / "r.safetensors")), True),
        Kind("ratings table", lambda p: _write(p / "ratings.csv", csv),
             lambda p: _rating_facts(fr.load_ratings(p / "ratings.csv")), False),
        Kind("ratings zip", _zip, lambda p: _rating_facts(fr.load_ratings(p / "ratings.zip")), False),
        Kind("user", lambda p: _write(p / "user.csv", user),
             lambda p: repr(fr.rerank.read_user(p / "user.csv")), False),
        Kind("words", lambda p: _write(p / "words", "tea\neat\nnet\n"),
             lambda p: read_words(p / "words"), False),
        *text,
        *pictures,
    ]  # fmt: skip


def attempt(kind: Kind, number: int, seed: int) -> tuple[str, str]:
    """Damage a file of that kind in one way and read it: what came of it, and how it was damaged."""
    chance = random.Random(f"{seed} {kind.name} {number}")
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(), watched() as started:
        warnings.simplefilter("ignore")
        folder = Path(name)
        whole, good = _whole(kind)
        for path, data in whole.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        target = chance.choice(sorted(whole))
        how, damaged = _damaged(whole[target], chance)
        (folder / target).write_bytes(damaged)
        described = f"{kind.name}: {target} {how}"
        try:
            read = kind.read(folder)
        except (fr.FactorankError, OSError):
            outcome = "refused"
        except Exception as error:
            outcome, described = "raw", f"{described}: {type(error).__name__}: {str(error)[:90]}"
        else:
            outcome = "harmless" if read == good else "changed" if kind.sealed else "other content"
        if started:
            return "process started", f"{described}: {started[0]}"
        return outcome, described


@cache
def _whole(kind: Kind) -> tuple[dict[str, bytes], Any]:
    """The files of a whole one, and what is read from them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kind.make(folder)
        files = {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
        return files, kind.read(folder)


def _damaged(data: bytes, chance: random.Random) -> tuple[str, bytes]:
    way = chance.choice(["bit", "bit", "byte", "cut", "zeros", "twice", "noise", "hostile", "swap"])
    at, length = chance.randrange(len(data) or 1), chance.randrange(1, 40)
    if way == "bit" and data:
        return f"bit {at}", data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
    if way == "byte" and data:
        return f"byte {at}", data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
    if way == "cut":
        return f"cut at {at}", data[:at]
    if way == "zeros":
        return f"zeros at {at}", data[:at] + bytes(length) + data[at + length :]
    if way == "twice":
        return f"{length} bytes twice", data[: at + length] + data[at:]
    if way == "noise":
        return f"noise at {at}", data[:at] + chance.randbytes(length) + data[at:]
    if way == "swap" and len(data) > 2:
        to = chance.randrange(len(data))
        low, high = sorted((at, to))
        return f"{low} and {high} swapped", data[:low] + data[high : high + 1] + data[low + 1 : high] + data[
            low : low + 1
        ] + data[high + 1 :]
    number = chance.randrange(len(HOSTILE))
    return f"hostile {number}", HOSTILE[number]


_watchers: list[list[str]] = []


@cache
def _hook() -> None:
    def watch(event: str, _: Any) -> None:
        if _watchers and event.startswith(STARTED):
            _watchers[-1].append(event)

    sys.addaudithook(watch)


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """The processes that were started in a block."""
    _hook()
    _watchers.append([])
    try:
        yield _watchers[-1]
    finally:
        _watchers.pop()


def _write(path: Path, text: str) -> None:
    path.write_text(text)
