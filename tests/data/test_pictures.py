"""Pictures of every kind that people have, and of the kinds that cannot be read."""

import io
import re
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, features

import factorank as fr
from factorank.data import pictures
from factorank.data.pictures import at_most, read_folder, read_picture, resized, square

SHADES = np.arange(0, 240, 10, dtype=np.uint8).reshape(4, 6)
COLOURS = np.stack([SHADES, SHADES[::-1], SHADES[:, ::-1]], -1)


def saved(path, image, **options):
    image.save(path, **options)
    return read_picture(path)


def png_of(header, data):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def png_of_size(width, height):
    """A PNG that says it is large and holds next to nothing."""
    return png_of(struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), zlib.compress(b"\0" * 1000))


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


@pytest.mark.parametrize(
    ("kind", "values", "white"),
    [
        (np.uint16, [0, 1000, 4095], 4095),  # 12 bits in a file of 16
        (np.uint16, [0, 1000, 1023], 1023),
        (np.uint16, [0, 1000, 16383], 16383),
        (np.uint16, [0, 1000, 16384], 65535),
        (np.uint16, [0, 1000, 65535], 65535),
        (np.uint16, [0, 100, 200], 255),  # bytes
        (np.uint16, [0, 1, 2], 2),
        (np.int32, [0, 1000, 4095], 4095),
        (np.int32, [0, 1000, 100_000], 100_000),
        (np.float32, [0, 0.5, 1], 1),
        (np.float32, [0, 0.1, 0.2], 1),  # a dark picture, not one of fewer bits
        (np.float32, [0, 0.5, 1.02], 1.02),  # sharpened, a little above white
        (np.float32, [0, 100, 200], 255),
        (np.float32, [0, 1000, 4095], 4095),
    ],
)
def test_white_is_found_from_what_the_file_holds(kind, values, white, tmp_path):
    deep = np.array(values, dtype=kind)[[0, 1, 2, 2, 1, 0]].reshape(2, 3)
    expected = np.round(255 * deep.astype(np.float64) / white)
    for suffix in ("png", "tif") if kind == np.uint16 else ("tif",):
        read = saved(tmp_path / f"a.{suffix}", Image.fromarray(deep))
        assert np.array_equal(read, np.repeat(expected[..., None], 3, -1))


def png_of_colours(colours):
    """A PNG of 16 bits a colour, which Pillow cannot write."""
    height, width, bands = colours.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in colours)
    return png_of(
        struct.pack(">IIBBBBB", width, height, 16, {3: 2, 4: 6}[bands], 0, 0, 0), zlib.compress(rows)
    )


def tiff_of_colours(colours, order, *, packed=False):
    """A TIFF of 16 bits a colour, in strips of two rows, with the bytes of a number in that order."""
    height, width, bands = colours.shape
    strips = [colours[row : row + 2].astype(f"{order}u2").tobytes() for row in range(0, height, 2)]
    strips = [zlib.compress(strip) for strip in strips] if packed else strips
    count, extra = len(strips), [(338, 4, 1, 2)] * (bands - 3)  # a fourth band is opacity
    bits = 8 + 2 + 12 * (9 + len(extra)) + 4  # the place of numbers that do not fit into the table
    places, sizes = bits + 2 * bands, [len(strip) for strip in strips]
    starts = [places + 8 * count + sum(sizes[:i]) for i in range(count)]
    table = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, bands, bits), (259, 4, 1, 8 if packed else 1)]
    table += [(262, 4, 1, 2), (273, 4, count, places), (277, 4, 1, bands), (278, 4, 1, 2)]
    table += [(279, 4, count, places + 4 * count), *extra]
    data = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}IH", 8, len(table))
    data += b"".join(struct.pack(f"{order}HHII", *row) for row in table) + bytes(4)
    data += struct.pack(f"{order}{bands}H", *[16] * bands)
    return data + struct.pack(f"{order}{2 * count}I", *starts, *sizes) + b"".join(strips)


@pytest.mark.parametrize(
    "encode",
    [
        png_of_colours,
        lambda colours: tiff_of_colours(colours, "<"),
        lambda colours: tiff_of_colours(colours, ">"),
        lambda colours: tiff_of_colours(colours, "<", packed=True),
        lambda colours: tiff_of_colours(colours, ">", packed=True),
    ],
    ids=["png", "tiff", "tiff big-endian", "tiff packed", "tiff big-endian packed"],
)
@pytest.mark.parametrize("bands", [3, 4])
@pytest.mark.parametrize("bits", [4, 8, 10, 12, 14, 16])
def test_colours_of_fewer_bits_than_the_file_has_are_seen(encode, bands, bits, tmp_path):
    high = 2**bits - 1
    colours = np.random.default_rng(bits).integers(0, high + 1, (5, 7, bands), dtype=np.uint16)
    colours[0, 0] = high
    colours[..., 3:] = 65535
    path = tmp_path / "a"
    path.write_bytes(encode(colours))
    read = read_picture(path)
    if bits == 16:  # the upper byte is as good
        assert np.array_equal(read, colours[..., :3] >> 8)
    else:
        assert np.array_equal(read, np.round(colours[..., :3] * (255 / high)))


@pytest.mark.parametrize(
    ("kind", "value"),
    [(np.uint16, 0), (np.int32, 0), (np.int32, -5), (np.float32, 0), (np.float32, -5), (np.float32, np.nan)],
)
def test_a_picture_of_one_value_is_black(kind, value, tmp_path):
    assert (saved(tmp_path / "a.tif", Image.fromarray(np.full((3, 4), value, dtype=kind))) == 0).all()


def test_values_below_0_run_from_the_smallest_to_the_largest(tmp_path):
    read = saved(tmp_path / "a.tif", Image.fromarray(np.array([[-1, 0], [1, 3]], dtype=np.float32)))
    assert read[..., 0].tolist() == [[0, 64], [128, 255]]


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a picture that can be read"),
        (b"<html>", "not a picture that can be read"),
        (png_of_size(10_001, 10_000), "has 10001×10000 pixels, more than the 100,000,000 that are"),
        (png_of_size(60_000, 60_000), "has 60000×60000 pixels, more than the 100,000,000 that are"),
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


def test_a_jpeg_of_200_million_pixels_is_read_at_a_fraction(tmp_path):
    path = tmp_path / "phone.jpg"
    Image.new("L", (16320, 12240), 70).save(path)
    limit = Image.MAX_IMAGE_PIXELS
    assert 2 * limit < 16320 * 12240  # Pillow itself would not open it
    read = read_picture(path)
    assert read.shape == (6120, 8160, 3)
    assert (read == 70).all()
    assert limit == Image.MAX_IMAGE_PIXELS
    with pytest.raises(Image.DecompressionBombError):
        Image.open(path)


@pytest.mark.parametrize(
    ("size", "limit", "expected"),
    [
        ((320, 160), 320 * 160, (320, 160)),
        ((320, 160), 320 * 160 - 1, (160, 80)),
        ((320, 160), 320 * 160 // 4, (160, 80)),
        ((320, 160), 320 * 160 // 4 - 1, (80, 40)),
        ((321, 161), 161 * 81 + 1, (161, 81)),  # halves are rounded up
        ((321, 161), 161 * 81 - 1, (81, 41)),
        ((320, 160), 320 * 160 // 64, (40, 20)),
        ((16, 3200), 16 * 3200 // 2, (8, 1600)),
    ],
)
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("whose", ["ours", "pillow"])
def test_a_jpeg_is_read_at_the_fraction_that_the_limit_asks_for(
    size, limit, expected, progressive, whose, monkeypatch, tmp_path
):
    image = Image.new("RGB", size, (200, 90, 40))
    image.paste((20, 200, 220), (size[0] // 2, 0, *size))
    exif = image.getexif()
    exif[0x0112] = 6  # a quarter turn: the right half goes down
    image.save(tmp_path / "a.jpg", exif=exif, quality=95, subsampling=0, progressive=progressive)
    if whose == "ours":
        monkeypatch.setattr(pictures, "LARGEST", limit)
    else:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit // 2)
    read = read_picture(tmp_path / "a.jpg")
    assert read.shape == (*expected, 3)
    assert np.abs(read[0, 0].astype(int) - (200, 90, 40)).max() < 8
    assert np.abs(read[-1, 0].astype(int) - (20, 200, 220)).max() < 8


def test_a_large_jpeg_of_two_frames_is_read_too(monkeypatch, tmp_path):
    frames = [Image.new("RGB", (64, 64), (shade, 90, 90)) for shade in (40, 200)]
    frames[0].save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=frames[1:])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 512)
    read = read_picture(tmp_path / "a.jpg")
    assert read.shape == (32, 32, 3)
    assert np.abs(read.astype(int) - (40, 90, 90)).max() < 4


@pytest.mark.parametrize("kind", ["png", "gif", "tiff", "webp", "bmp", "ppm"])
@pytest.mark.parametrize("whose", ["ours", "pillow"])
def test_other_large_pictures_are_refused_by_name_size_and_limit(kind, whose, monkeypatch, tmp_path):
    path = tmp_path / "large"
    Image.new("RGB", (50, 40)).save(path, format=kind)
    if whose == "ours":
        monkeypatch.setattr(pictures, "LARGEST", 1998)
    else:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 999)
    with pytest.raises(fr.FactorankError) as caught:
        read_picture(path)
    # Pillow's reader of WebP looks at Pillow's limit before it names the width and the height.
    size = "(50×40|2,000)" if kind == "webp" and whose == "pillow" else "50×40"
    refused = f"the picture has {size} pixels, more than the 1,998 that are unpacked; make it smaller first"
    assert re.fullmatch(f"{path}: {refused}", str(caught.value))


def test_a_jpeg_can_be_too_large_at_any_fraction(monkeypatch, tmp_path):
    path = tmp_path / "a.jpg"
    Image.new("RGB", (320, 160)).save(path)
    with monkeypatch.context() as patch:
        patch.setattr(pictures, "LARGEST_JPEG", 51_199)
        with pytest.raises(fr.FactorankError, match=r"320×160 pixels, more than the 51,199 of a JPEG that"):
            read_picture(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 399)
    with pytest.raises(fr.FactorankError, match=r"has 320×160 pixels, more than the 798 that are unpacked"):
        read_picture(path)


@pytest.mark.parametrize("kind", [9, 11], ids=["below 0", "a fraction"])
def test_strips_at_impossible_places(kind, tmp_path):
    data = tiff_of_colours(np.full((6, 2, 3), 9000, dtype=np.uint16), "<")
    header = struct.pack("<HHI", 273, 4, 3)
    at = data.index(header)
    (places,) = struct.unpack_from("<I", data, at + 8)
    wrong = struct.pack("<3i", -5, -5, -5) if kind == 9 else struct.pack("<3f", 0.5, 0.5, 0.5)
    data = data[:places] + wrong + data[places + 12 :]
    path = tmp_path / "a.tif"
    path.write_bytes(data.replace(header, struct.pack("<HHI", 273, kind, 3)))
    with pytest.raises(fr.FactorankError, match=r"/a\.tif: the picture is damaged: "):
        read_picture(path)


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow reads no AVIF")
def test_zeros_in_an_avif_are_a_clear_error(tmp_path):
    data = io.BytesIO()
    Image.fromarray(np.zeros((24, 24, 3), dtype=np.uint8)).save(data, format="avif")
    errors = 0
    for at in range(100, len(data.getvalue()), 20):
        content = bytearray(data.getvalue())
        content[at : at + 30] = bytes(30)
        (tmp_path / "a.avif").write_bytes(content)
        try:
            read_picture(tmp_path / "a.avif")
        except fr.FactorankError:
            errors += 1
    assert errors > 3


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


def test_a_folder_is_not_a_picture(tmp_path):
    (tmp_path / "a.png").mkdir()
    for folder in (tmp_path, tmp_path / "a.png", str(tmp_path)):
        with pytest.raises(fr.FactorankError) as caught:
            read_picture(folder)
        assert str(caught.value) == f"{folder}: a folder, not a picture"


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


@pytest.fixture
def folder(tmp_path):
    """A folder with two pictures, one of them deeper, and all that is no picture."""
    folder = tmp_path / ".hidden above" / "pictures"
    (folder / "deep").mkdir(parents=True)
    Image.fromarray(COLOURS).save(folder / "a.PNG")
    Image.fromarray(COLOURS).save(folder / "deep" / "b.jpg")
    (folder / "notes.txt").write_text("not a picture")
    (folder / "._a.png").write_bytes(b"\0\5\x16\7")
    (folder / "deep" / "._b.jpg").write_bytes(b"\0\5\x16\7")
    (folder / ".previews").mkdir()
    (folder / ".previews" / "a.png").write_bytes(b"broken")
    (folder / "foo.png").mkdir()
    return folder


def test_read_folder_passes_over_folders_and_what_is_hidden(folder):
    assert read_folder(folder, 8).shape == (2, 8, 8, 3)
    Image.fromarray(COLOURS).save(folder / "foo.png" / "c.png")
    assert read_folder(str(folder), 8).shape == (3, 8, 8, 3)


def test_read_folder_names_the_broken_pictures_in_one_error(folder):
    (folder / "deep" / "c.png").write_bytes(b"broken")
    with pytest.raises(fr.FactorankError) as caught:
        read_folder(folder, 8)
    assert str(caught.value) == (
        f"{folder}: 1 of 3 pictures cannot be read; mend or remove them:"
        " deep/c.png: not a picture that can be read"
    )
    (folder / "nothing.png").symlink_to(folder / "nowhere.png")
    (folder / "z.png").write_bytes(png_of_size(300, 300))
    with pytest.raises(fr.FactorankError) as caught:
        read_folder(folder, 8)
    assert re.fullmatch(
        r".*: 3 of 5 pictures cannot be read; mend or remove them:"
        r" deep/c\.png: not a picture that can be read; nothing\.png: No such file or directory;"
        r" z\.png: the picture is damaged: [^;]*",
        str(caught.value),
    )


@pytest.mark.parametrize(("broken", "more"), [(5, ""), (6, "; and 1 more"), (40, "; and 35 more")])
def test_read_folder_names_five(broken, more, folder):
    for i in range(broken):
        (folder / f"z{i:02}.png").write_bytes(b"broken")
    with pytest.raises(fr.FactorankError, match=f": {broken} of {broken + 2} pictures cannot be") as caught:
        read_folder(folder, 8)
    names = "; ".join(f"z{i:02}.png: not a picture that can be read" for i in range(5))
    assert str(caught.value).endswith(f"mend or remove them: {names}{more}")


def test_read_folder_of_what_is_not_a_folder_of_pictures(folder, monkeypatch):
    with pytest.raises(fr.FactorankError, match=r"^there is no folder .*/nowhere$"):
        read_folder(folder / "nowhere", 8)
    with pytest.raises(fr.FactorankError, match=r"/a\.PNG is a file; give the folder that the pictures are"):
        read_folder(folder / "a.PNG", 8)
    (folder / "none").mkdir()
    (folder / "none" / ".a.png").touch()
    with pytest.raises(
        fr.FactorankError, match=r"/none has no pictures: no file in it, hidden ones aside, ends in \.bmp, "
    ) as caught:
        read_folder(folder / "none", 8)
    assert all(suffix in str(caught.value) for suffix in pictures.SUFFIXES)
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(fr.FactorankError, match=r"^pictures need Pillow"):
        read_folder(folder, 8)


def test_large_pictures_are_scaled_down_and_small_ones_stay():
    picture = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    assert at_most(picture, 90) is picture
    assert at_most(picture, 30).shape == (20, 30, 3)
    assert at_most(picture[:1], 30).shape == (1, 30, 3)
    assert abs(at_most(picture, 3).mean() - picture.mean()) < 3


def test_only_named_formats_are_read(tmp_path):
    """PostScript, which Pillow hands to another program, is no picture whatever the file is called."""
    Image.new("RGB", (20, 20)).save(tmp_path / "a.eps")
    (tmp_path / "a.eps").rename(tmp_path / "a.png")
    with pytest.raises(fr.FactorankError, match=r"a.png: not a picture that can be read"):
        read_picture(tmp_path / "a.png")
