"""The word list, its letter sets and the spellings of a word."""

from itertools import permutations

import pytest

from factorank.data.words import SHIPPED, anagram_sets, read_words, spellings, split_sets
from factorank.errors import FactorankError


def test_the_list_is_sorted_small_and_has_its_notice():
    words = read_words()
    assert words == sorted(set(words))
    assert {len(word) for word in words} == {3, 4, 5, 6, 7, 8, 9}
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
    learnt, held_out = split_sets(sets, 0.05)
    assert sorted(learnt + held_out) == sorted(sets)
    assert 0.04 < len(held_out) / len(sets) < 0.06
    assert split_sets(sets[::3], 0.05)[1] == [letters for letters in sets[::3] if letters in set(held_out)]
    assert "eforst" in learnt
