"""The law of letters: exact probabilities, the words that are drawn, the shipped model."""

from itertools import permutations

import pytest
import torch

from factorank import unscramble
from factorank.data.words import LETTERS
from factorank.errors import FactorankError
from factorank.models import PermutationModel
from factorank.unscramble import law


@pytest.fixture(scope="module")
def shipped():
    return unscramble.load()


@pytest.fixture(scope="module")
def untrained():
    """A model that can be asked in any order of revealing, as the shipped one cannot."""
    torch.manual_seed(0)
    context = unscramble.LetterContext(LETTERS, 16, 0)
    return PermutationModel(4, "insertion", width=16, depth=1, heads=2, context=context).eval()


@pytest.mark.parametrize(
    ("which", "unmask"),
    [("shipped", "left-to-right"), ("untrained", "left-to-right"), ("untrained", "confident")],
)
@pytest.mark.parametrize("nfe", [1, 2, 4])
def test_probabilities_of_all_words_sum_to_one_and_agree_with_draws(request, which, nfe, unmask):
    model = request.getfixturevalue(which)
    words = sorted({"".join(word) for word in permutations("onno")})
    each = unscramble.word_probabilities(model, [("onno", word) for word in words], nfe, unmask)
    assert float(each.sum()) == pytest.approx(1, abs=1e-5)
    law = unscramble.law_of_letters(model, ["onno"], nfe, unmask)
    draws = law.sample((4000,), generator=torch.Generator().manual_seed(0))[:, 0]
    for word, probability in zip(words, each.tolist(), strict=True):
        share = sum(unscramble.spell("onno", order) == word for order in draws.tolist()) / 4000
        assert share == pytest.approx(probability, abs=4 * (probability / 4000) ** 0.5 + 1e-3)


def test_the_shipped_model_draws_the_words_of_the_figure(shipped):
    real = ["forest", "fortes", "foster", "softer"]
    words = unscramble.likely_words(
        "osftre", real, model=shipped, samples=50, generator=torch.Generator().manual_seed(0)
    )
    assert [share for _, share in words] == sorted((share for _, share in words), reverse=True)
    shares = {word: share for word, share in words if word in real}
    assert sum(shares.values()) > 0.99
    assert min(shares.values()) > 0.25 / 2  # each has half of its fair share
    assert sum(
        (unscramble.WEIGHTS / name).stat().st_size for name in ("model.safetensors", "config.json")
    ) < (6 * 2**20)


def test_many_equal_letters_leave_shares_of_the_draws(shipped, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    assert unscramble.likely_words("zzzzzzzzz", model=shipped, samples=20, generator=generator) == [
        ("zzzzzzzzz", 1.0)
    ]
    asked = []
    monkeypatch.setattr(law, "MOST_ORDERS", 9)
    monkeypatch.setattr(
        law, "word_probabilities", lambda model, pairs, *_: asked.extend(pairs) or torch.ones(len(pairs))
    )
    words = dict(unscramble.likely_words("noon", ["onno"], model=shipped, samples=40, generator=generator))
    assert [word for _, word in asked] == ["onno", "noon"]  # four orders spell each; the listed one is first
    assert words["onno"] == words["noon"] == 1
    assert all((40 * share) == pytest.approx(round(40 * share)) for share in words.values())


def test_random_unmasking_gives_shares_of_the_draws(untrained):
    words = unscramble.likely_words(
        "tae", model=untrained, unmask="random", samples=40, generator=torch.Generator().manual_seed(0)
    )
    assert sum(share for _, share in words) == pytest.approx(1)
    assert all((40 * share) == pytest.approx(round(40 * share)) for _, share in words)
    at_once = [
        dict(unscramble.likely_words("tae", ["tea"], model=untrained, nfe=1, unmask=unmask, samples=5))["tea"]
        for unmask in ("random", "confident", None)
    ]
    assert at_once == [at_once[0]] * 3  # exact: there is one order of revealing only
    with pytest.raises(FactorankError, match="letters are a to z, but 't4e' holds '4' at place 2"):
        unscramble.likely_words("t4e", model=untrained)


def test_the_shipped_model_says_in_which_order_it_can_be_asked(shipped):
    assert unscramble.usual_unmask(shipped) == "left-to-right"
    with pytest.raises(FactorankError, match="has learnt to reveal left to right; unmask='confident' needs"):
        unscramble.likely_words("tea", model=shipped, unmask="confident", samples=5)


def test_a_model_of_something_else_is_refused(tmp_path):
    PermutationModel(3, "insertion", width=8, depth=1, heads=1).save_pretrained(tmp_path)
    with pytest.raises(FactorankError, match="does not order letters"):
        unscramble.load(tmp_path)
