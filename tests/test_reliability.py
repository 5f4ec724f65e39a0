"""What once was silently wrong, lost, raw or costly, each a test; and a short form of `bench reliability`."""

import os
import signal
import struct
import subprocess
import sys
import threading
import zipfile
import zlib
from pathlib import Path

import pytest

import factorank as fr
from benchmarks import reliability
from benchmarks.campaign import commands, damage, edges, kills, together
from factorank import cli
from factorank.commands._text import PlainStream, visible
from factorank.data.frames import error_names
from factorank.data.pictures import read_picture
from factorank.data.words import read_words
from factorank.kernels import compiled
from factorank.signals import Terminated, exit_code, interruptions, terminable


@pytest.mark.parametrize(
    ("name", "content", "read", "message"),
    [
        ("user.csv", b"item,rating\n1,3,5\n", fr.rerank.read_user, "cells"),
        ("user.csv", b"item,rating\n\xe9,3\n", fr.rerank.read_user, ":2: byte 0xe9 is not UTF-8"),
        (
            "user.csv",
            b'item\n1\n"' + b"a," * 100_000,
            fr.rerank.read_user,
            r":.: no row of a CSV",
        ),
        ("r.csv", b"a," * 3000 + b"\n1", fr.load_ratings, "a, .* more. Say user"),
        ("words", b"tea\n\xff\n", read_words, ":2: byte 0xff is not UTF-8"),
        ("r.parquet", b"PAR1" + b"\xff" * 60, fr.load_ratings, "r.parquet"),
        ("r.safetensors", b"\xff" * 60, fr.load_ratings, "damaged"),
    ],
)
def test_files_that_raised_raw_errors_are_refused(tmp_path, name, content, read, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(fr.FactorankError, match=message):
        read(tmp_path / name)


SOC = "".join(
    f"# {fact}\n"
    for fact in (
        *("NUMBER ALTERNATIVES: 2", "NUMBER VOTERS: 1", "NUMBER UNIQUE ORDERS: 1"),
        *("ALTERNATIVE NAME 1: a", "ALTERNATIVE NAME 2: b"),
    )
)


@pytest.mark.parametrize("line", ["1: 1,{}2", "1{}: 1,2", "{}1: 1,2", "1: 1,2{}", "1: {}{{1,2}}"])
@pytest.mark.parametrize("end", ["", "x"])
def test_votes_with_many_spaces_come_to_an_end(tmp_path, line, end):
    """Half a million of them: whatever takes time with their square would take a day."""
    (tmp_path / "votes.toc").write_text(SOC + line.format(" " * 500_000) + end + "\n")
    if end:
        with pytest.raises(fr.RankingsError, match=r"votes\.toc:6: "):
            fr.read_rankings(tmp_path / "votes.toc")
    else:
        ranks = fr.read_rankings(tmp_path / "votes.toc").ranks.tolist()
        assert ranks == [[0, 0 if "{{" in line else 1]]


def test_small_files_that_stand_for_much_are_read_or_refused(tmp_path):
    wide, long = tmp_path / "wide.csv", tmp_path / "long.csv"
    cells = list(map(str, range(1, 64_001)))
    wide.write_text(",".join(f"item {cell}" for cell in cells) + "\n" + ",".join(cells) + "\n")
    assert fr.read_rankings(wide).ranks.tolist() == [list(range(64_000))]
    long.write_text("voter,item,rank\n" + "".join(f"v{i},i{i},1\n" for i in range(20_000)))
    with pytest.raises(fr.RankingsError, match="hold 400,000,000 ranks; at most 134,217,728"):
        fr.read_rankings(long)


def test_zips_that_are_locked_unknown_or_bombs_are_refused(tmp_path):
    path = tmp_path / "r.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ratings.csv", "user,item,rating\n" + "1,1,1\n" * 15_000_000)
    with pytest.raises(fr.RatingsError, match="unpacks to 90,000,017 bytes, more than 100 times"):
        fr.load_ratings(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ratings.csv", "user,item,rating\n1,1,1\n")
    data = bytearray(path.read_bytes())
    at, entry = data.index(b"PK\x03\x04"), data.index(b"PK\x01\x02")
    for offset, value in ((6, 1), (8, 99)):  # encrypted; packed in a way that nobody knows
        changed = bytearray(data)
        changed[at + offset] = changed[entry + offset + 2] = value
        path.write_bytes(changed)
        with pytest.raises(fr.RatingsError, match="cannot be unpacked here"):
            fr.load_ratings(path)


def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"\0"))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("name", ["picture.png", "picture.jpg", "picture.eps"])
def test_postscript_starts_no_process_whatever_its_name(tmp_path, name):
    (tmp_path / name).write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    )
    with damage.watched() as started, pytest.raises(fr.FactorankError, match="not a picture"):
        read_picture(tmp_path / name)
    assert not started


@pytest.mark.parametrize("size", [(100_000_000, 1), (2**31 - 1, 2**31 - 1), (200_000_000, 1)])
def test_pictures_that_are_too_large_are_refused(tmp_path, size):
    (tmp_path / "p.png").write_bytes(png(*size))
    with pytest.raises(fr.FactorankError, match=r"p\.png: the picture"):
        read_picture(tmp_path / "p.png")


def test_strangers_words_do_not_steer_the_terminal(tmp_path, capsys):
    assert visible("a\x1b[31m\x9b0m\u202eb\tc\n") == "a\ufffd[31m\ufffd0m\ufffdb\tc\n"
    print("title \x1b]0;mine\x07", file=PlainStream(sys.stdout))
    assert cli.main(["sample", str(tmp_path / "no\x1b[31mwhere")]) == 2
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert "title" in captured.out


def test_signals_have_their_exit_codes():
    def sent(number, block):
        try:
            with terminable(), block() if block else terminable():
                os.kill(os.getpid(), number)
                threading.Event().wait(0.2)
        except BaseException as error:
            return type(error).__name__, exit_code()
        return None, exit_code()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert sent(signal.SIGTERM, None) == ("Terminated", 143)
        assert sent(signal.SIGINT, None) == ("KeyboardInterrupt", 130)
        assert sent(signal.SIGTERM, interruptions) == (None, 143)
        assert sent(signal.SIGINT, interruptions) == (None, 130)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_a_signal_that_python_wraps_has_its_exit_code(stop, code, monkeypatch, capsys):
    class Field:
        def __set_name__(self, owner, name):
            if stop is Terminated:
                os.kill(os.getpid(), signal.SIGTERM)
                threading.Event().wait(0.2)
            raise stop

    def run(arguments):
        type("Wrapped", (), {"field": Field()})  # a RuntimeError in some versions of Python

    monkeypatch.setattr(cli, "_run", run)
    assert cli.main([]) == code
    assert capsys.readouterr().err == "factorank: stopped\n"


def test_a_signal_is_no_fault_of_a_file():
    with pytest.raises(Terminated), error_names("votes.parquet", fr.FactorankError, "damaged"):
        raise Terminated


@pytest.mark.parametrize("environment", [{"COLUMNS": "5"}, {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}])
def test_help_ends_on_every_terminal(environment):
    arguments = [sys.executable, "-m", "factorank", "sample", "--help"]
    done = subprocess.run(
        arguments, env=os.environ | environment, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0
    assert b"--count" in done.stdout


def test_a_command_works_where_its_output_is_closed():
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m factorank codes 2 0 1 >&-"],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_seed_is_checked_before_anything_is_read(tmp_path, capsys):
    assert cli.main(["sample", str(tmp_path), "--seed", str(10**23)]) == 2
    assert "--seed is from 0 to 2**63 - 1" in capsys.readouterr().err


def test_numba_has_a_private_place_where_nothing_can_be_written(monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    assert compiled.place_for_cache() is None
    monkeypatch.setattr(compiled, "_writable", lambda folder: False)
    place = Path(compiled.place_for_cache())
    assert place.stat().st_mode & 0o777 == 0o700
    assert place.stat().st_uid == os.getuid()
    place.rmdir()


def test_threads_share_a_model_that_is_in_training_mode():
    counts, faults = together.threads(24)
    assert not faults
    assert counts == {"right": 24 * 8}
    model = together.model()
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("kind", damage.kinds(), ids=lambda kind: kind.name)
def test_damaged_files(kind):
    outcomes = [damage.attempt(kind, number, 1) for number in range(5)]
    assert not [text for text in outcomes if text[0] in reliability.FAULTS]


def test_a_damaged_file_that_ends_the_process_is_told():
    kind = damage.kinds()[0]
    try:
        assert damage.attempt_apart(0, 1)[0] == damage.attempt(kind, 0, 1)[0]
        damage.worker().terminate()
        damage.worker().wait()
        assert damage.attempt_apart(0, 1) == ("process ended", "number 0: exit code -15")
    finally:
        damage.clean()


def test_numerical_edges():
    outcomes = [edges.attempt(number, 1) for number in range(60)]
    assert not [text for text in outcomes if text[0] in ("raw", "wrong answer")]


@pytest.mark.parametrize("name", ["sample", "train auto", "save_law", "Ratings.save"])
def test_killed_commands_lose_nothing(name):
    (command,) = [each for each in commands.COMMANDS if each.name == name]
    outcomes = [kills.attempt(command, number, 1) for number in range(4)]
    assert not [text for text in outcomes if text[0] in reliability.FAULTS]
    assert "whole" in {outcome for outcome, _ in outcomes}


def test_the_campaign_wants_enough_of_each_kind_and_command():
    assert reliability.wanted_of("damage") == 1000 * len(damage.kinds())
    assert reliability.wanted_of("kills") == 100 * len(commands.COMMANDS)
    for listed in (damage.kinds(), commands.COMMANDS):
        assert len({each.name for each in listed}) == len(listed)
