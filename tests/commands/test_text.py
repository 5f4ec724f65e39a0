"""Text that fits into columns: cut and aligned as a character-by-character count says."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from factorank.commands._text import shorten, table, width

TEXT = st.text(st.sampled_from("ab >é寿司e\u0301"), max_size=30)


def columns(text):
    wide = [unicodedata.east_asian_width(character) in "WF" for character in text]
    return sum(
        0 if unicodedata.combining(character) else 1 + two for character, two in zip(text, wide, strict=True)
    )


@given(text=TEXT, most=st.integers(2, 20))
def test_the_longest_beginning_that_fits_is_kept(text, most):
    assert width(text) == columns(text)
    cut = shorten(text, most)
    if columns(text) <= most:
        assert cut == text
        return
    kept = max((text[:end] for end in range(len(text)) if columns(text[:end]) <= most - 1), key=len)
    assert cut == kept.rstrip() + "…"


@given(rows=st.lists(st.tuples(TEXT, TEXT), max_size=5))
def test_columns_of_a_table_line_up(rows):
    lines = table(["a", "b", "c"], [[*row, "|"] for row in rows] + [["", "", "|"]], "lr").splitlines()
    assert len({columns(line) for line in lines[1:] if line.endswith("|")}) <= 1
