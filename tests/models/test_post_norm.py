"""Models whose norms follow attention and MLP: the network of the first transformers."""

import math

import pytest
import torch
from torch import nn

import factorank as fr
from factorank.errors import ModelError
from factorank.models.transformer import PostNormBlock, Transformer, waves
from tests.models.naive import all_orders, small_model


def torchs_layer(block, width, heads, dropout=0.0):
    """Torch's own layer with the weights of a block."""
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, batch_first=True)
    pairs = [
        (layer.self_attn.in_proj_weight, block.qkv.weight),
        (layer.self_attn.in_proj_bias, block.qkv.bias),
        *(
            (layer.self_attn.out_proj.weight, block.out.weight),
            (layer.self_attn.out_proj.bias, block.out.bias),
        ),
        *((layer.linear1.weight, block.up.weight), (layer.linear1.bias, block.up.bias)),
        *((layer.linear2.weight, block.down.weight), (layer.linear2.bias, block.down.bias)),
        *((layer.norm1.weight, block.attention_norm.weight), (layer.norm1.bias, block.attention_norm.bias)),
        *((layer.norm2.weight, block.mlp_norm.weight), (layer.norm2.bias, block.mlp_norm.bias)),
    ]
    with torch.no_grad():
        for theirs, ours in pairs:
            theirs.copy_(ours)
    return layer


@pytest.fixture
def block():
    torch.manual_seed(0)
    made = PostNormBlock(16, 4, 0.0)
    for weight in made.parameters():
        nn.init.normal_(weight, std=0.3)
    return made


@pytest.mark.parametrize("kind", ["all", "keys", "causal"])
def test_a_block_is_torchs_layer(block, kind):
    x = torch.randn(3, 5, 16)
    keys = torch.ones(3, 5, dtype=torch.bool)
    keys[1, 3:] = False
    allowed = torch.ones(5, 5, dtype=torch.bool).tril()
    masks = {"all": (None, False), "keys": (keys[:, None, None], False), "causal": (None, True)}
    theirs = {"all": {}, "keys": {"src_key_padding_mask": ~keys}, "causal": {"src_mask": ~allowed}}
    wanted = torchs_layer(block, 16, 4)(x, **theirs[kind])
    torch.testing.assert_close(block(x, *masks[kind]), wanted, atol=1e-5, rtol=1e-5)


def test_dropout_is_where_torch_has_it(block):
    """The means and the variances of the outputs of both agree."""
    block.dropout, layer = 0.3, torchs_layer(block, 16, 4, 0.3)
    x = torch.randn(1, 5, 16).expand(4000, 5, 16)
    ours, theirs = (module.train()(x) for module in (block, layer))
    assert ours.var(0).min() > 0
    torch.testing.assert_close(ours.mean(0), theirs.mean(0), atol=0.06, rtol=0)
    torch.testing.assert_close(ours.std(0), theirs.std(0), atol=0.04, rtol=0.05)


def test_tokens_are_dropped_as_well():
    torch.manual_seed(0)
    stack = Transformer(8, 1, 2, 0.5, norm="after").train()
    stack.blocks[0] = nn.Identity()
    stack._one_by_one = lambda x, mask, causal: x
    kept = stack(torch.ones(100, 10, 8)).ne(0).float().mean()
    assert kept.item() == pytest.approx(0.5, abs=0.03)
    assert stack.eval()(torch.ones(2, 10, 8)).eq(1).all()


def test_waves():
    made = waves(torch.tensor([-2, 0, 3]), 6)
    for row, place in enumerate((-2, 0, 3)):
        for pair in range(3):
            angle = place / 10_000 ** (2 * pair / 6)
            wanted = torch.tensor([math.sin(angle), math.cos(angle)])
            torch.testing.assert_close(made[row, 2 * pair : 2 * pair + 2], wanted, atol=1e-6, rtol=1e-5)
    assert waves(torch.arange(4), 5).shape == (4, 5)


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_a_saved_model_is_the_same(objective, tmp_path):
    model = small_model(4, "insertion", objective, norm="after", dropout=0.1)
    assert not any("places" in name for name in model.state_dict())
    model.save_pretrained(tmp_path)
    again = fr.PermutationModel.from_pretrained(tmp_path)
    assert again.norm == "after"
    orders, one = all_orders(4), (1 if objective == "masked" else None)
    torch.testing.assert_close(
        again.distribution(nfe=one).log_prob(orders), model.distribution(nfe=one).log_prob(orders)
    )
    shorter = model.with_length(3)
    assert shorter.distribution(nfe=one).log_prob(all_orders(3)).exp().sum().item() == pytest.approx(1)


def test_another_norm_is_refused():
    with pytest.raises(ModelError, match="norm is 'before' or 'after', not 'none'"):
        fr.PermutationModel(3, "lehmer", norm="none")
