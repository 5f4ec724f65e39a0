"""Sealed folders: every change is noticed, and a kill before any file operation leaves the old or the new."""

import json
import os

import pytest

from factorank import files
from factorank.errors import FactorankError, ModelError
from factorank.files import folder_made_whole
from factorank.sealed import is_sealed, read_sealed, sealed_head, write_sealed

OLD, NEW = ({"n": 1}, {"a": b"old a", "b": b"old b"}), ({"n": 2}, {"a": b"the new a", "c": b"new c"})


def read(folder):
    return read_sealed(folder, "head.json", ModelError, "a thing")


class Killed(BaseException):
    pass


OPERATIONS = ("replace", "rename", "fsync", "unlink", "rmdir", "mkdir")


def killed_before(monkeypatch, number, act):
    """Let the process die before an operation on files, and every clean-up with it: whether it did."""
    count = 0

    def dying(original):
        def operation(*arguments, **options):
            nonlocal count
            count += 1
            if count >= number:
                raise Killed
            return original(*arguments, **options)

        return operation

    with monkeypatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(os, name, dying(getattr(os, name)))
        exchange = files._exchange
        patch.setattr(files, "_exchange", dying(exchange))
        try:
            act()
        except Killed:
            return True
    return False


def test_a_kill_before_any_operation_leaves_the_old_or_the_new(tmp_path, monkeypatch):
    seen = []
    for number in range(1, 100):
        folder = tmp_path / str(number)
        write_sealed(folder, "head.json", *OLD)
        killed = killed_before(monkeypatch, number, lambda f=folder: write_sealed(f, "head.json", *NEW))
        seen.append(read(folder))
        assert seen[-1] in (OLD, NEW)
        write_sealed(folder, "head.json", *NEW)
        assert read(folder) == NEW
        if not killed:
            break
    assert seen[0] == OLD
    assert seen[-1] == NEW
    assert seen.index(NEW) < len(seen) - 2  # some kills fall between the moment of change and the last rename


@pytest.mark.parametrize("in_one_step", [True, False])
def test_a_kill_while_a_folder_is_replaced_leaves_the_old_or_the_new(tmp_path, monkeypatch, in_one_step):
    if not in_one_step:
        monkeypatch.setattr(files, "_exchange", lambda *_: False)

    def write(path, text):
        with folder_made_whole(path) as folder:
            (folder / "law").write_text(text)

    seen = []
    for number in range(1, 100):
        path = tmp_path / str(number)
        write(path, "old")
        killed = killed_before(monkeypatch, number, lambda p=path: write(p, "new"))
        seen.append((files.restored(path) / "law").read_text())
        if not killed:
            break
    assert seen[0] == "old"
    assert seen[-1] == "new"
    assert set(seen) == {"old", "new"}


def spoiled(folder, **changes):
    head = json.loads((folder / "head.json").read_text())
    (folder / "head.json").write_text(json.dumps(head | changes))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: spoiled(f, n=7), "damaged or edited"),
        (lambda f: (f / "head.json").write_text("{}"), "has no checksums"),
        (lambda f: (f / "head.json").write_text('{"n": 1, "n": 2}'), "'n' stands twice"),
        (lambda f: (f / "head.json").write_text('{"n": NaN'), "not JSON"),
        (lambda f: (f / "head.json").write_text("[" * 100_000), "nested deeper than the 64 levels"),
        (lambda f: (f / "head.json").write_text("[" * 99 + "]" * 99), "nested deeper than the 64 levels"),
        (lambda f: (f / "head.json").write_text("3"), "3 is not dict"),
        (lambda f: (f / "head.json").unlink(), "head.json is missing"),
        (lambda f: (f / "a").unlink(), "a is missing"),
        (lambda f: (f / "a").write_bytes(b"old b"), "a is damaged: its SHA-256"),
        (lambda f: (f / "a").write_bytes(b""), "a has 0 bytes and should have 5"),
    ],
)
def test_what_was_changed_is_refused(tmp_path, spoil, message):
    write_sealed(tmp_path, "head.json", *OLD)
    spoil(tmp_path)
    with pytest.raises(ModelError, match=message):
        read(tmp_path)


@pytest.mark.parametrize("name", ["../a", "/etc/hostname", "sub/a", "..", "", "sub\\a"])
def test_no_file_outside_the_folder_is_read(tmp_path, name):
    (tmp_path / "a").write_bytes(b"secret")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "head.json").write_text(sealed_head({}, {name: b"secret"}))
    with pytest.raises(FactorankError, match="is no entry of a file in this folder"):
        read(tmp_path / "inner")


def test_other_files_of_the_folder_are_left_alone(tmp_path):
    (tmp_path / "mine").write_text("mine")
    write_sealed(tmp_path, "head.json", *OLD)
    write_sealed(tmp_path, "head.json", *NEW)
    assert (tmp_path / "mine").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c", "head.json", "mine"]


def test_infinite_numbers_are_facts_too(tmp_path):
    write_sealed(tmp_path, "head.json", {"loss": float("inf")}, {"a": b"a"})
    assert is_sealed(tmp_path, "head.json", loss=float("inf"))
    assert not is_sealed(tmp_path, "head.json", loss=1.0)
    assert read(tmp_path) == ({"loss": float("inf")}, {"a": b"a"})


def test_a_folder_without_a_head_is_not_sealed(tmp_path):
    assert not is_sealed(tmp_path, "head.json")
    (tmp_path / "head.json").write_text("{")
    assert not is_sealed(tmp_path, "head.json")
