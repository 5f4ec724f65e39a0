"""What the network predicts, by the public name: the laws are made of nothing else."""

import pytest
import torch

import factorank as fr
from factorank.errors import CodeError, ModelError
from factorank.models.transformer import Transformer
from tests.models.naive import all_orders, small_model

CODES = ["inline", "lehmer", "left-lehmer", "fisher-yates", "insertion"]


@pytest.mark.parametrize("code", CODES)
def test_masked_logits_make_the_law_of_one_evaluation(code):
    model, orders = small_model(4, code), all_orders(4)
    codes = model.code.encode(orders)
    log_probs = model.logits(torch.full((4,), -1)).log_softmax(-1)
    by_hand = log_probs.expand(len(codes), 4, 4).gather(-1, codes[..., None]).squeeze(-1).sum(-1)
    torch.testing.assert_close(by_hand, model.distribution(nfe=1).log_prob(orders))


@pytest.mark.parametrize("code", CODES)
def test_causal_logits_make_the_autoregressive_law(code):
    model, orders = small_model(4, code, "autoregressive"), all_orders(4)
    codes = model.code.encode(orders)
    chosen = model.logits(codes).log_softmax(-1).gather(-1, codes[..., None]).squeeze(-1).sum(-1)
    torch.testing.assert_close(chosen, model.distribution().log_prob(orders))
    first = model.logits(torch.tensor([codes[5, 0], -1, -1, -1]))
    torch.testing.assert_close(first[:2], model.logits(codes[5])[:2])
    assert first[2:].isnan().all()


def test_batches_broadcast_with_the_context():
    model = small_model(3, "insertion", context=fr.ItemContext(9, 16))
    items = torch.tensor([[3, 1, 2], [0, 8, 5]])
    together = model.logits(torch.full((3,), -1), items)
    assert together.shape == (2, 3, 3)
    torch.testing.assert_close(together[1], model.logits(torch.full((3,), -1), items[1]))


def test_bad_codes_are_refused():
    with pytest.raises(CodeError, match=r"allows 0\.\.1 at position 1, .* row 0 of the codes holds 2"):
        small_model(3, "lehmer").logits(torch.tensor([0, 2, 0]))
    with pytest.raises(ModelError, match="has 3 positions"):
        small_model(3, "lehmer").logits(torch.tensor([0, 0]))
    with pytest.raises(ModelError, match="must be the last ones"):
        small_model(3, "lehmer", "autoregressive").logits(torch.tensor([-1, 0, 0]))


def test_the_first_weights_keep_the_variance_of_the_stream():
    """What blocks add is the smaller the more of them there are."""
    torch.manual_seed(0)
    stack = Transformer(width=256, depth=4, heads=2, dropout=0.0)
    for block in stack.blocks:
        for linear, scale in ((block.qkv, 1), (block.up, 1), (block.out, 8), (block.down, 8)):
            wanted = (linear.in_features * scale) ** -0.5
            assert float(linear.weight.detach().std()) == pytest.approx(wanted, rel=0.05)
            assert not linear.bias.any()
    assert float(fr.ItemContext(1000, 64).embedding.weight.detach().std()) == pytest.approx(0.5, rel=0.05)


def test_a_model_has_as_many_layers_as_its_depth():
    for depth in (1, 2, 3):
        model = fr.PermutationModel(4, "lehmer", width=16, depth=depth, heads=2)
        assert len(model.network.transformer.blocks) == depth
