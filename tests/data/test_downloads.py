"""Downloads: from local archives, with what can be wrong with them."""

import hashlib
import io
import tarfile

import pytest

import factorank as fr
from factorank.data.downloads import Published, data_folder, find

CONTENT = {"a.bin": b"one" * 1000, "b.bin": b"two"}


def published(url, **changes):
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in CONTENT.items()}
    return Published(**({"title": "Things", "url": url, "folder": "things", "files": sums} | changes))


def make_archive(path, names=("a.bin", "b.bin", "../evil.txt")):
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            data = CONTENT.get(name, b"?")
            entry = tarfile.TarInfo(f"things/{name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path.as_uri()


def test_downloaded_once_and_only_what_is_wanted(tmp_path):
    archive = tmp_path / "things.tar.gz"
    data = published(make_archive(archive))
    place = find(data, tmp_path / "data")
    assert {path.name: path.read_bytes() for path in place.iterdir()} == CONTENT
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["things"]
    archive.unlink()
    assert find(data, tmp_path / "data") == place


@pytest.mark.parametrize("fault", ["lacks a file", "other content", "cut off", "not an archive"])
def test_a_wrong_archive_leaves_nothing_behind(fault, tmp_path):
    archive = tmp_path / "things.tar.gz"
    url = make_archive(archive, ("a.bin",) if fault == "lacks a file" else ("a.bin", "b.bin"))
    data = published(url)
    if fault == "other content":
        data = published(url, files=dict(data.files) | {"b.bin": "0" * 64})
    elif fault == "cut off":
        archive.write_bytes(archive.read_bytes()[:60])
    elif fault == "not an archive":
        archive.write_bytes(b"<html>moved</html>")
    with pytest.raises(fr.FactorankError, match=r"Things.*; download file:.*set FACTORANK_DATA"):
        find(data, tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_without_a_network_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("FACTORANK_DATA", str(tmp_path / "mine"))
    data = published((tmp_path / "nothing.tar.gz").as_uri())
    with pytest.raises(fr.FactorankError) as caught:
        find(data)
    text = str(caught.value)
    assert text.startswith(f"Things is not in {tmp_path / 'mine'} and could not be downloaded (")
    assert text.endswith(
        f"download {data.url}, unpack it, and set FACTORANK_DATA to the folder that holds things/"
    )


def test_where_data_lie(tmp_path, monkeypatch):
    monkeypatch.setenv("FACTORANK_DATA", "~/mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() == tmp_path / "mine"
    assert data_folder(tmp_path / "there") == tmp_path / "there"
    monkeypatch.delenv("FACTORANK_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder() == tmp_path / "cache" / "factorank"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == tmp_path / ".cache" / "factorank"
