"""Small upright pictures in few files, to carry to another machine.

A pack is an ``.npz`` of groups of pictures. Square thumbnails of one size share large WebP pictures, 256 in
each, whole photographs have one of their own. Each is stored in a random turn, which the pack names: what the
encoding leaves in a picture then says nothing of which way up it stands.
"""

import io
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from factorank.data.pictures import at_most, read_picture
from factorank.files import write_whole

TINY = 64
"""Pixels in a row of a picture of Tiny ImageNet."""
SQUARE = 96
"""Pixels in a row of a square that is learnt from, and of the thumbnails of larger pictures."""
IN_ROW = 16
"""Thumbnails in a row, and in a column, of the picture that they share."""
SHORTER = 192
"""Pixels of the shorter side of a whole photograph."""
HELD_OUT = 1024
"""Thumbnails of each kind that are not learnt from."""

_NUMBERS = """
01768244 01770393 01774384 01774750 01784675 01910747 01917289 01944390 01945685 01950731 01983481 01984695
02165456 02190166 02206856 02226429 02231487 02233338 02236044 02279972 02281406 02321529 02841315 02988304
02999410 03250847 03400231 03584254 03706229 03804744 03838899 04074963 04133789 04275548 04328186 04356056
04376876 04596742 04597913 06596364 07579787 07583066 07695742 07711569 07715103 07720875 07747607 07749582
07753592 07768694 07871810 07873807 07875152 12267677
"""
NO_WAY_UP = frozenset(f"n{number}" for number in _NUMBERS.split())
"""WordNet names of classes of Tiny ImageNet that are seen from any side: insects, food, small things."""

Group = dict[str, np.ndarray]
Mapper = Callable[..., Iterable[Any]]


def make_packs(
    tiny: Path,
    samples: Path,
    bsds: Path,
    out: Path,
    *,
    squashed: Path | None = None,
    quality: int = 28,
    workers: Mapper = map,
) -> None:
    """Write ``a.npz`` and ``b.npz``, of about 40 and 30 MB, and of ``squashed`` photographs three more.

    ``tiny`` is the folder of Tiny ImageNet, of which 1,024 pictures of the validation part are held out;
    ``samples`` holds photographs of ImageNet, of which each fifth is; ``bsds`` holds those of BSDS500, of
    which the validation part is. The test part is left alone. ``squashed`` holds JPEGs of photographs that
    were made square by squashing, as copies of COCO have them; 1,024 of them are held out.
    """
    if squashed is not None:
        _pack_squashed(squashed, out, quality, workers)
    classes = dict(
        line.split("\t")[:2] for line in (tiny / "val/val_annotations.txt").read_text().splitlines()
    )
    others = sorted(
        path for path in (tiny / "val/images").glob("*.JPEG") if classes[path.name] not in NO_WAY_UP
    )
    learn = sorted(
        path for path in (tiny / "train").glob("*/images/*.JPEG") if path.parts[-3] not in NO_WAY_UP
    )
    others = [others[at] for at in np.random.default_rng(0).permutation(len(others))]
    learn = [*learn, *others[HELD_OUT:]]
    learn = [learn[at] for at in np.random.default_rng(1).permutation(len(learn))]
    first = max(0, len(learn) // 2 - 7168)  # the photographs are in the first pack as well
    whole = sorted(samples.glob("*.JPEG"))
    to_learn = [path for at, path in enumerate(whole) if at % 5] + sorted((bsds / "train").glob("*.jpg"))
    validation = sorted((bsds / "val").glob("*.jpg"))
    write_pack(
        out / "a.npz",
        {
            "photographs": pack_photographs(to_learn, seed=1, workers=workers),
            "held-photographs-bsds": pack_photographs(validation, seed=2, workers=workers),
            "held-photographs-imagenet": pack_photographs(whole[::5], seed=3, workers=workers),
            "held-thumbnails": pack_thumbnails(others[:HELD_OUT], seed=4, quality=60, workers=workers),
            "thumbnails": pack_thumbnails(learn[:first], seed=5, quality=quality, workers=workers),
        },
    )
    rest = pack_thumbnails(learn[first:], seed=6, quality=quality, workers=workers)
    write_pack(out / "b.npz", {"thumbnails": rest})


def _pack_squashed(folder: Path, out: Path, quality: int, workers: Mapper) -> None:
    paths = sorted(folder.glob("*.jpg"))
    paths = [paths[at] for at in np.random.default_rng(2).permutation(len(paths))]
    held, learn = paths[:HELD_OUT], paths[HELD_OUT:]
    for number, name in enumerate("cde"):
        some = learn[number::3]
        groups = {
            "squashed": pack_thumbnails(
                some, seed=8 + number, quality=quality, squashed=True, workers=workers
            )
        }
        if not number:
            groups["held-squashed"] = pack_thumbnails(
                held, seed=7, quality=60, squashed=True, workers=workers
            )
        write_pack(out / f"{name}.npz", groups)


def pack_thumbnails(
    paths: Sequence[Path],
    *,
    seed: int = 0,
    quality: int = 30,
    squashed: bool = False,
    workers: Mapper = map,
) -> Group:
    """Pictures of 64×64 pixels, or squares of 96×96 out of squashed ones, in a random order."""
    chooser = np.random.default_rng(seed)
    paths = [paths[at] for at in chooser.permutation(len(paths))]
    turns = chooser.integers(4, size=len(paths))
    many = IN_ROW**2
    jobs = [
        (paths[at : at + many], turns[at : at + many], quality, chooser.integers(2**32) if squashed else None)
        for at in range(0, len(paths), many)
    ]
    return _group(list(workers(_sheet, jobs)), turns, SQUARE if squashed else TINY)


def pack_photographs(
    paths: Sequence[Path], *, seed: int = 0, quality: int = 85, workers: Mapper = map
) -> Group:
    """Whole photographs, their shorter side scaled to 192 pixels."""
    turns = np.random.default_rng(seed).integers(4, size=len(paths))
    return _group(
        list(workers(_photograph, zip(paths, turns, [quality] * len(paths), strict=True))),
        turns,
        side=0,
    )


def write_pack(path: str | os.PathLike[str], groups: dict[str, Group]) -> None:
    """Write groups by name into one file."""
    content = io.BytesIO()
    arrays: dict[str, Any] = {
        f"{name}/{key}": value for name, group in groups.items() for key, value in group.items()
    }
    np.savez(content, **arrays)
    write_whole(path, content.getvalue())


def read_packs(paths: Iterable[str | os.PathLike[str]], workers: Mapper = map) -> dict[str, list[np.ndarray]]:
    """The upright pictures of each group, uint8 ``(height, width, 3)``, of all packs together."""
    groups: dict[str, list[np.ndarray]] = {}
    for path in paths:
        with np.load(path, allow_pickle=False) as pack:
            for name in sorted({key.split("/")[0] for key in pack.files}):
                data, ends = pack[f"{name}/bytes"], pack[f"{name}/ends"]
                turns, side = pack[f"{name}/turns"], int(pack[f"{name}/side"])
                step = IN_ROW**2 if side else 1
                jobs = [
                    (data[start:end].tobytes(), turns[step * at : step * (at + 1)], side)
                    for at, (start, end) in enumerate(zip([0, *ends], ends, strict=False))
                ]
                for pictures in workers(_opened, jobs):
                    groups.setdefault(name, []).extend(pictures)
    return groups


def windows(job: tuple[np.ndarray, int, int]) -> np.ndarray:
    """Random squares of a photograph at 96 pixels, uint8 ``(count, 96, 96, 3)``; from picture, count, seed.

    They show at least half of its shorter side. The first is the middle square, as large as it can be.
    """
    from PIL import Image

    picture, count, seed = job
    chooser = np.random.default_rng(seed)
    image, (height, width) = Image.fromarray(picture), picture.shape[:2]
    shorter, found = min(height, width), []
    for number in range(count):
        side = shorter * (1.0 if number == 0 else math.exp(chooser.uniform(math.log(0.5), 0)))
        down, right = (0.5, 0.5) if number == 0 else chooser.uniform(size=2)
        top, left = down * (height - side), right * (width - side)
        box = (left, top, left + side, top + side)
        found.append(np.asarray(image.resize((SQUARE, SQUARE), Image.Resampling.LANCZOS, box=box)))
    return np.stack(found)


def enlarged(picture: np.ndarray) -> np.ndarray:
    """A picture of Tiny ImageNet at 96 pixels."""
    from PIL import Image

    return np.asarray(Image.fromarray(picture).resize((SQUARE, SQUARE), Image.Resampling.BICUBIC))


def _group(files: list[bytes], turns: np.ndarray, side: int) -> Group:
    """A group of thumbnails of ``side`` pixels in a row, or of whole photographs if that is 0."""
    return {
        "bytes": np.frombuffer(b"".join(files), np.uint8),
        "ends": np.cumsum([len(file) for file in files], dtype=np.int64),
        "turns": turns.astype(np.uint8),
        "side": np.array(side),
    }


def unsquashed(picture: np.ndarray, chooser: np.random.Generator) -> np.ndarray:
    """A square of 96×96 pixels out of a photograph that was squashed to a square.

    What it was before is not known. Half of them are made wide again, by a third, as most photographs are
    wide: then things are on average neither too narrow nor too wide, which would tell how they stand.
    """
    from PIL import Image

    width = SQUARE * 4 // 3 if chooser.random() < 0.5 else SQUARE
    left = int(chooser.integers(width - SQUARE + 1))
    small = Image.fromarray(picture).resize((width, SQUARE), Image.Resampling.LANCZOS)
    return np.asarray(small)[:, left : left + SQUARE]


def _sheet(job: tuple[Sequence[Path], np.ndarray, int, int | None]) -> bytes:
    paths, turns, quality, seed = job
    chooser = None if seed is None else np.random.default_rng(seed)
    side = TINY if chooser is None else SQUARE
    sheet = np.full((IN_ROW, IN_ROW, side, side, 3), 128, np.uint8)
    for at, (path, turn) in enumerate(zip(paths, turns, strict=True)):
        picture = read_picture(path)
        small = picture if chooser is None else unsquashed(picture, chooser)
        sheet[divmod(at, IN_ROW)] = np.rot90(small, -turn)
    whole = sheet.transpose(0, 2, 1, 3, 4).reshape(IN_ROW * side, IN_ROW * side, 3)
    return _webp(whole, quality)


def _photograph(job: tuple[Path, int, int]) -> bytes:
    path, turn, quality = job
    picture = read_picture(path)
    height, width = picture.shape[:2]
    longest = round(SHORTER * max(height, width) / min(height, width))
    return _webp(np.rot90(at_most(picture, longest), -turn), quality)


def _webp(picture: np.ndarray, quality: int) -> bytes:
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(content, "WEBP", quality=quality, method=6)
    return content.getvalue()


def _opened(job: tuple[bytes, np.ndarray, int]) -> list[np.ndarray]:
    from PIL import Image

    data, turns, side = job
    whole = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    if not side:
        return [np.ascontiguousarray(np.rot90(whole, int(turns[0])))]
    sheet = whole.reshape(IN_ROW, side, IN_ROW, side, 3).transpose(0, 2, 1, 3, 4)
    return [
        np.ascontiguousarray(np.rot90(sheet[divmod(at, IN_ROW)], int(turn))) for at, turn in enumerate(turns)
    ]
