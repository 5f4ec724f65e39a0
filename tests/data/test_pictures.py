"""Pictures of every kind that people have, and of the kinds that cannot be read."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

import factorank as fr
from factorank.data import pictures
from factorank.data.pictures import read_folder, read_picture, resized, square

SHADES = np.arange(0, 240, 10, dtype=np.uint8).reshape(4, 6)
COLOURS = np.stack([SHADES, SHADES[::-1], SHADES[:, ::-1]], -1)


def saved(path, image, **options):
    image.save(path, **options)
    return read_picture(path)


def test_plain_colours_and_grey(tmp_path):
    assert np.array_equal(saved(tmp_path / "a.png", Image.fromarray(COLOURS)), COLOURS)
    grey = saved(tmp_path / "b.png", Image.fromarray(SHADES))
    assert np.array_equal(grey, np.repeat(SHADES[..., None], 3, -1))
    black_and_white = saved(tmp_path / "c.png", Image.fromarray(SHADES > 100))
    assert np.array_equal(black_and_white[..., 0], np.where(SHADES > 100, 255, 0))


def test_sixteen_bits_are_brought_down_and_not_cut_off(tmp_path):
    deep = SHADES.astype(np.uint16) * 257
    read = saved(tmp_path / "a.png", Image.fromarray(deep))
    assert np.array_equal(read, np.repeat(SHADES[..., None], 3, -1))
    read = saved(tmp_path / "b.tif", Image.fromarray(deep.astype(np.int32)))
    assert np.array_equal(read[..., 0], SHADES)
    floats = saved(tmp_path / "c.tif", Image.fromarray(SHADES.astype(np.float32)))
    assert np.array_equal(floats[..., 0], SHADES)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white(mode, tmp_path):
    alpha = np.where(SHADES < 100, 0, 255).astype(np.uint8)
    source = Image.fromarray(np.dstack([COLOURS, alpha]))
    path = tmp_path / "a.png"
    if mode == "P":
        image = source.convert("RGB").quantize(200)
        image.info["transparency"] = image.getpixel((0, 0))
        image.save(path)
        read = read_picture(path)
        assert read[0, 0].tolist() == [255, 255, 255]
        assert read[3, 5].tolist() == COLOURS[3, 5].tolist()
        return
    read = saved(path, source.convert(mode))
    assert (read[SHADES < 100] == 255).all()
    expected = np.asarray(source.convert("L" if mode == "LA" else "RGB"))[SHADES >= 100]
    assert np.array_equal(read[SHADES >= 100][:, 0], expected if mode == "LA" else expected[:, 0])


@pytest.mark.parametrize("turn", range(1, 9))
def test_it_is_turned_as_the_camera_says(turn, tmp_path):
    image = Image.fromarray(COLOURS)
    exif = image.getexif()
    exif[0x0112] = turn
    read = saved(tmp_path / "a.png", image, exif=exif)
    rows = {1: (0, 0), 2: (0, -1), 3: (-1, -1), 4: (-1, 0), 5: (0, 0), 6: (-1, 0), 7: (-1, -1), 8: (0, -1)}
    assert read.shape == ((4, 6, 3) if turn < 5 else (6, 4, 3))
    assert read[0, 0].tolist() == COLOURS[rows[turn]].tolist()


def test_first_frame_of_an_animation(tmp_path):
    frames = [Image.fromarray(np.full((5, 5, 3), shade, dtype=np.uint8)) for shade in (40, 200)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert (read_picture(tmp_path / "a.gif") == 40).all()


def test_cmyk_and_jpeg(tmp_path):
    read = saved(tmp_path / "a.jpg", Image.fromarray(np.full((9, 9, 3), 90, dtype=np.uint8)).convert("CMYK"))
    assert np.abs(read.astype(int) - 90).max() <= 3


def png_of_size(width, height):
    """A PNG that says it is large and holds next to nothing."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a picture that can be read"),
        (b"<html>", "not a picture that can be read"),
        (png_of_size(10_001, 10_000), "has 10001×10000 pixels, more than the 100 million that are unpacked"),
        (png_of_size(60_000, 60_000), "more pixels than is reasonable; make it smaller"),
        (png_of_size(0, 7), "damaged|not a picture"),
        (png_of_size(300, 300), "the picture is damaged"),
    ],
)
def test_what_cannot_be_read(content, message, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(content)
    with pytest.raises(fr.FactorankError, match=message) as caught:
        read_picture(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "tiff", "webp", "bmp"])
def test_cut_off_anywhere_it_is_a_clear_error_or_a_picture(kind, tmp_path):
    data = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(noise).save(data, format=kind)
    whole, errors = data.getvalue(), 0
    path = tmp_path / "picture"
    for length in [*range(0, 200, 7), *range(200, len(whole), len(whole) // 12)]:
        path.write_bytes(whole[:length])
        try:
            assert read_picture(path).shape[2] == 3
        except fr.FactorankError:
            errors += 1
    assert errors > 20


def test_no_such_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_picture(tmp_path / "a.png")
    with pytest.raises(IsADirectoryError):
        read_picture(tmp_path)


def test_without_pillow_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(fr.FactorankError, match=r"pictures need Pillow: pip install 'factorank\[figures\]'"):
        pictures.read_picture(tmp_path / "a.png")


def test_squares():
    wide = np.arange(4 * 7 * 3, dtype=np.uint8).reshape(4, 7, 3)
    assert np.array_equal(square(wide), wide[:, 1:5])
    assert np.array_equal(square(wide.transpose(1, 0, 2)), wide.transpose(1, 0, 2)[1:5])
    assert resized(square(wide), 2).shape == (2, 2, 3)
    assert (resized(np.full((9, 9, 3), 77, dtype=np.uint8), 4) == 77).all()


def test_read_folder_names_the_bad_file(tmp_path):
    Image.fromarray(COLOURS).save(tmp_path / "a.PNG")
    (tmp_path / "deep").mkdir()
    Image.fromarray(COLOURS).save(tmp_path / "deep" / "b.jpg")
    assert read_folder(tmp_path, 8).shape == (2, 8, 8, 3)
    (tmp_path / "deep" / "c.png").write_bytes(b"broken")
    with pytest.raises(fr.FactorankError, match=r"deep/c.png: not a picture"):
        read_folder(tmp_path, 8)
