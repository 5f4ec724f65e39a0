"""What a stranger's file may hold, by type, and how a refusal shows it."""

import os
import threading

import pytest

import factorank as fr
from factorank.reading import expect, matches, read_bytes


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


def test_keys_and_values_of_a_dictionary_are_of_their_kinds():
    assert matches({"a": 1, "b": 2}, dict[str, int])
    assert matches({}, dict[str, int])
    assert not matches({"a": 1, "b": "2"}, dict[str, int])
    assert not matches({"a": 1, 2: 2}, dict[str, int])


def test_files_are_read_whole(tmp_path):
    """An empty one, one of a known size, and what arrives in parts through a pipe."""
    text, pipe = bytes(range(256)) * 10_000, tmp_path / "pipe"
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "file").write_bytes(text)
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(text,))
    writer.start()
    assert read_bytes(pipe, most=len(text)) == text
    writer.join()
    assert read_bytes(tmp_path / "file", most=len(text)) == text
    assert read_bytes(tmp_path / "empty", most=0) == b""
    with pytest.raises(fr.FactorankError, match="larger than the 2,559,999 bytes"):
        read_bytes(tmp_path / "file", most=len(text) - 1)
