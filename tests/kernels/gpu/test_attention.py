"""On a GPU: attention over short lists equals torch's, forward and backward, for every kind of mask."""

from contextlib import nullcontext

import pytest
import torch

from factorank.kernels import dispatch

pytestmark = pytest.mark.gpu


def both(qkv, mask, causal):
    """The output and the gradient of the fast path and of its twin, for a fixed random direction."""
    results = []
    for switch in (nullcontext(), dispatch.plain()):
        leaf = qkv.detach().clone().requires_grad_()
        with switch:
            out = dispatch.attention(leaf, mask, causal=causal)
        generator = torch.Generator(qkv.device).manual_seed(1)
        direction = torch.randn(out.shape, device=qkv.device, generator=generator).to(out.dtype)
        (out * direction).sum().backward()
        results += [out.detach(), leaf.grad]
    return results


@pytest.mark.parametrize("kind", ["all", "causal", "masked"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("tokens", "heads", "head"), [
    (1, 2, 16), (2, 8, 16), (5, 8, 16), (6, 4, 32), (8, 1, 64), (10, 8, 16), (16, 8, 16), (25, 4, 32),
    (36, 8, 16), (50, 8, 32), (64, 2, 16),
])  # fmt: skip
def test_equals_the_library(kind, dtype, tokens, heads, head):
    generator = torch.Generator("cuda").manual_seed(tokens)
    for rows in (1, 7, 130):
        shape = (rows, tokens, 3, heads, head)
        qkv = torch.randn(shape, device="cuda", generator=generator).to(dtype)
        mask = None
        if kind == "masked":
            mask = torch.rand((rows, 1, 1, tokens), device="cuda", generator=generator) < 0.7
            mask[..., 0] = True
        got, gradient, wanted, wanted_gradient = both(qkv, mask, kind == "causal")
        tolerance = {"atol": 2e-5, "rtol": 1e-4} if dtype == torch.float32 else {"atol": 0.05, "rtol": 0.05}
        torch.testing.assert_close(got, wanted, **tolerance)
        torch.testing.assert_close(gradient, wanted_gradient, **tolerance)


def test_long_lists_and_wide_heads_go_to_the_library():
    for shape in ((3, 65, 3, 2, 16), (3, 10, 3, 1, 128), (0, 10, 3, 2, 16)):
        qkv = torch.randn(shape, device="cuda")
        got, gradient, wanted, wanted_gradient = both(qkv, None, False)
        torch.testing.assert_close(got, wanted)
        torch.testing.assert_close(gradient, wanted_gradient)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when its compiler is imported
def test_compiles_and_is_captured():
    qkv = torch.randn(40, 10, 3, 8, 16, device="cuda")

    def mean_square(qkv):
        return dispatch.attention(qkv * 2).square().mean()

    compiled = torch.compile(mean_square, fullgraph=True)
    leaf = qkv.clone().requires_grad_()
    compiled(leaf).backward()
    wanted = qkv.clone().requires_grad_()
    mean_square(wanted).backward()
    torch.testing.assert_close(leaf.grad, wanted.grad)
    graph = torch.cuda.CUDAGraph()
    static = qkv.clone()
    dispatch.attention(static)
    with torch.cuda.graph(graph):
        out = dispatch.attention(static)
    static.copy_(torch.randn_like(static))
    graph.replay()
    torch.testing.assert_close(out, dispatch.attention(static))


def test_a_second_derivative_is_refused_but_by_the_twin():
    qkv = torch.randn((3, 5, 3, 2, 16), device="cuda", requires_grad=True)

    def slope():
        (grad,) = torch.autograd.grad(dispatch.attention(qkv).square().sum(), qkv, create_graph=True)
        return grad.sum()

    with pytest.raises(RuntimeError, match="differentiate twice"):
        slope().backward()
    with dispatch.plain(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        slope().backward()
    assert qkv.grad.isfinite().all()
