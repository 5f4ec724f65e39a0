"""Sizes that a parquet file states are checked, so that polars is asked for no memory that cannot be had."""

import io
import subprocess
import sys
import textwrap

import pytest

from factorank.data import parquet
from factorank.data.parquet import check_parquet
from factorank.errors import RatingsError

polars = pytest.importorskip("polars")

RATINGS = {"user": [1, 1, 2, 2, 3], "item": [10, 20, 10, 30, 20], "rating": [5.0, 3.0, 4.0, 2.0, 1.0]}
LISTS = {"user": ["ann", "bob"] * 50, "items": [[1, 2, 3], [4]] * 50, "observed": [["x", ""], []] * 50}
NUMBERS = {"count": list(range(70_000)), "same": [1] * 70_000, "none": [None, 1] * 35_000}


def written(columns, **options):
    data = io.BytesIO()
    polars.DataFrame(columns).write_parquet(data, **options)
    return data.getvalue()


def refused(data):
    try:
        check_parquet(io.BytesIO(data), "table.parquet", RatingsError)
    except RatingsError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("columns", [RATINGS, LISTS, NUMBERS, {"empty": []}], ids=lambda c: "-".join(c))
@pytest.mark.parametrize("compression", ["lz4", "uncompressed", "snappy", "gzip", "brotli", "zstd"])
@pytest.mark.parametrize("rows", [None, 1000])
def test_whole_files_pass(columns, compression, rows):
    data = written(columns, compression=compression, row_group_size=rows, data_page_size=4096)
    assert refused(data) == ""


def test_no_file_that_passes_ends_the_process(tmp_path):
    """One bit after the other is turned, in another process, and what passes is read there."""
    data = written(RATINGS)
    (tmp_path / "whole").write_bytes(data)
    passing = [bit for bit in range(0, 8 * len(data), 3) if not refused(turned(data, bit))]
    assert len(passing) > len(data)  # most bits are of values and statistics
    (tmp_path / "bits").write_text(" ".join(map(str, passing)))
    program = textwrap.dedent("""
        import io, resource
        from pathlib import Path
        import polars
        from tests.data.test_parquet import turned
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        data = Path("whole").read_bytes()
        for bit in map(int, Path("bits").read_text().split()):
            print(bit, flush=True)
            try:
                polars.read_parquet(io.BytesIO(turned(data, bit)))
            except BaseException:
                pass
    """)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True,
        env={"PYTHONPATH": ":".join(sys.path), "POLARS_MAX_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, f"bit {done.stdout.split()[-1:]}: {done.stderr[-300:]}"


def turned(data, bit):
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def field_of_first_page(data, value):
    """The file with another size of its first page, unpacked: a number of one byte, after the page's type."""
    at = data.index(b"PAR1") + 7
    assert data[at] < 128
    return data[:at] + bytes([value]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (lambda data: data[:-1], "it does not end as one"),
        (lambda data: b"PAR1", "it does not end as one"),
        (lambda data: data[:-8] + b"\xff\xff\xff\x7fPAR1", "footer would be longer than the file"),
        (lambda data: data[:-8] + b"\x00\x00\x00\x00PAR1", "it ends amid a field"),
        (lambda data: data[:-9] + b"\x1c" + data[-8:], "."),
        (lambda data: field_of_first_page(data, 1), "it states -1 where a number from 0"),
        (lambda data: b"PAR1" + b"\xf9" * 40 + b"\x28\x00\x00\x00PAR1", "."),
        (lambda data: b"PAR1" + b"\x1c" * 40 + b"\x28\x00\x00\x00PAR1", "nested too deeply"),
    ],
)
def test_what_cannot_be_true_is_refused_with_the_name(damaged, message):
    import re

    text = refused(damaged(written(RATINGS)))
    assert text.startswith("table.parquet: no parquet file, or a damaged one: ")
    assert re.search(message, text)


def varint(number):
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def of_empty_pages(pages, columns):
    """A file whose columns all are the same pages, without a value in any of them."""
    zero = b"\x00"
    page = b"\x15" + zero + b"\x15" + zero + b"\x15" + zero + b"\x2c\x15" + zero + zero + zero
    packed = varint(2 * len(page) * pages)
    facts = b"\x56" + zero + b"\x16" + zero + b"\x16" + packed + b"\x26" + varint(2 * 4) + zero
    group = b"\x19\xfc" + varint(columns) + (b"\x3c" + facts + zero) * columns + b"\x26" + zero + zero
    footer = b"\x36" + zero + b"\x19\x1c" + group + zero
    return b"PAR1" + page * pages + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_small_files_do_not_cost_much(monkeypatch):
    """A thousand columns that share a hundred thousand pages would take minutes."""
    assert refused(of_empty_pages(5, 1)) == ""
    assert "where a number from 0 to" in refused(of_empty_pages(100_000, 1_000))
    monkeypatch.setattr(parquet, "MOST_PAGES", 5)
    assert refused(of_empty_pages(5, 1)) == ""
    assert "more than 5 pages" in refused(of_empty_pages(6, 1))
