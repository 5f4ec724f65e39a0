"""Unscrambling: the word list, the batches, exact probabilities, training, shipped weights, the command."""

import json
from itertools import permutations
from pathlib import Path

import pytest
import torch

from factorank.cli import main
from factorank.commands.unscramble import scores_table
from factorank.data.words import SHIPPED, anagram_sets, read_words, spellings, split_sets
from factorank.errors import FactorankError
from factorank.experiments import unscramble
from factorank.experiments.unscramble import Scrambles, Size
from factorank.models import PermutationModel, TokenContext
from factorank.permutations import is_permutation

TINY = ["eat", "ate", "tea", "see", "stop", "spot", "noon"]


@pytest.fixture(scope="module")
def tiny():
    size = Size(width=32, depth=2, heads=2, memory=64, batch_size=64, lr=5e-3, steps=450, held_out=0)
    return unscramble.learn(TINY, size, device="cpu")[0], size


@pytest.fixture(scope="module")
def shipped():
    return unscramble.load()


def test_the_list_is_sorted_small_and_has_its_notice():
    words = read_words()
    assert words == sorted(set(words))
    assert {len(word) for word in words} == {3, 4, 5, 6, 7}
    assert SHIPPED.stat().st_size < 400 * 1024
    assert "Copyright 2000-2011 by Kevin Atkinson" in SHIPPED.with_name("words.notice.txt").read_text()


def test_a_list_that_is_none_is_refused(tmp_path):
    (tmp_path / "digits").write_text("cat\nc4t\n")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(FactorankError, match="word 2, 'c4t'"):
        read_words(tmp_path / "digits")
    with pytest.raises(FactorankError, match="there is no word"):
        read_words(tmp_path / "empty")


@pytest.mark.parametrize(("word", "letters"), [("forest", "osftre"), ("noon", "onno"), ("aaa", "aaa")])
def test_spellings_are_all_orders_that_spell(word, letters):
    wanted = [
        list(order)
        for order in permutations(range(len(word)))
        if "".join(letters[item] for item in order) == word
    ]
    assert sorted(spellings(word, letters)) == wanted


def test_spellings_of_other_letters_are_refused():
    with pytest.raises(FactorankError, match="'cat' is not spelt with the letters 'dog'"):
        spellings("cat", "dog")


def test_held_out_sets_do_not_depend_on_the_list():
    sets = list(anagram_sets(read_words()))
    seen, held_out = split_sets(sets, 0.05)
    assert sorted(seen + held_out) == sorted(sets)
    assert 0.04 < len(held_out) / len(sets) < 0.06
    assert split_sets(sets[::3], 0.05)[1] == [letters for letters in sets[::3] if letters in set(held_out)]
    assert "eforst" in seen


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
    given = is_noon & (letters == words[0]).all(-1)
    found, counts = orders[given].unique(dim=0, return_counts=True)
    assert found[:, :4].tolist() == sorted(spellings("noon", "noon"))
    assert (counts / counts.sum() - 0.25).abs().max() < 0.08
    assert is_permutation(orders[is_noon][:, :4]).all()


@pytest.mark.parametrize("unmask", ["left-to-right", "confident"])
@pytest.mark.parametrize("nfe", [1, 2, 4])
def test_probabilities_of_all_words_sum_to_one_and_agree_with_draws(tiny, nfe, unmask):
    model, _ = tiny
    words = sorted({"".join(word) for word in permutations("onno")})
    each = unscramble.probabilities(model, [("onno", word) for word in words], nfe, unmask)
    assert float(each.sum()) == pytest.approx(1, abs=1e-5)
    law = unscramble.law_of(model, ["onno"], nfe, unmask)
    drawn = law.sample((4000,), generator=torch.Generator().manual_seed(0))[:, 0]
    for word, probability in zip(words, each.tolist(), strict=True):
        share = sum(unscramble.spell("onno", order) == word for order in drawn.tolist()) / 4000
        assert share == pytest.approx(probability, abs=4 * (probability / 4000) ** 0.5 + 1e-3)


def test_a_tiny_list_is_learnt(tiny):
    model, size = tiny
    rows = {(row["unmask"], row["nfe"]): row for row in unscramble.score(model, TINY, size, samples=16)}
    assert {row["letter_sets"] for row in rows.values()} == {"seen"}
    full = rows["left-to-right", 4]
    assert full["real"] > 0.7
    assert full["all_anagrams"] == 1
    assert full["real"] > rows["left-to-right", 1]["real"] > full["uniform"]
    assert rows["random", 4]["real"] == pytest.approx(full["real"], abs=0.15)
    assert max(map(len, scores_table(list(rows.values())).splitlines())) < 80


def test_saved_in_half_precision_and_read_back(tiny, tmp_path):
    model, _ = tiny
    unscramble.save(model, tmp_path / "model")
    again = unscramble.load(tmp_path / "model")
    assert str(unscramble.load(tmp_path)) == str(again)  # the folder of the run
    for mine, theirs in zip(model.parameters(), again.parameters(), strict=True):
        assert theirs.dtype == torch.float32
        assert torch.equal(mine, theirs)


def test_the_shipped_model_sees_the_words_of_the_figure(shipped):
    known = ["forest", "fortes", "foster", "softer"]
    found = unscramble.seen_words(
        shipped, "osftre", known, samples=50, generator=torch.Generator().manual_seed(0)
    )
    shares = {word: share for word, share in found if word in known}
    assert sum(shares.values()) > 0.7
    assert sum(share > 0.05 for share in shares.values()) >= 3  # several modes
    assert min(shares.get(word, 0) for word in known) > 0.005  # and none is lost
    assert sum(
        (unscramble.WEIGHTS / name).stat().st_size for name in ("model.safetensors", "config.json")
    ) < (2 * 2**20)


@pytest.mark.parametrize(
    ("letters", "message"),
    [
        ("", "there are no letters to unscramble"),
        ("os3tre", "letters are a to z, but 'os3tre' holds '3' at place 3"),
        ("ça va", "holds 'ç' at place 1"),
        ("unscramble", "orders 3 to 7 letters, but 'unscramble' has 10"),
        ("at", "orders 3 to 7 letters, but 'at' has 2"),
    ],
)
def test_letters_that_cannot_be_are_refused(letters, message, capsys):
    assert main(["unscramble", letters]) == 2
    assert message in capsys.readouterr().err


def test_the_command_shows_words_and_path(capsys):
    assert main(["unscramble", "OSFTRE", "--samples", "20", "--show-path"]) == 0
    out = capsys.readouterr().out
    marked = {line.split()[0] for line in out.splitlines() if line.endswith(" *")}
    assert marked == {"forest", "fortes", "foster", "softer"}
    path = [line.split() for line in out.split("order\n")[-1].splitlines()]
    assert [len(row) for row in path] == [8] * 7
    assert [row[1:7].count("·") for row in path] == [6, 5, 4, 3, 2, 1, 0]
    assert path[0][-1] == "osftre"
    assert all(sorted(row[-1]) == sorted("osftre") for row in path)


def test_a_model_of_something_else_is_refused(tmp_path):
    PermutationModel(3, "insertion", width=8, depth=1, heads=1).save_pretrained(tmp_path)
    with pytest.raises(FactorankError, match="does not order letters"):
        unscramble.load(tmp_path)


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
    assert "holds a run with other words" in capsys.readouterr().err
