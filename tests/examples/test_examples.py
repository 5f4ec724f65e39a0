"""Every example: short, of public names alone, run in the small."""

import importlib
import re

import pytest

import factorank as fr
from tests.source_tree import ROOT

EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


def main(name, **options):
    return importlib.import_module(f"examples.{name}").main(**options)


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_short_and_uses_public_names_only(name):
    source = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 60
    assert re.findall(r"from factorank", source) == []
    assert set(re.findall(r"fr\.(\w+)", source)) <= set(dir(fr))


def test_there_are_six():
    assert len(EXAMPLES) == 6


def test_digits_are_sorted_with_every_code():
    shares = main("sort_digits", n=3, steps=80)
    assert set(shares) == {"insertion", "lehmer"}
    assert min(shares.values()) > 0.5  # chance is a sixth


def test_votes_of_two_groups_are_two_groups():
    bits = main("votes_to_a_law", votes=200)
    assert min(bits, key=bits.get) == "two Mallows"


def test_true_ranks_lie_in_their_sets():
    sets = main("who_is_ahead", battles=600)
    assert all(low <= rank <= high for rank, (_, (low, high)) in enumerate(sorted(sets.items()), start=1))


def test_a_puzzle_is_solved():
    answer = main("solve_a_puzzle", grid=(3, 4))
    assert answer.slots.tolist() == answer.true_slots.tolist()


def test_draws_of_one_cycle_need_one_evaluation():
    shares = main("one_cycle", n=4, steps=60, samples=500)
    assert shares["fisher-yates"][0] > 0.9  # chance: a quarter
    assert shares["lehmer"][0] < 0.7


def test_films_follow_what_a_user_said():
    first, second = main("rerank_films", users=60, steps=5)
    assert first.index(1) >= 0
    assert second.index(9) >= 0
