"""Pictures of the user's: any file that Pillow reads, as plain RGB bytes, and squares of a given size."""

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.errors import FactorankError

LARGEST = 100_000_000
"""The most pixels that are unpacked. A JPEG that has more is read at a fraction of its size."""
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm"}
"""The files of a folder that are taken for pictures."""


def read_picture(path: str | os.PathLike[str]) -> np.ndarray:
    """A picture as it should be seen: uint8 ``(height, width, 3)``.

    Turned as its EXIF data say; the first frame of an animation; transparent parts on white; 16-bit grey
    brought down to bytes.
    """
    image_module, operations = _pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a size below our own limit, of odd metadata
            with image_module.open(path) as image:
                image.draft("RGB", (4096, 4096))  # where the format can: read at a half, a quarter, an eighth
                _check_size(path, image.size)
                image.load()
                return _rgb(image_module, operations.exif_transpose(image))
    except image_module.DecompressionBombError:
        raise FactorankError(
            f"{path}: the picture says it has more pixels than is reasonable; make it smaller first"
        ) from None
    except image_module.UnidentifiedImageError:
        raise FactorankError(f"{path}: not a picture that can be read") from None
    except FactorankError:
        raise
    except OSError as error:
        if error.errno is not None:  # the file system's own words: no such file, no permission
            raise
        raise FactorankError(f"{path}: the picture is damaged: {error}") from None
    except (SyntaxError, ValueError, EOFError, IndexError, KeyError, OverflowError) as error:
        raise FactorankError(f"{path}: the picture is damaged: {error}") from None


def square(picture: np.ndarray) -> np.ndarray:
    """The middle square of a picture ``(height, width, 3)``."""
    height, width = picture.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return picture[top : top + side, left : left + side]


def resized(picture: np.ndarray, side: int) -> np.ndarray:
    """A square picture scaled to ``side`` pixels, each the average of what it covers."""
    image_module, _ = _pillow()
    image = image_module.fromarray(np.ascontiguousarray(picture))
    return np.array(image.resize((side, side), image_module.Resampling.LANCZOS))


def read_folder(folder: str | os.PathLike[str], side: int) -> Tensor:
    """Every picture under a folder, by name, as squares of that side: uint8 ``(pictures, side, side, 3)``."""
    paths = sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in SUFFIXES)
    if not paths:
        raise FactorankError(f"{folder} has no pictures: no file in it ends in {', '.join(sorted(SUFFIXES))}")
    return torch.from_numpy(np.stack([resized(square(read_picture(path)), side) for path in paths]))


def _check_size(path: str | os.PathLike[str], size: tuple[int, int]) -> None:
    width, height = size
    if width * height > LARGEST:
        raise FactorankError(
            f"{path}: the picture has {width}×{height} pixels, more than the {LARGEST // 10**6} million that"
            " are unpacked; make it smaller first"
        )


def _rgb(image_module: Any, image: Any) -> np.ndarray:
    if image.mode.startswith("I") or image.mode == "F":  # more than 8 bits; Pillow would cut them off
        deep = np.asarray(image, dtype=np.float64)
        deep = np.nan_to_num(deep, nan=0.0, posinf=0.0, neginf=0.0)
        low, high = min(0.0, deep.min()), max(255.0, deep.max())
        high = 65535.0 if 255 < high <= 65535 and image.mode.startswith("I") else high
        grey = np.round((deep - low) * (255 / (high - low))).astype(np.uint8)
        return np.repeat(grey[..., None], 3, -1)
    if "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        image = image_module.alpha_composite(image_module.new("RGBA", image.size, "white"), image)
    return np.array(image.convert("RGB"))


def _pillow() -> Any:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise FactorankError("pictures need Pillow: pip install 'factorank[figures]'") from None
    return Image, ImageOps
