"""Autoregressive models that predict their code from its last position to its first."""

import pytest
import torch

import factorank as fr
from factorank.codes.reversed import Reversed
from factorank.errors import ModelError
from factorank.models import TokenContext
from tests.models.naive import all_sequences, assert_drawn_from, autoregressive_log_prob, small_model

CODES = ["inline", "lehmer", "left-lehmer", "fisher-yates", "insertion"]


@pytest.mark.parametrize("code", CODES)
def test_the_law_is_the_product_from_the_other_end(code):
    n = 3 if code == "inline" else 4
    model = small_model(n, code, "autoregressive", reveal="right-to-left")
    sequences = all_sequences(model)
    truth = autoregressive_log_prob(model, sequences)
    assert truth.exp().sum().item() == pytest.approx(1, abs=1e-5)
    law = model.distribution()
    torch.testing.assert_close(law.log_prob(sequences), truth, atol=1e-4, rtol=1e-4)
    whole = fr.is_permutation(sequences)
    torch.testing.assert_close(-model.loss(sequences[whole]), truth[whole], atol=1e-4, rtol=1e-4)
    assert_drawn_from(law.sample((4000,), generator=torch.Generator().manual_seed(0)), sequences, truth.exp())


@pytest.mark.parametrize("code", CODES)
def test_a_change_of_the_last_value_alone_shows_in_the_first_prediction_only(code):
    """The value at the last position of the code is predicted first, from nothing."""
    model = small_model(4, code, "autoregressive", reveal="right-to-left")
    orders = fr.random_permutations(4, (20,), generator=torch.Generator().manual_seed(0))
    codes = fr.code(code).encode(orders)
    assert torch.equal(model.code.encode(orders), codes.flip(-1))
    assert torch.equal(model.code.decode(codes.flip(-1)), orders)
    assert torch.equal(model.code.sizes(4), fr.code(code).sizes(4).flip(-1))
    logits = model.logits(codes.flip(-1))
    torch.testing.assert_close(logits[:, 0], logits[:1, 0].expand(20, -1))


def test_it_is_saved_and_read_back(tmp_path):
    model = small_model(5, "insertion", "autoregressive", reveal="right-to-left")
    model.save_pretrained(tmp_path)
    again = fr.PermutationModel.from_pretrained(tmp_path)
    assert isinstance(again.code, Reversed)
    assert again.reveal == "right-to-left"
    orders = fr.random_permutations(5, (8,))
    torch.testing.assert_close(again.distribution().log_prob(orders), model.distribution().log_prob(orders))
    assert (model.config()["code"], repr(model.code)) == ("insertion", "Reversed(Insertion())")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reveal": "backwards"}, "'left-to-right' or 'right-to-left', not 'backwards'"),
        ({"reveal": "right-to-left", "objective": "masked"}, "is for autoregressive models"),
        ({"reveal": "right-to-left", "context": TokenContext("abc", 8)}, "not aligned"),
    ],
)
def test_what_it_is_not_for_is_refused(options, message):
    settings = {"objective": "autoregressive", "width": 8, "depth": 2, "heads": 2}
    with pytest.raises(ModelError, match=message):
        fr.PermutationModel(4, "insertion", **settings | options)
