"""Unscrambling: the batches, training, scores, the command."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from factorank import unscramble as room
from factorank.cli import main
from factorank.commands.unscramble import scores_table
from factorank.data.words import anagram_sets, read_words, spellings, split_sets
from factorank.experiments import unscramble
from factorank.experiments.unscramble import Scrambles, UnscrambleSize
from factorank.models import TokenContext
from factorank.permutations import is_permutation

TINY = ["eat", "ate", "tea", "see", "stop", "spot", "noon"]


@pytest.fixture(scope="module")
def tiny():
    size = UnscrambleSize(
        width=32,
        depth=2,
        heads=2,
        dropout=0.1,
        memory=64,
        alphabetical=False,
        masks="any",
        batch_size=64,
        lr=5e-3,
        steps=450,
        held_out=0,
    )
    return unscramble.learn(TINY, size, device="cpu")[0], size


def test_batches_spell_their_words_in_every_order_alike():
    context = TokenContext("abcdefghijklmnopqrstuvwxyz", 8)
    words = context.ids(["noon", "tea"], 5)
    orders, letters = Scrambles(words)(6000, torch.Generator().manual_seed(0))
    assert torch.equal(orders < 0, letters < 0)
    spelt = torch.where(orders < 0, -1, letters.gather(-1, orders.clamp(min=0)))
    is_noon = (spelt == words[0]).all(-1)
    assert (is_noon | (spelt == words[1]).all(-1)).all()
    assert is_noon.float().mean().item() == pytest.approx(0.5, abs=0.03)
    # Four orders spell noon from the letters n, o, o, n as they stand, each a quarter of the time.
    listed = is_noon & (letters == words[0]).all(-1)
    unique, counts = orders[listed].unique(dim=0, return_counts=True)
    assert unique[:, :4].tolist() == sorted(spellings("noon", "noon"))
    assert (counts / counts.sum() - 0.25).abs().max() < 0.08
    assert is_permutation(orders[is_noon][:, :4]).all()


def test_a_tiny_list_is_learnt(tiny):
    model, size = tiny
    scored = list(unscramble.score(model, TINY, size.held_out, more=["post"], samples=16))
    assert {row["length"] for row in scored} == {None, 3, 4}
    rows = {(row["unmask"], row["nfe"]): row for row in scored if row["length"] is None}
    assert {row["letter_sets"] for row in rows.values()} == {"seen"}
    full = rows["left-to-right", 4]
    assert full["real"] > 0.7
    assert full["all_anagrams"] == 1
    assert full["real"] > rows["left-to-right", 1]["real"] > full["uniform"]
    assert full["real_with_more"] > full["real"]  # post is a word of the larger list
    assert full["fair"] <= full["all_anagrams"]
    assert rows["random", 4]["real"] == pytest.approx(full["real"], abs=0.15)
    assert max(map(len, scores_table(list(rows.values())).splitlines())) < 80


def test_a_larger_list_teaches_spelling_but_no_word_of_known_or_held_out_letters(monkeypatch):
    seen = {}

    def catch(model, batches, **options):
        drawn = batches(4000, torch.Generator().manual_seed(0))[1]
        words = ["".join(chr(97 + x) for x in row if x >= 0) for row in drawn.tolist()]
        seen.update({"".join(sorted(word)): words.count(word) / len(words) for word in words})
        assert all(list(word) == sorted(word) for word in words)

    monkeypatch.setattr(unscramble, "train", catch)
    held_out = split_sets(anagram_sets(read_words()))[1]
    more = ["post", "sand", "stopping", "a", next(x for x in held_out if len(x) <= 4)]
    size = UnscrambleSize(width=8, heads=1, depth=1, spelling_share=0.25)
    unscramble.learn(TINY, size, more=more)
    learnt = {letters for letters in anagram_sets(TINY) if letters not in held_out}
    assert set(seen) == learnt | {"adns"}
    assert seen["adns"] == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize("code", ["insertion", "left-lehmer"])
def test_letters_in_alphabetical_order_give_one_law_whichever_way_they_are_scrambled(code):
    masks = "prefix" if code == "left-lehmer" else "suffix"
    changes = {"alphabetical": True, "code": code, "masks": masks, "memory": 8, "dropout": 0.0}
    size = UnscrambleSize(
        width=32, depth=2, heads=2, batch_size=64, lr=5e-3, steps=150, held_out=0, **changes
    )
    model = unscramble.learn(TINY, size, device="cpu")[0]
    words = ["eat", "ate", "tea", "aet", "eta", "tae"]
    shares = [dict(room.likely_words(given, words, model=model, samples=50)) for given in ("eta", "tae")]
    assert shares[0] == pytest.approx(shares[1], abs=1e-5)
    assert sum(shares[0].values()) == pytest.approx(1, abs=1e-5)
    assert sum(shares[0][word] for word in words[:3]) > 0.6


@pytest.mark.parametrize(
    ("masks", "laws"),
    [
        ("prefix", {("right-to-left", 1), ("right-to-left", 2), ("right-to-left", 4)}),
        ("suffix", {("left-to-right", 1), ("left-to-right", 2), ("left-to-right", 4)}),
        ("all", {("left-to-right", 1)}),
    ],
)
def test_only_laws_that_were_learnt_are_scored(masks, laws):
    code = "left-lehmer" if masks == "prefix" else "insertion"
    tiny = UnscrambleSize(width=8, depth=1, heads=1, batch_size=32, steps=2, held_out=0)
    size = replace(tiny, code=code, masks=masks)
    model = unscramble.learn(TINY, size, device="cpu")[0]
    rows = [row for row in unscramble.score(model, TINY, size.held_out) if row["length"] is None]
    assert {(row["unmask"], row["nfe"]) for row in rows} == laws


def test_saved_in_half_precision_and_read_back(tiny, tmp_path):
    model, _ = tiny
    before = [weight.clone() for weight in model.parameters()]
    model.save_pretrained(tmp_path / "model", torch.float16)
    again = room.load(tmp_path / "model")
    assert str(room.load(tmp_path)) == str(again)  # the folder of the run
    for mine, was, theirs in zip(model.parameters(), before, again.parameters(), strict=True):
        assert theirs.dtype == torch.float32
        assert torch.equal(mine.half().float(), theirs)
        assert torch.equal(mine, was)


@pytest.mark.parametrize(
    ("letters", "message"),
    [
        ("", "there are no letters to unscramble"),
        ("os3tre", "letters are a to z, but 'os3tre' holds '3' at place 3"),
        ("ça va", "holds 'ç' at place 1"),
        ("unscramble", "orders 3 to {n} letters, but 'unscramble' has 10"),
        ("at", "orders 3 to {n} letters, but 'at' has 2"),
    ],
)
def test_letters_that_cannot_be_are_refused(letters, message, capsys):
    assert main(["unscramble", letters]) == 2
    assert message.format(n=room.load().n) in capsys.readouterr().err


def test_the_command_shows_words_and_path(capsys):
    assert main(["unscramble", "OSFTRE", "--samples", "20", "--show-path"]) == 0
    out = capsys.readouterr().out
    marked = {line.split()[0] for line in out.splitlines() if line.endswith(" *")}
    assert marked == {"forest", "fortes", "foster", "softer"}
    path = [line.split() for line in out.split("order\n")[-1].splitlines()]
    assert [len(row) for row in path] == [8] * 6
    assert [row[1:7].count("·") for row in path] == [6, 4, 3, 2, 1, 0]  # the first value needs no evaluation
    assert path[0][-1] == "eforst"  # the order of the alphabet, which the code is relative to
    assert all(sorted(row[-1]) == sorted("osftre") for row in path)


def test_the_command_says_when_there_is_no_word(capsys):
    assert main(["unscramble", "qzxvk", "--samples", "5", "--nfe", "1"]) == 0
    assert "no word of just these letters" in capsys.readouterr().out


def test_the_command_says_what_was_held_out(capsys):
    letters = split_sets(anagram_sets(read_words()))[1][0]
    assert main(["unscramble", letters, "--samples", "5", "--nfe", "1"]) == 0
    assert "These letters were held out" in capsys.readouterr().out
    assert main(["unscramble", "osftre", "--samples", "5", "--nfe", "1"]) == 0
    assert "held out" not in capsys.readouterr().out


def test_the_command_trains_and_measures(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.txt").write_text("\n".join(TINY))
    assert (
        main(["unscramble", "tae", "--train", "--steps", "3", "--words", "tiny.txt", "--samples", "5"]) == 0
    )
    out = capsys.readouterr().out
    assert "real words %" in out
    assert " *" in out
    rows = [json.loads(line) for line in Path("runs/unscramble/unscramble.jsonl").read_text().splitlines()]
    assert {"real", "all_anagrams", "nfe", "command", "commit", "device"} <= set(rows[0])
    assert main(["unscramble", "tae", "--model", "runs/unscramble/model", "--samples", "5"]) == 0
    capsys.readouterr()
    assert main(["unscramble", "--train", "--steps", "3"]) == 2
    assert "other data" in capsys.readouterr().err
    (tmp_path / "more.txt").write_text("ten\nnet\n")
    tiny = ["unscramble", "--train", "--steps", "3", "--words", "tiny.txt"]
    assert main([*tiny, "--spelling", "more.txt"]) == 2
    assert "other data" in capsys.readouterr().err
    for bad, said in (
        (["--spelling-share", "2"], "--spelling-share is a share, from 0 to 1, not 2.0"),
        (["--spelling-share", "nan"], "--spelling-share is a share, from 0 to 1, not nan"),
        (["--steps", "0"], "--steps is at least 1, not 0"),
        (["--heads", "0"], "--heads is at least 1, not 0"),
    ):
        assert main([*tiny, *bad]) == 2
        assert said in capsys.readouterr().err


def test_the_command_trains_for_a_time_a_network_of_another_size(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.txt").write_text("\n".join(TINY))
    sizes = ["--width", "16", "--depth", "1", "--heads", "2", "--dropout", "0", "--spelling-share", "0.5"]
    assert main(["unscramble", "--train", "--max-seconds", "1", "--words", "tiny.txt", *sizes]) == 0
    rows = [json.loads(line) for line in Path("runs/unscramble/unscramble.jsonl").read_text().splitlines()]
    assert {(row["width"], row["depth"], row["dropout"], row["spelling_share"]) for row in rows} == {
        (16, 1, 0.0, 0.5)
    }
    assert all(row["steps"] is None and row["trained_steps"] > 0 for row in rows)
    assert '"schedule": "time"' in Path("runs/unscramble/run/training.json").read_text()
