"""Files and folders appear whole or not at all."""

import os
from pathlib import Path

import pytest

from factorank import files
from factorank.files import alone, folder_made_whole, read_json_lines, write_json, write_whole


def test_a_folder_takes_the_place_of_the_old_one_only_when_it_is_whole(tmp_path):
    path = tmp_path / "law"
    with folder_made_whole(path) as folder:
        (folder / "a").write_text("1")
        assert not path.exists()
    with pytest.raises(RuntimeError):
        fill_and_fail(path)
    assert [file.name for file in path.iterdir()] == ["a"]
    with folder_made_whole(path) as folder:
        (folder / "c").write_text("3")
    assert [file.name for file in path.iterdir()] == ["c"]
    assert [file.name for file in tmp_path.iterdir()] == ["law"]


def test_a_folder_is_replaced_where_folders_cannot_change_places(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.platform", "unknown")
    for name in ("a", "b"):
        with folder_made_whole(tmp_path / "law") as folder:
            (folder / name).write_text("")
        assert [file.name for file in (tmp_path / "law").iterdir()] == [name]
    assert [file.name for file in tmp_path.iterdir()] == ["law"]


def fill_and_fail(path):
    with folder_made_whole(path) as folder:
        (folder / "b").write_text("2")
        raise RuntimeError


def test_files_have_ordinary_permissions(tmp_path):
    (tmp_path / "ordinary").write_text("")
    write_whole(tmp_path / "ours", "text")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_json_refuses_what_it_cannot_hold(tmp_path):
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(tmp_path / "x.json", {"bits": float("nan")})
    assert not (tmp_path / "x.json").exists()


def test_links_and_devices_stay_what_they_are(tmp_path):
    target, link, pipe = (tmp_path / name for name in ("target", "link", "pipe"))
    target.write_text("old")
    link.symlink_to(target)
    write_whole(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "through")
    assert os.read(reader, 20) == b"through"
    os.close(reader)
    assert pipe.is_fifo()
    write_whole(os.devnull, "nothing")
    assert Path(os.devnull).is_char_device()


def test_lines_of_results_may_be_infinite(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"bits": Infinity}\n\n{"bits": 1}\n')
    assert read_json_lines(tmp_path / "rows.jsonl") == [{"bits": float("inf")}, {"bits": 1}]


def test_what_stopped_a_file_is_what_is_said(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError("no")

    monkeypatch.setattr(files, "open", refused, raising=False)
    with pytest.raises(PermissionError):
        write_whole(tmp_path / "file", "text")


def test_one_at_a_time_in_a_folder(tmp_path):
    with alone(tmp_path) as first, alone(tmp_path) as second:
        assert (first, second) == (True, False)
    with alone(tmp_path) as again:
        assert again
