"""Pictures from files that Pillow reads: RGB bytes, and squares of one size."""

import os
import re
import struct
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.errors import FactorankError

LARGEST = 100_000_000
"""The most pixels that are unpacked. A JPEG that has more is read at a fraction of its size."""
LARGEST_JPEG = 250_000_000
"""The most pixels of a JPEG, above the 200 million of today's phones. A JPEG that is stored in several passes
is held in memory whole, at six bytes a pixel, even if it is read at a fraction."""
LARGEST_FILE = 1 << 29
"""The most bytes of a file that is read as a picture."""
SIDE_READ = 4096
"""A JPEG whose shorter side is at least twice this is read at a fraction: no puzzle shows more."""
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm"}
"""The suffixes of files in a folder that are read as pictures."""
FORMATS = (
    *("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "PPM", "JPEG2000", "AVIF", "HEIF"),
    *("ICO", "ICNS", "TGA", "PCX", "SGI", "PSD", "DDS", "QOI"),
)
"""The formats that are read, whatever a file is called: those that Pillow decodes itself."""
DAMAGED = (
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    OverflowError,
    RuntimeError,
    struct.error,
)
"""What Pillow raises for damaged files, besides ``OSError``."""
NAMED = 5
"""The most broken pictures of a folder that an error names."""


def read_picture(path: str | os.PathLike[str]) -> np.ndarray:
    """A picture as a viewer shows it: uint8 ``(height, width, 3)``.

    It is turned as its EXIF data say. Of an animation the first frame is read. Transparent parts become
    white. A large JPEG is read at a half, a quarter or an eighth of its size.

    Numbers of more than 8 bits are scaled to bytes. Few files say which value is white, so it is derived from
    the values: white is the least of 1 (floats only), 255 and 65535 that no value exceeds. If the largest
    value is below a quarter of that, as with 10, 12 or 14 bits in a file of 16, the largest value is white,
    or the picture would be nearly black. Floats from 0 to 1 are always multiplied by 255, so that a dark
    picture stays dark. If there are values below 0, the smallest is black and the largest white.
    """
    pillow = _pillow()
    if Path(path).is_dir():
        raise FactorankError(f"{path}: a folder, not a picture")
    if (size := os.stat(path).st_size) > LARGEST_FILE:
        raise FactorankError(
            f"{path}: {size:,} bytes, more than the {LARGEST_FILE:,} of a picture that is read"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a size below our own limit, of odd metadata
            with _opened(path) as image:
                _fit(path, image)
                # Pillow keeps the upper 8 of colours of 16 bits; before it loads them, the tile tells.
                wide = image.tile and _packing(image.tile[0])[:-1] in ("RGB;16", "RGBX;16", "RGBA;16")
                image.load()
                if wide and max(high for _, high in image.getextrema()[:3]) < 64:
                    _brighten(path, image)
                pillow.ImageOps.exif_transpose(image, in_place=True)
                return _rgb(image)
    except pillow.Image.DecompressionBombError as error:  # of a reader that does not name the sides
        match = re.search(r"\((\d+) pixels", str(error))
        raise _too_large(path, f"{int(match[1]):,}" if match else "too many") from None
    except pillow.UnidentifiedImageError:
        raise FactorankError(f"{path}: not a picture that can be read") from None
    except FactorankError:
        raise
    except MemoryError:
        raise FactorankError(f"{path}: the picture is too large for the memory of this machine") from None
    except (OSError, *DAMAGED) as error:
        if isinstance(error, OSError) and error.filename is not None:  # no such file, no permission
            raise
        raise FactorankError(f"{path}: the picture is damaged: {error}") from None


def square(picture: np.ndarray) -> np.ndarray:
    """The middle square of a picture ``(height, width, 3)``."""
    height, width = picture.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return picture[top : top + side, left : left + side]


def resized(picture: np.ndarray, side: int) -> np.ndarray:
    """A square picture scaled to ``side`` pixels, each the average of the area that it covers."""
    module = _pillow().Image
    image = module.fromarray(np.ascontiguousarray(picture))
    return np.array(image.resize((side, side), module.Resampling.LANCZOS))


def at_most(picture: np.ndarray, longest: int) -> np.ndarray:
    """A picture scaled down so that no side is longer; as it is if it is smaller."""
    height, width = picture.shape[:2]
    if max(height, width) <= longest:
        return picture
    module = _pillow().Image
    scale = longest / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return np.array(module.fromarray(picture).resize(size, module.Resampling.LANCZOS, reducing_gap=2.0))


def picture_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The pictures under a folder, sorted by name.

    A picture has one of the suffixes :data:`SUFFIXES`. Hidden files and hidden folders are skipped: they are
    previews and notes of other programs.
    """
    top = Path(folder)
    if not top.exists():
        raise FactorankError(f"there is no folder {folder}")
    if not top.is_dir():
        raise FactorankError(f"{folder} is a file; give the folder that the pictures are in")
    paths = sorted(
        path
        for path in top.rglob("*")
        if path.suffix.lower() in SUFFIXES and "/." not in f"/{path.relative_to(top).as_posix()}"
        if not path.is_dir()
    )
    if not paths:
        endings = ", ".join(sorted(SUFFIXES))
        raise FactorankError(f"{folder} has no pictures: no file in it, hidden ones aside, ends in {endings}")
    return paths


def read_folder(folder: str | os.PathLike[str], side: int) -> Tensor:
    """Every picture under a folder (:func:`picture_files`) as squares: uint8 ``(pictures, side, side, 3)``.

    A single error names the pictures that cannot be read.
    """
    _pillow()
    top, paths = Path(folder), picture_files(folder)
    squares, broken = [], []
    for path in paths:
        try:
            squares.append(resized(square(read_picture(path)), side))
        except FactorankError as error:
            broken.append(f"{path.relative_to(top)}: {str(error).removeprefix(f'{path}: ')}")
        except OSError as error:
            broken.append(f"{path.relative_to(top)}: {error.strerror}")
    if broken:
        more = [f"and {len(broken) - NAMED} more"] if len(broken) > NAMED else []
        fault = f"{len(broken)} of {len(paths)} pictures cannot be read; mend or remove them"
        raise FactorankError(f"{folder}: {fault}: {'; '.join(broken[:NAMED] + more)}")
    return torch.from_numpy(np.stack(squares))


def _opened(path: str | os.PathLike[str]) -> Any:
    """A picture of any size with its header read; call :func:`_fit` before reading the rest.

    Pillow refuses a large picture while it opens it, before a JPEG can be requested at a fraction and without
    naming width and height. Its readers, called one by one here as Pillow calls them, do not refuse it, and
    Pillow's limit stays set.
    """
    module = _pillow().Image
    module.init()
    formats = [name for name in FORMATS if name in module.OPEN]
    try:
        return module.open(path, formats=formats)
    except module.DecompressionBombError:
        with open(path, "rb") as file:
            start = file.read(16)
        for reader, accepts in [module.OPEN[name] for name in formats]:
            accepted = accepts is not None and accepts(start)
            if accepted and not isinstance(accepted, str):  # a string says why it is not accepted
                with suppress(SyntaxError, IndexError, TypeError, struct.error):  # not of this kind after all
                    return reader(os.fspath(path))
        raise


def _fit(path: str | os.PathLike[str], image: Any) -> None:
    """Request a large JPEG at a fraction; refuse a picture that is too large to unpack."""
    width, height = image.size
    limit = _limit()
    if image.format in ("JPEG", "MPO"):
        if width * height > LARGEST_JPEG:
            raise _too_large(path, f"{width}×{height}", f"{LARGEST_JPEG:,} of a JPEG that is read")
        least = next((part for part in (1, 2, 4) if -(-width // part) * -(-height // part) <= limit), 8)
        # Pillow takes the largest of 1, 2, 4 and 8 that leaves both sides at least as long as requested.
        image.draft("RGB", tuple(max(1, min(SIDE_READ, length // least)) for length in (width, height)))
    if image.size[0] * image.size[1] > limit:
        raise _too_large(path, f"{width}×{height}")


def _too_large(path: str | os.PathLike[str], pixels: str, most: str = "") -> FactorankError:
    most = f"more than the {most or f'{_limit():,} that are unpacked'}"
    return FactorankError(f"{path}: the picture has {pixels} pixels, {most}; make it smaller first")


def _limit() -> int:
    """The most pixels that are unpacked: our limit, or Pillow's if the program has set it lower."""
    most = _pillow().Image.MAX_IMAGE_PIXELS
    return LARGEST if most is None else min(LARGEST, 2 * most)  # Pillow warns from one and refuses from two


def _rgb(image: Any) -> np.ndarray:
    if image.mode.startswith("I") or image.mode == "F":  # more than 8 bits; Pillow would cut them off
        deep = np.nan_to_num(np.asarray(image, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        low, high = min(0.0, deep.min()), deep.max()
        white = high if low < 0 else _white(high, floats=image.mode == "F")
        span = (white - low) or 1.0  # none if all pixels have one value below 0
        grey = np.round((deep - low) * (255 / span)).astype(np.uint8)
        return np.repeat(grey[..., None], 3, -1)
    if "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        module = _pillow().Image
        image = module.alpha_composite(module.new("RGBA", image.size, "white"), image)
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _packing(tile: Any) -> str:
    """The layout of pixels in a part of the file, such as "RGB;16B", that Pillow passes to its decoder."""
    args = tile[3]
    return str(args[0] if isinstance(args, tuple) and args else args)


def _brighten(path: str | os.PathLike[str], image: Any) -> None:
    """Scale colours of 16 bits whose upper bytes, those in ``image``, are nearly black.

    With the byte order swapped, Pillow reads the lower bytes.
    """
    with _opened(path) as low:
        tiles = []
        for tile in low.tile:
            kind, order = _packing(tile)[:-1], _packing(tile)[-1]
            big = order == "B" or (order == "N" and sys.byteorder == "big")
            packing = kind + ("L" if big else "B")
            args = (packing, *tile[3][1:]) if isinstance(tile[3], tuple) else packing
            tiles.append((*tile[:3], args) if type(tile) is tuple else tile._replace(args=args))
        low.tile = tiles
        low.load()
        upper, lower = np.array(image), np.asarray(low)
    colours = upper[..., :3].astype(np.uint16) << 8 | lower[..., :3]
    white = _white(float(colours.max()), floats=False)
    scaled = np.round(np.arange(int(white) + 1) * (255 / white)).astype(np.uint8)
    upper[..., :3] = scaled[colours]
    image.paste(_pillow().Image.fromarray(upper))


def _white(high: float, *, floats: bool) -> float:
    """The white value of a picture with values from 0 to ``high``: see :func:`read_picture`."""
    if floats and high <= 1:
        return 1.0
    scale = next((scale for scale in (255.0, 65535.0) if high <= scale), high)
    return scale if high == 0 or high >= scale / 4 else high


def _pillow() -> Any:
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError:
        raise FactorankError("pictures need Pillow: pip install 'factorank[figures]'") from None
    return PIL
