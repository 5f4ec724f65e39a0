"""Files of rankings: what is written is read back, and every fault is named with file and line."""

import codecs

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import factorank as fr
from factorank.data import Rankings, read_rankings, write_rankings
from factorank.data.rankings import preflib, tables
from factorank.data.rankings.writing import WRITTEN

NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=8)
NAMES = NAMES.filter(lambda name: name == name.strip() and "\ufeff" not in name)
TABLES = ["csv", "tsv", "parquet"]
hypothesis_settings = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def rankings(draw, complete=False, strict=False):
    items = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    n = len(items)
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        order = draw(st.permutations(range(n)))
        kept = n if complete else draw(st.integers(1, n))
        row, level = [-1] * n, 0
        for place, item in enumerate(order[:kept]):
            level += place > 0 and (strict or draw(st.booleans()))
            row[item] = level
        rows.append(row)
    counts = draw(st.lists(st.integers(1, 10**15) | st.just(1), min_size=len(rows), max_size=len(rows)))
    return Rankings(items, torch.tensor(rows), torch.tensor(counts)).distinct()


@pytest.mark.parametrize("kind", preflib.TYPES)
@hypothesis_settings
@given(data=st.data())
def test_preflib_round_trip(kind, data, tmp_path):
    votes = data.draw(rankings(complete=kind[2] == "c", strict=kind[0] == "s"))
    path = tmp_path / f"votes.{kind}"
    write_rankings(votes, path)
    assert read_rankings(path) == votes


@pytest.mark.parametrize("suffix", TABLES)
@pytest.mark.parametrize("layout", WRITTEN)
@hypothesis_settings
@given(votes=rankings())
def test_table_round_trip(suffix, layout, votes, tmp_path):
    path = tmp_path / f"votes.{suffix}"
    try:
        write_rankings(votes, path, layout)
    except fr.RankingsError as error:  # what the layout cannot hold is refused, not written wrongly
        assert "use" in str(error)  # noqa: PT017
        return
    named = {"items": votes.items} if layout == "orders" else {}
    assert read_rankings(path, layout, **named) == votes
    path.unlink()


@pytest.mark.parametrize("name", ["|", "a;b"])
def test_one_column_may_be_named_like_a_separator(name, tmp_path):
    votes = Rankings([name], torch.tensor([[0]]), torch.tensor([2]))
    write_rankings(votes, tmp_path / "votes.csv", "ranks")
    assert read_rankings(tmp_path / "votes.csv", "ranks") == votes


@pytest.mark.parametrize("suffix", TABLES)
@pytest.mark.parametrize("layout", WRITTEN)
def test_the_layout_is_recognised(suffix, layout, tmp_path):
    votes = Rankings(
        ["ann", "bob", "cat"], torch.tensor([[0, 1, 2], [1, 0, 1], [-1, 0, -1]]), torch.tensor([3, 1, 2])
    )
    write_rankings(votes, tmp_path / f"v.{suffix}", layout)
    assert read_rankings(tmp_path / f"v.{suffix}") == votes


def test_preflib_keeps_what_the_file_says_byte_for_byte(tmp_path):
    text = HEAD + "2: 2,1,3\n1: 1,2,3\n"
    (tmp_path / "votes.soc").write_text(text)
    votes = read_rankings(tmp_path / "votes.soc")
    assert votes.metadata["TITLE"] == "A vote: the second"
    (tmp_path / "again").mkdir()
    write_rankings(votes, tmp_path / "again" / "votes.soc")
    assert (tmp_path / "again" / "votes.soc").read_text() == text


HEAD = """\
# FILE NAME: votes.soc
# TITLE: A vote: the second
# DESCRIPTION: 
# DATA TYPE: soc
# MODIFICATION TYPE: original
# RELATES TO: 
# RELATED FILES: 
# PUBLICATION DATE: 2026-01-01
# MODIFICATION DATE: 
# SOMETHING NEW: kept
# NUMBER ALTERNATIVES: 3
# NUMBER VOTERS: 3
# NUMBER UNIQUE ORDERS: 2
# ALTERNATIVE NAME 1: ann
# ALTERNATIVE NAME 2: bob
# ALTERNATIVE NAME 3: cat
"""  # noqa: W291


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("2: 2,1,3", "2: 2,1,2", 17, "alternative 2 is ranked twice"),
        ("2: 2,1,3", "2: 2,1,4", 17, r"there is no alternative 4; there are 1\.\.3"),
        ("2: 2,1,3", "2: 0,1,2", 17, "the alternative's number is 0; it is at least 1"),
        ("2: 2,1,3", "2: 2,1", 17, "'cat' is not ranked; a .soc file holds strict orders, complete"),
        ("2: 2,1,3", "2: 2,{1,3}", 17, "'ann' and 'cat' are tied; a .soc file holds strict orders"),
        ("2: 2,1,3", "2: 2,,3", 17, "expected an alternative's number or {…} at ',3'"),
        ("2: 2,1,3", "2: 2,1,3,", 17, "expected an alternative's number or {…} at 'the end'"),
        ("2: 2,1,3", "2: ", 17, "expected an alternative's number"),
        ("2: 2,1,3", "2: 2,{1,3", 17, "expected an alternative's number or {…} at '{1,3'"),
        ("2: 2,1,3", "2: 2,{},1,3", 17, "the alternative's number is '', not a whole number"),
        ("2: 2,1,3", "2: 2,x,3", 17, "expected an alternative's number or {…} at 'x,3'"),
        ("2: 2,1,3", "2: 2,nan,3", 17, "at 'nan,3'"),
        ("2: 2,1,3", "2,1,3", 17, "there is no colon"),
        ("2: 2,1,3", "-2: 2,1,3", 17, "the count is '-2', not a whole number from 0"),
        ("2: 2,1,3", "1.5: 2,1,3", 17, "the count is '1.5', not a whole number"),
        ("2: 2,1,3", f"{2**63}: 2,1,3", 17, "the count is 9223372036854775808; at most"),
        ("2: 2,1,3", "9" * 5000 + ": 2,1,3", 17, "the count is 9+…; at most"),
        ("2: 2,1,3", "2: 1,2,3", 18, "this ranking is on line 17 already"),
        ("2: 2,1,3", "3: 2,1,3", 12, "the file says 3 voters, but its rankings are those of 4"),
        ("ORDERS: 2", "ORDERS: 7", 13, "the file says 7 unique orders, but its rankings are those of 2"),
        ("# DATA TYPE: soc", "# DATA TYPE: soi", 4, "the data type is 'soi', but the file is read as soc"),
        ("NAME 3: cat", "NAME 3: ann", 16, "alternative 1 has the name 'ann' already"),
        ("NAME 3: cat", "NAME 4: cat", 16, "there are 3 alternatives, but this is the name of number 4"),
        ("NAME 3: cat", "NAME 3: ", 16, "an item has an empty name"),
        ("# ALTERNATIVE NAME 3: cat\n", "", None, "'# ALTERNATIVE NAME 3: …' is missing"),
        ("# NUMBER VOTERS: 3\n", "", None, "the line '# NUMBER VOTERS: …' is missing"),
        (
            "# NUMBER VOTERS: 3",
            "# NUMBER ALTERNATIVES: 3",
            12,
            "'# NUMBER ALTERNATIVES: …' is on line 11 already",
        ),
        ("# NUMBER VOTERS: 3", "# NUMBER VOTERS: three", 12, "the number of voters is 'three'"),
        ("# TITLE: A vote: the second", "# no title", 2, "expected '# KEY: value'"),
        (HEAD, "3\n1,ann\n2,bob\n3,cat\n", 1, "PrefLib's format from before 2022"),
        ("2: 2,1,3\n1: 1,2,3\n", "", None, "there is no ranking in the file"),
        ("bob", "b\0b", 15, "a zero byte"),
        ("bob", "b\rb", 15, "a carriage return inside a line"),
    ],
)
def test_bad_preflib_files(old, new, line, message, tmp_path):
    path = tmp_path / "votes.soc"
    text = HEAD + "2: 2,1,3\n1: 1,2,3\n"
    assert old in text
    path.write_text(text.replace(old, new), newline="")
    where = str(path) + (f":{line}: " if line else ": ")
    with pytest.raises(fr.RankingsError, match=message) as caught:
        read_rankings(path)
    assert str(caught.value).startswith(where)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("place 1,place 2\nann,bob\nann,ann\n", 3, "'ann' is ranked twice, at 'place 1' and 'place 2'"),
        ("place 1,place 2\n,bob\n", 2, "'place 1' is empty, but a later place is not"),
        ("place 1,place 2\n,\n", 2, "no item is ranked"),
        ("place 1,place 2\nann,bob,cat\n", 2, "the row has 3 cells, but there are 2 columns"),
        ("place 1,place 2\nann\n", 2, "the row has 1 cells, but there are 2 columns"),
        ("place 1,place 3\nann,bob\n", 1, "column 'place 3' is where 'place 2' should be"),
        ("1,2\n2,1\n", 1, "say format='orders' if they are places"),
        ("choice 1,choice 2\n2,1\n", 1, "like places or like items, .*: say format='orders' if they are"),
        ("2,0,1\n0,1,2\n", 1, "add a line of column names if this is a ranking"),
        (
            "ann,bob,cat\nbob,ann,cat\n",
            1,
            "looks like a ranking, for 'bob' is in .*:2, too; .*: place 1,place",
        ),
        ("ann,bob,cat\n1,2,2\n1,3,\n", 3, "rank 2 is missing, but bob has rank 3"),
        ("ann,bob,cat\n1,1,2\n1,1,3\n1,1,4\n", 4, "rank 2 is missing, but cat has rank 4"),
        ("ann,bob,cat,dan\n1,1,2,5\n", 2, "rank 3 is missing, but dan has rank 5"),
        ("ann,bob,cat\n1,2,3\n0,1,2\n", 3, "the rank of 'ann' is 0; ranks begin with 1"),
        ("ann,bob,cat\n2,3,4\n", 2, r"the ranks begin with 2 \(ann\); the best item has rank 1"),
        ("ann,bob,cat\n1,x,2\n", 2, "the rank of 'bob' is 'x', not a whole number"),
        ("ann,bob,cat\n1,2,2.5\n", 2, "the rank 2.5 is not the mean .*; .* say format='scores'"),
        ("ann,bob,cat\n1,-1,2\n", 2, "the rank of 'bob' is '-1'"),
        ("ann,bob,cat\n1,2,3\n,,\n", 3, "no item is ranked"),
        ("ann,ann,cat\n1,2,3\n", 1, "there are two columns 'ann'"),
        ("ann,,cat\n1,2,3\n", 1, "column 2 has no name"),
        ("count,ann,bob\n-4,1,2\n", 2, "the count is '-4'"),
        ("count,ann,bob\n,1,2\n", 2, "the count is missing"),
        ("count,ann,bob\n" + "9" * 30 + ",1,2\n", 2, "at most 9223372036854775807"),
        ("voter,ann,bob\nx,1,2\nx,2,1\n", 3, "voter 'x' is at .*:2 already"),
        ("a;b,c\n1;2,3\n", 1, "separated by commas or semicolons: say one of format='csv', format='sem"),
        ("winner,loser\nann,ann\n", 2, "'ann' is both winner and loser"),
        ("winner,loser\nann,\n", 2, "the loser is missing"),
        ("winner,loser,date\nann,bob,x\n", 1, "of pairs and 'date': say format='pairs' to leave these"),
        ("voter,item,rank,date\n1,ann,1,x\n", 1, "of long and 'date': say format='long' to leave these"),
        ("ann,bob\n", None, "there is no ranking in the table"),
        ('ann,bob\n1,"2\n', 2, "not a row of values separated by commas"),
        ("voter,item,rank\n1,ann,1\n1,ann,2\n", 3, "voter '1' has a line for item 'ann' already"),
        ("voter,item,rank\n1,ann,1\n1,bob,3\n", 2, "rank 2 is missing, but bob has rank 3"),
        ("voter,item,rank\n1,ann,1\n,bob,2\n", 3, "the voter is missing"),
        ("voter,item,rank\n1,,1\n", 2, "the item is missing"),
        ("voter,item,rank\n1,ann,\n", 2, "no item is ranked"),
        ("voter,item,rank,count\n1,ann,1,2\n1,bob,2,3\n", 3, "voter '1' has count 3 here but 2 at"),
    ],
)
def test_bad_tables(text, line, message, tmp_path):
    path = tmp_path / "votes.csv"
    path.write_text(text)
    with pytest.raises(fr.RankingsError, match=message) as caught:
        read_rankings(path)
    assert str(caught.value).startswith(str(path) + (f":{line}: " if line else ": "))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("place 1,place 2\nann,bob\ndan,ann\n", 3),
        ("ann,dan\n1,2\n", 1),
        ("voter,item,rank\n1,ann,1\n1,dan,2\n", 3),
    ],
)
def test_unknown_items(text, line, tmp_path):
    path = tmp_path / "votes.csv"
    path.write_text(text)
    with pytest.raises(fr.RankingsError, match="there is no item 'dan'; there are ann, bob, cat") as caught:
        read_rankings(path, items=["ann", "bob", "cat"])
    assert str(caught.value).startswith(f"{path}:{line}: ")


@pytest.mark.parametrize("suffix", ["soc", "csv", "parquet"])
@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_empty_files(suffix, content, tmp_path):
    path = tmp_path / f"votes.{suffix}"
    path.write_bytes(content)
    with pytest.raises(fr.RankingsError, match=r"the file is empty|no parquet file"):
        read_rankings(path)


def test_a_byte_order_mark_and_windows_line_ends_are_no_part_of_the_names(tmp_path):
    path = tmp_path / "votes.csv"
    path.write_bytes(codecs.BOM_UTF8 + "ann,bøb\r\n1,2\r\n".encode())
    assert read_rankings(path).items == ("ann", "bøb")
    path = tmp_path / "votes.soc"
    path.write_bytes(
        codecs.BOM_UTF8
        + (HEAD + "3: 1,2,3\n").replace("ORDERS: 2", "ORDERS: 1").replace("\n", "\r\n").encode()
    )
    assert read_rankings(path).items == ("ann", "bob", "cat")


@pytest.mark.parametrize(
    ("data", "line", "message"),
    [
        ("ann,bøb\n1,2\n".encode("latin-1"), 1, "byte 0xf8 is not UTF-8"),
        ("ann,bob\n1,2\nø,2".encode("latin-1"), 3, "byte 0xf8 is not UTF-8"),
        ("ann,bob\n1,2\n".encode("utf-16"), 1, "the file is in UTF-16"),
        ("ann,bob\n1,\ufeff2\n".encode(), 2, "a byte-order mark"),
    ],
)
def test_wrong_encodings(data, line, message, tmp_path):
    path = tmp_path / "votes.csv"
    path.write_bytes(data)
    with pytest.raises(fr.RankingsError, match=message) as caught:
        read_rankings(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_ranks_from_zero_and_with_competition_numbering(tmp_path):
    path = tmp_path / "votes.csv"
    path.write_text("a,b,c,d\n0,1,1,3\n0,1,1,2\n2,1,0,\n")
    votes = read_rankings(path, first_rank=0)
    assert votes.ranks.tolist() == [[0, 1, 1, 2], [2, 1, 0, -1]]
    assert votes.counts.tolist() == [2, 1]


def test_floats_that_are_whole_are_ranks(tmp_path):
    path = tmp_path / "votes.csv"
    path.write_text("a,b,c\n1.0,2.0,\n")
    assert read_rankings(path).ranks.tolist() == [[0, 1, -1]]


def test_bad_parquet(tmp_path):
    polars = pytest.importorskip("polars")
    path = tmp_path / "votes.parquet"
    polars.DataFrame({"ann": [True], "bob": [False]}).write_parquet(path)
    with pytest.raises(fr.RankingsError, match="row 1: column 'ann' holds a bool"):
        read_rankings(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(fr.RankingsError, match="no parquet file, or a damaged one"):
        read_rankings(path)


def test_without_polars_the_message_says_how_to_get_it(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "polars", None)
    (tmp_path / "votes.parquet").write_bytes(b"PAR1")
    with pytest.raises(
        fr.FactorankError, match=r"such a table needs polars: pip install 'factorank\[data\]'"
    ):
        read_rankings(tmp_path / "votes.parquet")


@pytest.mark.parametrize(
    ("name", "format"), [("v.dat", None), ("v", None), ("v.csv", "cat"), ("v.soc", "ranks")]
)
def test_unknown_formats(name, format, tmp_path):
    (tmp_path / name).write_text("a,b\n1,2\n")
    with pytest.raises(
        fr.RankingsError,
        match="is not a format of rankings; there are soc, soi, toc, toi, csv, semicolons, tsv",
    ):
        read_rankings(tmp_path / name, format)


def test_a_format_for_a_file_without_suffix(tmp_path):
    (tmp_path / "votes").write_text("a,b\n1,2\n")
    assert read_rankings(tmp_path / "votes", "csv").items == ("a", "b")


@pytest.mark.parametrize(
    ("name", "layout", "items", "ranks", "message"),
    [
        ("v.soc", None, ["a", "b"], [[0, 1], [0, -1]], "row 1: 'b' is not ranked; a .soc file holds"),
        ("v.toc", None, ["a", "b"], [[0, -1]], "row 0: 'b' is not ranked; a .toc file holds"),
        ("v.soi", None, ["a", "b"], [[0, 0]], "row 0: 'a' and 'b' are tied; a .soi file holds"),
        ("v.csv", "orders", ["a", "b"], [[0, -1]], "nobody ranks 'b', so a table of orders would lose it"),
        ("v.csv", "orders", ["a = b", "b"], [[0, 1]], "marks a tie"),
        ("v.csv", "ranks", ["count", "b"], [[0, 1]], "an item is called 'count'"),
    ],
)
def test_what_a_format_cannot_hold_is_refused_and_leaves_the_old_file(
    name, layout, items, ranks, message, tmp_path
):
    path = tmp_path / name
    path.write_text("as it was")
    with pytest.raises(fr.RankingsError, match=message):
        write_rankings(Rankings(items, torch.tensor(ranks)), path, layout)
    assert path.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    votes = Rankings(["a", "b"], torch.tensor([[0, 1]]))
    monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_rankings(votes, tmp_path / "votes.csv")
    assert list(tmp_path.iterdir()) == []


def test_items_of_a_table_of_orders_are_sorted_numbers_first(tmp_path):
    path = tmp_path / "votes.csv"
    path.write_text("place 1,place 2,place 3\n10,b,9\n")
    assert read_rankings(path).items == ("9", "10", "b")


def test_quoted_cells_keep_line_numbers_right(tmp_path):
    path = tmp_path / "votes.csv"
    path.write_text('"a, b",c\n1,2\n2,2\n')
    with pytest.raises(fr.RankingsError, match=r"votes.csv:3: the ranks begin with 2 \(a, b\)"):
        read_rankings(path)
    assert tables.read_csv(path).columns == ["a, b", "c"]


@pytest.mark.filterwarnings("ignore::factorank.RankingsWarning")
@pytest.mark.parametrize("suffix", ["soc", "toi", "csv", "parquet"])
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_are_read_or_refused_with_their_name(suffix, data, tmp_path):
    votes = Rankings(["ann", "bob", "cat"], torch.tensor([[0, 1, 2], [1, 0, 2]]), torch.tensor([3, 1]))
    path = tmp_path / f"votes.{suffix}"
    write_rankings(votes, path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        length = data.draw(st.integers(0, 3))
        content[place : place + length] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b",", b"\n", b"9", b"{"])
        )
    path.write_bytes(content)
    try:
        votes = read_rankings(path)
    except fr.RankingsError as error:
        assert str(error).startswith(str(path))  # noqa: PT017
    else:
        assert votes.n >= 1
