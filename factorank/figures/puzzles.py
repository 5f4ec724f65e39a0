"""A solved puzzle as a picture at full resolution, and as an animation."""

import io
from typing import Any

import numpy as np

from factorank.figures.drawing import AnyPath
from factorank.files import write_whole

WRONG, DOUBT = (220, 30, 30), (255, 150, 0)
FRAMES = 40
"""The most frames of an animation."""
SIDE = 640
"""The longer side of an animation, in pixels."""
MILLISECONDS = 120, 2500
"""How long a frame of an animation stays, and the last one."""


def solution_picture(answer: Any, path: AnyPath) -> None:
    """Write the solution of a :class:`factorank.jigsaw.Answer` at full resolution, by the suffix of the path.

    Doubtful pieces have an orange frame with their probability. Where the truth is known, wrong ones are
    framed and crossed out in red. The pixels of all other pieces are as they were given.
    """
    from PIL import Image, ImageDraw

    image = Image.fromarray(answer.picture)
    draw = ImageDraw.Draw(image)
    wrong = answer.wrong if answer.true_slots is not None else []
    for slot, chance in answer.doubtful.items():
        box = _box(answer, slot)
        _frame(draw, box, DOUBT)
        _label(draw, box, f"{100 * chance:.0f}%")
    for slot in wrong:
        left, top, right, bottom = box = _box(answer, slot)
        thickness = _frame(draw, box, WRONG)
        for ends in ((left, top, right, bottom), (left, bottom, right, top)):
            draw.line(ends, fill=WRONG, width=max(1, thickness // 2))
    _write(image, path)


def steps_animation(answer: Any, path: AnyPath) -> None:
    """Write a GIF that reveals the solution, the most certain pieces first, from a grey board.

    Without probabilities of single pieces they come row by row.
    """
    from PIL import Image

    n = len(answer.pieces)
    certain = answer.piece_probability
    order = np.argsort(answer.slots) if certain is None else np.argsort(-np.asarray(certain), kind="stable")
    scale = min(1.0, SIDE / max(answer.picture.shape))
    piece_height, piece_width = (max(1, round(scale * length)) for length in answer.pieces.shape[1:3])
    size = answer.grid[1] * piece_width, answer.grid[0] * piece_height
    small = Image.fromarray(answer.picture).resize(size, reducing_gap=2.0)
    empty = Image.new("RGB", size, (128, 128, 128))
    # One palette for all frames, with the grey of empty slots in it.
    both = Image.new("RGB", (size[0], size[1] + 8), (128, 128, 128))
    both.paste(small)
    palette = both.quantize(255)
    whole, board, start = (
        picture.quantize(palette=palette, dither=Image.Dither.NONE)
        for picture in (small, empty, Image.fromarray(answer.scrambled).resize(size, reducing_gap=2.0))
    )
    frames = [start, board.copy()]
    per_frame = -(-n // FRAMES)
    for first in range(0, n, per_frame):
        for piece in order[first : first + per_frame]:
            row, column = divmod(int(answer.slots[int(piece)]), answer.grid[1])
            left, top = column * piece_width, row * piece_height
            board.paste(whole.crop((left, top, left + piece_width, top + piece_height)), (left, top))
        frames.append(board.copy())
    content, (each, last) = io.BytesIO(), MILLISECONDS
    times = [10 * each, *[each] * (len(frames) - 2), last]
    frames[0].save(content, "GIF", save_all=True, append_images=frames[1:], duration=times, loop=0)
    write_whole(path, content.getvalue())


def _box(answer: Any, slot: int) -> tuple[int, int, int, int]:
    """The first and last column and row of a slot, as left, top, right, bottom."""
    height, width = answer.pieces.shape[1:3]
    row, column = divmod(slot, answer.grid[1])
    return column * width, row * height, (column + 1) * width - 1, (row + 1) * height - 1


def _frame(draw: Any, box: tuple[int, int, int, int], colour: tuple[int, int, int]) -> int:
    thickness = max(1, min(box[2] - box[0], box[3] - box[1]) // 24)
    draw.rectangle(box, outline=colour, width=thickness)
    return thickness


def _label(draw: Any, box: tuple[int, int, int, int], text: str) -> None:
    """Text in the upper left corner of a box, where it is large enough to be read."""
    from PIL import ImageFont

    size = min(box[2] - box[0], box[3] - box[1]) // 4
    if size < 8:
        return
    font = ImageFont.load_default(size)
    at = box[0] + size // 3, box[1] + size // 4
    draw.rectangle(draw.textbbox(at, text, font=font), fill=(0, 0, 0))
    draw.text(at, text, fill=DOUBT, font=font)


def _write(image: Any, path: AnyPath) -> None:
    from PIL import Image

    content, suffix = io.BytesIO(), str(path).rpartition(".")[2].lower()
    options: dict[str, Any] = {"png": {"compress_level": 1}, "jpg": {"quality": 92}}.get(suffix, {})
    image.save(content, Image.registered_extensions()[f".{suffix}"], **options)
    write_whole(path, content.getvalue())
