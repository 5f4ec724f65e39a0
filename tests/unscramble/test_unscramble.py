"""The law of letters: exact probabilities, the words that are drawn, the shipped model."""

from itertools import permutations

import pytest
import torch

from factorank import unscramble
from factorank.errors import FactorankError
from factorank.models import PermutationModel


@pytest.fixture(scope="module")
def shipped():
    return unscramble.load()


@pytest.mark.parametrize("unmask", ["left-to-right", "confident"])
@pytest.mark.parametrize("nfe", [1, 2, 4])
def test_probabilities_of_all_words_sum_to_one_and_agree_with_draws(shipped, nfe, unmask):
    words = sorted({"".join(word) for word in permutations("onno")})
    each = unscramble.word_probabilities(shipped, [("onno", word) for word in words], nfe, unmask)
    assert float(each.sum()) == pytest.approx(1, abs=1e-5)
    law = unscramble.law_of_letters(shipped, ["onno"], nfe, unmask)
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
    assert sum(shares.values()) > 0.7
    assert sum(share > 0.05 for share in shares.values()) >= 3  # several modes
    assert min(shares.get(word, 0) for word in real) > 0.005  # and none is lost
    assert sum(
        (unscramble.WEIGHTS / name).stat().st_size for name in ("model.safetensors", "config.json")
    ) < (2 * 2**20)


def test_random_unmasking_gives_shares_of_the_draws(shipped):
    words = unscramble.likely_words(
        "tae", model=shipped, unmask="random", samples=40, generator=torch.Generator().manual_seed(0)
    )
    assert sum(share for _, share in words) == pytest.approx(1)
    assert all((40 * share) == pytest.approx(round(40 * share)) for _, share in words)
    with pytest.raises(FactorankError, match="letters are a to z, but 't4e' holds '4' at place 2"):
        unscramble.likely_words("t4e", model=shipped)


def test_a_model_of_something_else_is_refused(tmp_path):
    PermutationModel(3, "insertion", width=8, depth=1, heads=1).save_pretrained(tmp_path)
    with pytest.raises(FactorankError, match="does not order letters"):
        unscramble.load(tmp_path)
