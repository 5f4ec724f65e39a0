"""Ratings from files: every format gives the same ratings, and every fault of a file is named."""

import io
import os
import sys
import zipfile

import numpy as np
import polars
import pytest
import torch

from factorank.data.ratings import files, load_ratings, loading, tables
from factorank.errors import RatingsError
from tests.data.ratings.rated import as_rows

ROWS = [(1, 10, 5.0), (1, 30, 3.5), (2, 10, 4.0), (9, 20, 0.5), (9, 30, 1.0)]
DOUBLE_COLONS = "".join(f"{u}::{i}::{v:g}::97830{u}\n" for u, i, v in ROWS)
COMMAS = "userId,movieId,rating,timestamp\n" + "".join(f"{u},{i},{v},97830{u}\n" for u, i, v in ROWS)
MOVIES_DAT = "10::Café, The (1995)::Comedy|Drama\n20::Heat (1972)::Drama\n40::Unrated (2000)::War\n"
MOVIES_CSV = """movieId,title,genres
10,"Café, The (1995)",Comedy|Drama
20,Heat,(no genres listed)
30,"A ""B"" (2000)",War
"""


def zipped(file, members):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file


@pytest.fixture(params=["folder", "zip", "file"])
def ml_1m(request, tmp_path):
    if request.param == "zip":
        return zipped(
            tmp_path / "ml-1m.zip",
            {
                "ml-1m/README": "words",
                "ml-1m/ratings.dat": DOUBLE_COLONS,
                "ml-1m/movies.dat": MOVIES_DAT.encode("latin-1"),
            },
        )
    folder = tmp_path / "ml-1m"
    folder.mkdir()
    (folder / "ratings.dat").write_text(DOUBLE_COLONS)
    (folder / "movies.dat").write_bytes(MOVIES_DAT.encode("latin-1"))
    (folder / "users.dat").write_text("1::F::1::10::48067\n")
    return folder if request.param == "folder" else folder / "ratings.dat"


@pytest.mark.parametrize("with_polars", [True, False])
def test_double_colons_with_titles_genres_and_years(ml_1m, with_polars, monkeypatch):
    if not with_polars:
        monkeypatch.setitem(sys.modules, "polars", None)
    ratings = load_ratings(ml_1m)
    assert as_rows(ratings) == ROWS
    assert ratings.ids == [10, 20, 30]
    assert ratings.titles == ["Café, The (1995)", "Heat (1972)", "30"]  # movies.dat lacks 30
    assert ratings.feature_names == ["Comedy", "Drama", "War", "year"]
    expected = [[1, 1, 0, 0.75], [0, 1, 0, -0.4], [0, 0, 0, 0]]
    assert torch.allclose(ratings.features, torch.tensor(expected))
    assert (ratings.source, ratings.shift, ratings.scale) == ("ml-1m", 0.0, 1.0)
    kept = ratings.filter(min_item_ratings=2, min_user_ratings=2)
    assert (kept.ids, kept.titles) == ([10, 30], ["Café, The (1995)", "30"])
    assert torch.equal(kept.features, ratings.features[[0, 2]])


def test_the_csv_releases(tmp_path):
    file = zipped(
        tmp_path / "ml-32m.zip",
        {
            "ml-32m/ratings.csv": COMMAS,
            "ml-32m/movies.csv": MOVIES_CSV,
            "ml-32m/tags.csv": "userId,movieId,tag\n",
        },
    )
    ratings = load_ratings(file)
    assert as_rows(ratings) == ROWS
    assert ratings.titles == ["Café, The (1995)", "Heat", 'A "B" (2000)']
    assert ratings.features[1].tolist() == [0, 0, 0, 0]  # neither genres nor a year
    assert ratings.source == "ml-32m"


@pytest.mark.parametrize(
    ("arrays", "there"), [({}, "there is none"), ({"a": [1.0], "b": [2.0]}, "there are a, b")]
)
def test_an_archive_without_the_ratings_is_refused(arrays, there, tmp_path):
    np.savez(tmp_path / "r.npz", **arrays)
    with pytest.raises(RatingsError, match=rf"r\.npz: an array 'ratings' is needed; {there}"):
        load_ratings(tmp_path / "r.npz")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("10,Café,\xff".encode("latin-1"), r"movies\.csv:2: byte 0xe9 is not UTF-8"),
        (b'10,"' + b"a" * 200_000, r"movies\.csv: not a CSV: field larger than field limit"),
        (b"9" * 30 + b",Heat,Drama", r"movies\.csv: row 1 is not a movie's id, title and genres"),
        ("²,Heat,Drama".encode(), r"movies\.csv: row 1 is not a movie's id, title and genres"),
    ],
)
def test_damaged_titles_of_movielens_are_refused(line, message, tmp_path):
    (tmp_path / "ratings.csv").write_text(COMMAS)
    (tmp_path / "movies.csv").write_bytes(b"movieId,title,genres\n" + line + b"\n")
    with pytest.raises(RatingsError, match=message):
        load_ratings(tmp_path)


@pytest.mark.parametrize(
    "kind", ["csv", "tsv", "parquet", "semicolons", "no names", "named", "text ids", "wide ids"]
)
def test_any_table(tmp_path, kind):
    users, items, values = (list(column) for column in zip(*reversed(ROWS), strict=True))
    frame = polars.DataFrame({"note": ["a,b"] * 5, "User ID": users, "product_id": items, "Stars": values})
    expected, named, file = ROWS, {}, tmp_path / "table.csv"
    if kind == "text ids":
        frame = frame.with_columns(polars.format("u{}", "User ID").alias("User ID"))
        expected = [(f"u{u}", i, v) for u, i, v in ROWS]
    if kind == "wide ids":
        frame = frame.with_columns(polars.col("product_id") * 10**15)
        expected = [(u, i * 10**15, v) for u, i, v in ROWS]
    if kind == "named":
        frame = frame.rename({"User ID": "A", "product_id": "B", "Stars": "C"})
        named = {"user": "A", "item": "B", "rating": "C"}
    if kind == "parquet":
        file = tmp_path / "table.parquet"
        frame.write_parquet(file)
    elif kind == "no names":
        file = tmp_path / "u.data"
        frame.select("User ID", "product_id", "Stars").write_csv(file, include_header=False, separator="\t")
    else:
        frame.write_csv(file, separator={"tsv": "\t", "semicolons": ";"}.get(kind, ","))
    assert as_rows(load_ratings(file, **named)) == expected


@pytest.mark.parametrize("size", [1, 7, 40, 1000])
def test_a_zip_is_read_in_pieces_of_whole_lines(tmp_path, size, monkeypatch):
    file = zipped(tmp_path / "ml-32m.zip", {"ml-32m/ratings.csv": COMMAS})
    pieces = list(files.blocks(files.find_ratings(file), size))
    assert b"".join(pieces).decode() == COMMAS
    assert all(piece.endswith(b"\n") for piece in pieces)
    monkeypatch.setattr(tables, "blocks", lambda source: files.blocks(source, size))
    monkeypatch.setattr(tables, "on_disk", None)  # what is plain needs no copy
    assert as_rows(load_ratings(file)) == ROWS


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('user,note,item,rating\n1,"a\nb,5",2,3\n', [(1, 2, 3.0)]),
        ("user,item,rating\n1,2,3\nbob,2,4\n", [("1", 2, 3.0), ("bob", 2, 4.0)]),
        ("1\t2\t3\n4\t2\t5\n", [(1, 2, 3.0), (4, 2, 5.0)]),
    ],
)
def test_a_zip_whose_table_is_not_plain_is_unpacked_first(tmp_path, content, expected):
    assert as_rows(load_ratings(zipped(tmp_path / "x.zip", {"x.csv": content}))) == expected


def test_later_rows_may_hold_what_the_first_do_not(tmp_path):
    """Types of columns are guessed from the first rows; a half star or an id of letters comes later."""
    rows = [f"{user},{item},3" for user in range(40) for item in range(30)]
    (tmp_path / "a.csv").write_text("\n".join(["user,item,rating", *rows, "41,1,3.5"]))
    ratings = load_ratings(tmp_path / "a.csv")
    assert (ratings.values[-1], ratings.source, ratings.repeated) == (3.5, "a", 0)
    (tmp_path / "b.csv").write_text("\n".join(["user,item,rating", *rows, "ann,1,4", "ann,1,2"]))
    ratings = load_ratings(tmp_path / "b.csv")
    assert (ratings.values[-1], ratings.user_ids[-1], ratings.repeated) == (2.0, "ann", 1)
    (tmp_path / "c.csv").write_text("\n".join(["user,item,rating", *rows, "41,1,good", "41,2,bad"]))
    with pytest.raises(RatingsError, match=r"c.csv: row 1202 has the rating 'good' .*; 2 of 1,202 rows"):
        load_ratings(tmp_path / "c.csv")


def test_an_item_table_of_ids_and_titles_alone(tmp_path):
    (tmp_path / "a.csv").write_text("user,item,rating\n1,1,3\n1,2,4\n")
    (tmp_path / "t.csv").write_text("item,title\n2,Heat\n1,Toys\n")
    assert load_ratings(tmp_path / "a.csv", titles=tmp_path / "t.csv").titles == ["Toys", "Heat"]


def test_an_item_table_gives_titles_and_scaled_features(tmp_path):
    (tmp_path / "stars.csv").write_text(COMMAS)
    (tmp_path / "items.csv").write_text("movieId,name,length,colour\n30,C,120,red\n10,A,80,blue\n20,B,,red\n")
    ratings = load_ratings(tmp_path / "stars.csv", titles=tmp_path / "items.csv")
    assert ratings.titles == ["A", "B", "C"]
    assert ratings.feature_names == ["length"]
    assert ratings.feature_scales == [(100.0, 20.0)]
    assert ratings.features[:, 0].tolist() == [-1, 0, 1]
    (tmp_path / "items.csv").write_text("key,name,length\n30,C,120\n")
    with pytest.raises(RatingsError, match=r"no column of item ids.*key, name, length"):
        load_ratings(tmp_path / "stars.csv", titles=tmp_path / "items.csv")


MATRIX = np.array([[7.5, np.nan, -10.0], [np.nan, 10.0, 0.25]], dtype=np.float32)
JOKES = [(1, 1, 7.5), (1, 3, -10.0), (2, 2, 10.0), (2, 3, 0.25)]


@pytest.mark.parametrize("kind", ["npz", "npy", "99"])
def test_jester_arrays(tmp_path, kind):
    if kind == "npy":
        np.save(tmp_path / "jester.npy", MATRIX)
    else:
        np.savez(tmp_path / "jester.npz", ratings=np.nan_to_num(MATRIX, nan=99) if kind == "99" else MATRIX)
    ratings = load_ratings(tmp_path)
    assert as_rows(ratings) == JOKES
    assert ratings.relevance(ratings.values).tolist() == pytest.approx([4.375, 0, 5, 2.5625])
    assert ratings.source == "jester"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("counted", [True, False])
def test_the_publishers_jester_table(tmp_path, separator, counted):
    wide = np.full((2, 11), 99.0)
    wide[:, :3] = np.nan_to_num(MATRIX, nan=99)
    rows = np.concatenate([[[2], [2]], wide], 1) if counted else wide
    file = tmp_path / "jester-data-1.csv"
    text = "\n".join(separator.join(f"{cell:g}" for cell in row) for row in rows) + "\n"
    file.write_text(text)
    assert as_rows(load_ratings(file)) == JOKES
    if counted:
        file.write_text(text.replace("7.5", "99"))
        with pytest.raises(RatingsError, match="row 1 says 2 jokes were rated, but has 1"):
            load_ratings(file)
    file.write_text(text.replace("7.5", "12"))
    with pytest.raises(RatingsError, match="row 1 joke 1 has 12"):
        load_ratings(file)


def sheet(file, rows):
    """The least that is a workbook: one sheet of numbers."""
    space = "http://schemas.openxmlformats.org"
    cells = "".join("<row>" + "".join(f"<c><v>{cell:g}</v></c>" for cell in row) + "</row>" for row in rows)
    relation = f"{space}/officeDocument/2006/relationships"
    return zipped(
        file,
        {
            "[Content_Types].xml": f'<Types xmlns="{space}/package/2006/content-types"/>',
            "_rels/.rels": f'<Relationships xmlns="{space}/package/2006/relationships"><Relationship Id="a"'
            f' Type="{relation}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{space}/package/2006/relationships">'
            f'<Relationship Id="b" Type="{relation}/worksheet" Target="worksheets/sheet1.xml"/>'
            "</Relationships>",
            "xl/workbook.xml": f'<workbook xmlns="{space}/spreadsheetml/2006/main" xmlns:r="{relation}">'
            '<sheets><sheet name="one" sheetId="1" r:id="b"/></sheets></workbook>',
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{space}/spreadsheetml/2006/main"><sheetData>'
            f"{cells}</sheetData></worksheet>",
        },
    )


def test_the_publishers_jester_table_in_excels_format(tmp_path, monkeypatch):
    rows = [[2, 7.5, 99, -10], [2, 99, 10, 0.25]]
    file = sheet(tmp_path / "jester-data-1.xlsx", rows)
    assert as_rows(load_ratings(file)) == JOKES
    packed = zipped(tmp_path / "jester_dataset.zip", {"jester-data-1.xlsx": file.read_bytes()})
    assert as_rows(load_ratings(packed)) == JOKES
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    with pytest.raises(RatingsError, match="save the sheet as CSV"):
        load_ratings(file)


def test_half_a_download_is_refused(tmp_path):
    file = zipped(tmp_path / "ml-1m.zip", {"ml-1m/ratings.dat": DOUBLE_COLONS * 50})
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(RatingsError, match="downloaded only in part"):
        load_ratings(file)
    array = io.BytesIO()
    np.savez(array, ratings=MATRIX)
    (tmp_path / "jester.npz").write_bytes(array.getvalue()[:-30])
    with pytest.raises(RatingsError, match="downloaded only in part"):
        load_ratings(tmp_path / "jester.npz")
    (tmp_path / "ratings.dat").write_text(DOUBLE_COLONS[:-3])
    with pytest.raises(RatingsError, match=r"ratings.dat:5: the last line has no end"):
        load_ratings(tmp_path / "ratings.dat")
    (tmp_path / "ratings.csv").write_text(COMMAS[: COMMAS.rindex("1.0,")])
    with pytest.raises(RatingsError, match=r"row 6 has no rating.*cut off"):
        load_ratings(tmp_path / "ratings.csv")
    polars.DataFrame({"user": [1], "item": [2], "rating": [3.0]}).write_parquet(tmp_path / "t.parquet")
    data = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(data[:-10])
    with pytest.raises(RatingsError, match="no parquet file, or a damaged one"):
        load_ratings(tmp_path / "t.parquet")


@pytest.mark.parametrize("name", ["ratings.dat", "ratings.csv"])
def test_every_flipped_byte_of_a_member_is_noticed(tmp_path, name):
    content = DOUBLE_COLONS if name.endswith("dat") else COMMAS
    file = zipped(tmp_path / "ml-1m.zip", {name: content})
    data = file.read_bytes()
    with zipfile.ZipFile(file) as archive:
        begin = data.index(name.encode()) + len(name)
        end = begin + archive.infolist()[0].compress_size
    for place in range(begin, end, 3):
        file.write_bytes(data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :])
        with pytest.raises(RatingsError, match="damaged"):
            load_ratings(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("user,thing,rating\n1,2,3\n", "no column is recognised as the item; there are user, thing, rating"),
        ("user,item,rating\n1,2,good\n", "good"),
        ("user,item,rating\n1,2,3\n,2,4\n", "row 3 has no user"),
        ("user,item,rating\n1,2,NaN\n", "row 2 has no rating"),
        ("user,item,rating\n", "no ratings"),
        ("user,item,rating\n1,2.5,3\n", "whole number or text"),
        ("just words\n", "at least three columns"),
        ("", "empty"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(tmp_path, content, message):
    (tmp_path / "table.csv").write_text(content)
    with pytest.raises(RatingsError, match=message):
        load_ratings(tmp_path / "table.csv")


def test_columns_that_were_asked_for_must_be_there(tmp_path):
    (tmp_path / "table.csv").write_text(COMMAS)
    with pytest.raises(RatingsError, match="no column 'who'; there are userId, movieId, rating, timestamp"):
        load_ratings(tmp_path / "table.csv", user="who")
    with pytest.raises(RatingsError, match="different columns"):
        load_ratings(tmp_path / "table.csv", user="movieId")


@pytest.mark.parametrize("with_polars", [True, False])
@pytest.mark.parametrize("line", ["1::x::5::9", "1", "::2::3::4"])
def test_a_bad_line_of_double_colons_is_refused(tmp_path, line, with_polars, monkeypatch):
    if not with_polars:
        monkeypatch.setitem(sys.modules, "polars", None)
    (tmp_path / "ratings.dat").write_text(f"{DOUBLE_COLONS}{line}\n")
    with pytest.raises(RatingsError, match=r"ratings.dat"):
        load_ratings(tmp_path)


def test_what_is_there_is_named_where_no_ratings_are(tmp_path):
    with pytest.raises(RatingsError, match="no file or folder"):
        load_ratings(tmp_path / "none")
    (tmp_path / "README").write_text("words")
    with pytest.raises(RatingsError, match="this holds README"):
        load_ratings(tmp_path)
    with pytest.raises(RatingsError, match=r"this holds a.txt, b.csv"):
        load_ratings(zipped(tmp_path / "x.zip", {"a.txt": "", "b.csv": ""}))
    (tmp_path / "jester-data-1.xls").write_bytes(b"\xd0\xcf\x11\xe0")
    with pytest.raises(RatingsError, match="damaged, or no sheet of numbers"):
        load_ratings(tmp_path / "jester-data-1.xls")


def test_tables_need_polars(tmp_path, monkeypatch):
    (tmp_path / "table.csv").write_text(COMMAS)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(RatingsError, match=r"pip install 'factorank\[data\]'"):
        load_ratings(tmp_path / "table.csv")


def test_the_cache_is_used_until_something_changes(tmp_path, monkeypatch):
    file, cache = tmp_path / "table.csv", tmp_path / "cache"
    file.write_text(COMMAS)
    first = load_ratings(file, cache=cache)
    (kept,) = cache.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(loading, "_load", None)  # reading the table again would fail
        assert as_rows(load_ratings(file, cache=cache)) == as_rows(first) == ROWS
    kept.write_bytes(kept.read_bytes()[:-1])
    assert as_rows(load_ratings(file, cache=cache)) == ROWS
    file.write_text(COMMAS.replace("3.5", "2.5"))
    os.utime(file, ns=(1, 1))
    assert as_rows(load_ratings(file, cache=cache))[1] == (1, 30, 2.5)
    assert as_rows(load_ratings(file, cache=cache, rating="timestamp"))[0] == (1, 10, 978301.0)
