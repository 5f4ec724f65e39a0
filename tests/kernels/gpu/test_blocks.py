"""On a GPU: fused transformer blocks are as close to float32 as the library's bfloat16, and drop fairly."""

from contextlib import nullcontext

import pytest
import torch

from factorank.errors import FactorankError
from factorank.kernels import dispatch
from factorank.kernels.attention import BlockCache
from factorank.models.transformer import Transformer

pytestmark = pytest.mark.gpu


def stack(width, heads, dropout=0.0, depth=3):
    torch.manual_seed(0)
    blocks = Transformer(width, depth, heads, dropout).cuda()
    for weight in blocks.parameters():
        if weight.ndim == 1:
            torch.nn.init.normal_(weight, mean=0.5, std=0.3)
    return blocks


def outcome(blocks, x, mask, causal, *, fast, narrow):
    """The result and all gradients, for a fixed random direction, in one list."""
    x = x.detach().clone().requires_grad_()
    blocks.zero_grad()
    switch = nullcontext() if fast else dispatch.plain()
    with switch, torch.autocast("cuda", torch.bfloat16, enabled=narrow):
        y = blocks(x, mask, causal)
    direction = torch.randn(y.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    (y.float() * direction).sum().backward()
    return [y.detach().float(), x.grad, *(weight.grad.clone() for weight in blocks.parameters())]


@pytest.mark.parametrize("kind", ["all", "causal", "masked"])
@pytest.mark.parametrize(
    ("tokens", "width", "heads"),
    [(1, 64, 2), (5, 64, 4), (7, 128, 4), (10, 128, 8), (16, 128, 8), (36, 128, 8), (64, 64, 2)],
)
def test_as_close_to_float32_as_the_library(kind, tokens, width, heads):
    blocks = stack(width, heads)
    generator = torch.Generator("cuda").manual_seed(tokens)
    for rows in (1, 9, 131):
        x = torch.randn((rows, tokens, width), device="cuda", generator=generator)
        mask = None
        if kind == "masked":
            mask = torch.rand((rows, 1, 1, tokens), device="cuda", generator=generator) < 0.7
            mask[..., 0] = True
        runs = [
            outcome(blocks, x, mask, kind == "causal", fast=fast, narrow=narrow)
            for fast, narrow in ((True, True), (False, True), (False, False))
        ]
        for ours, theirs, exact in zip(*runs, strict=True):
            scale = exact.norm() + 1e-3
            assert (ours - exact).norm() / scale < 1.5 * (theirs - exact).norm() / scale + 2e-3


def test_dropout_is_the_same_backward_and_has_the_right_share():
    blocks = stack(64, 2, dropout=0.25, depth=1).train()
    with torch.no_grad():
        for weight in blocks.parameters():
            weight.zero_()
        blocks.blocks[0].down.bias.fill_(1.0)
    x = torch.randn((1000, 10, 64), device="cuda", requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        y = blocks(x)
        again = blocks(x)
    kept = (y - x).detach().round(decimals=3)
    assert kept.unique().tolist() == pytest.approx([0, 4 / 3], abs=1e-3)
    assert (kept > 0).float().mean().item() == pytest.approx(0.75, abs=0.005)
    for dim in range(3):  # no row, token or column fares better
        share = (kept > 0).float().mean([d for d in range(3) if d != dim])
        assert share.std() < 2 * (0.75 * 0.25 / (640_000 / len(share))) ** 0.5
    assert not torch.equal(y, again)
    direction = torch.randn_like(y)
    (y * direction).sum().backward()
    torch.testing.assert_close(
        blocks.blocks[0].down.bias.grad, (direction * kept).sum((0, 1)), atol=1e-2, rtol=1e-3
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when its compiler is imported
def test_compiles_whole():
    blocks = stack(64, 2)
    x = torch.randn((20, 10, 64), device="cuda")

    def mean_square(x):
        with torch.autocast("cuda", torch.bfloat16):
            return blocks(x * 2).square().mean()

    leaf = x.clone().requires_grad_()
    torch.compile(mean_square, fullgraph=True)(leaf).backward()
    gradients = [leaf.grad, *(weight.grad.clone() for weight in blocks.parameters())]
    blocks.zero_grad()
    leaf = x.clone().requires_grad_()
    mean_square(leaf).backward()
    for ours, plain in zip(gradients, [leaf.grad, *(w.grad for w in blocks.parameters())], strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-4, rtol=1e-3)


def test_token_by_token_as_close_to_float32_as_the_library():
    blocks = stack(128, 8).eval()
    x = torch.randn((70, 20, 128), device="cuda")
    with torch.no_grad():
        with dispatch.plain():
            exact = blocks(x, causal=True)
        with torch.autocast("cuda", torch.bfloat16):
            with dispatch.plain():
                theirs = blocks(x, causal=True)
            cache = blocks.cache(20, x[:, :1], single=True)
            ours = torch.cat([cache.advance(x[:, i : i + 1]) for i in range(20)], 1)
    assert not isinstance(cache, BlockCache)
    assert (ours - exact).norm() < 1.5 * (theirs - exact).norm()


def test_a_second_derivative_is_refused():
    blocks = stack(64, 2, depth=1)
    x = torch.randn((2, 5, 64), device="cuda", requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        y = blocks(x)
    with pytest.raises(FactorankError, match="first derivatives only"):
        torch.autograd.grad(y.square().sum(), x, create_graph=True)
