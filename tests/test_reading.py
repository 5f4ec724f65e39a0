"""What a stranger's file may hold, by type, and how a refusal shows it."""

import pytest

import factorank as fr
from factorank.reading import expect, matches


@pytest.mark.parametrize(("length", "shown"), [(58, "'" + "x" * 58 + "'"), (59, "'" + "x" * 56 + "…")])
def test_long_values_are_cut_in_messages(length, shown):
    with pytest.raises(fr.FactorankError) as caught:
        expect(int, "x" * length, "here")
    assert shown in str(caught.value)
    assert ("…" in str(caught.value)) == ("…" in shown)


def test_nothing_is_of_the_kind_none():
    assert matches(None, None)
    assert not matches(0, None)
    assert matches(None, int | None)
    assert not matches("0", int | None)
