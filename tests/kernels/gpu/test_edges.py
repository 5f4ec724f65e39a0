"""On a GPU: fused rounds of edge attention are as close to float64 as the plain ones in bfloat16."""

import copy
from contextlib import nullcontext

import pytest
import torch

from factorank.jigsaw.edges import EdgeAttention
from factorank.kernels import dispatch
from tests.kernels.gpu.captured import captured

pytestmark = pytest.mark.gpu


def layer(width, rounds=3, piece=3):
    torch.manual_seed(0)
    edges = EdgeAttention(piece, 3, width, rounds=rounds).cuda()
    for weight in edges.rounds.parameters():
        if weight.ndim == 1:
            torch.nn.init.normal_(weight, mean=0.5, std=0.3)
    return edges


def inputs(batch, n, width, piece=3):
    generator = torch.Generator("cuda").manual_seed(n)
    pixels = torch.randn((*batch, n, piece, piece, 3), device="cuda", generator=generator)
    return torch.randn((*batch, n, width), device="cuda", generator=generator), pixels


def outcome(edges, tokens, pixels, *, fast, narrow=True):
    """The result and all gradients, for a fixed random direction, in one list."""
    edges.zero_grad()
    tokens = tokens.detach().clone().requires_grad_()
    switch = nullcontext() if fast else dispatch.plain()
    with switch, torch.autocast("cuda", torch.bfloat16, enabled=narrow):
        y = edges(tokens, pixels)
    direction = torch.randn(y.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    (y * direction).sum().backward()
    return [y.detach(), tokens.grad, *(weight.grad.clone() for weight in edges.parameters())]


def exactly(edges, tokens, weights, best_fit):
    """The rounds by themselves in float64, as :func:`alone` gives them."""
    return alone(copy.deepcopy(edges).double(), *(tensor.double() for tensor in (tokens, weights, best_fit)))


def alone(edges, tokens, weights, best_fit, *, fast=False, narrow=False):
    """The rounds of a layer for fixed weights: the result and all gradients."""
    edges.zero_grad()
    tokens, weights, best_fit = (tensor.clone().requires_grad_() for tensor in (tokens, weights, best_fit))
    if fast:
        from factorank.kernels.gpu import edges as edge_rounds

        y = edge_rounds.apply(tokens, weights, best_fit, list(edges.rounds.parameters()))
    else:
        y = tokens
        with torch.autocast("cuda", torch.bfloat16, enabled=narrow):
            for listen in edges.rounds:
                y = listen(y, weights, best_fit)
    direction = torch.randn(y.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    (y * direction).sum().backward()
    gradients = [weight.grad.clone() for weight in edges.rounds.parameters()]
    return [y.detach(), tokens.grad, weights.grad, best_fit.grad, *gradients]


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("n", [1, 4, 9, 16, 25, 36, 64])
def test_as_close_to_float64_as_the_plain_rounds(n, width):
    edges = layer(width)
    for rows in (1, 7, 131):
        tokens, _ = inputs((rows,), n, width)
        generator = torch.Generator("cuda").manual_seed(rows)
        weights = (3 * torch.randn((rows, 4, 2, n, n), device="cuda", generator=generator)).softmax(-1)
        best_fit = torch.randn((rows, n, 8), device="cuda", generator=generator)
        exact = exactly(edges, tokens, weights, best_fit)
        ours = alone(edges, tokens, weights, best_fit, fast=True)
        plain = alone(edges, tokens, weights, best_fit, narrow=True)
        for mine, theirs, right in zip(ours, plain, exact, strict=True):
            assert mine.shape == right.shape
            assert (mine - right).norm() <= 2 * (theirs - right).norm() + 1e-5 * right.norm()


@pytest.mark.parametrize(("batch", "n", "width"), [((5,), 9, 64), ((2, 3), 16, 128), ((), 36, 128)])
def test_the_whole_layer_is_the_same_with_and_without(batch, n, width):
    edges, (tokens, pixels) = layer(width), inputs(batch, n, width)
    runs = [
        outcome(edges, tokens, pixels, fast=fast, narrow=narrow)
        for fast, narrow in ((True, True), (False, True), (False, False))
    ]
    assert not torch.equal(runs[0][0], runs[1][0])  # other kernels were used
    for ours, theirs, exact in zip(*runs, strict=True):
        assert (ours - exact).norm() <= 2 * (theirs - exact).norm() + 2e-3 * exact.norm()


def test_what_is_kept_for_the_gradients_changes_nothing():
    edges, (tokens, pixels) = layer(128), inputs((9,), 36, 128)
    with torch.autocast("cuda", torch.bfloat16):
        with torch.no_grad():
            plain = edges(tokens, pixels)
        assert torch.equal(edges(tokens, pixels), plain)
        assert edges(tokens[:0], pixels[:0]).shape == (0, 36, 128)


def test_other_shapes_and_types_go_through_the_plain_rounds():
    for n, width, dtype in ((65, 64, torch.bfloat16), (9, 32, torch.bfloat16), (9, 64, torch.float16)):
        edges, (tokens, pixels) = layer(width, rounds=1), inputs((2,), n, width)
        with torch.autocast("cuda", dtype), torch.no_grad():
            assert torch.equal(edges(tokens, pixels), _plain(edges, tokens, pixels))


def _plain(edges, tokens, pixels):
    with dispatch.plain():
        return edges(tokens, pixels)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when its compiler is imported
@pytest.mark.parametrize("n", [16, 36])
def test_compiles_whole(n):
    edges, (tokens, pixels) = layer(64), inputs((20,), n, 64)

    def mean_square(tokens, pixels):
        with torch.autocast("cuda", torch.bfloat16):
            return edges(tokens * 2, pixels).square().mean()

    gradients = []
    for run in (torch.compile(mean_square, fullgraph=True), mean_square):
        edges.zero_grad()
        leaf = tokens.clone().requires_grad_()
        run(leaf, pixels).backward()
        gradients.append([leaf.grad, *(weight.grad.clone() for weight in edges.parameters())])
    for ours, plain in zip(*gradients, strict=True):
        assert (ours - plain).norm() <= 1e-2 * plain.norm() + 1e-6


def test_captured_and_replayed_on_other_puzzles():
    edges, (tokens, pixels) = layer(128), inputs((33,), 36, 128)
    tokens.requires_grad_()

    def step():
        edges.zero_grad(set_to_none=False)
        tokens.grad = None
        with torch.autocast("cuda", torch.bfloat16):
            loss = edges(tokens, pixels).square().mean()
        loss.backward()
        return [loss.detach(), tokens.grad, *(weight.grad for weight in edges.parameters())]

    graph, outcomes = captured(step)
    pixels.copy_(pixels.flip(0) * 0.7)
    graph.replay()
    replayed = [tensor.clone() for tensor in outcomes]
    for ours, eager in zip(replayed, step(), strict=True):
        assert (ours - eager).norm() <= 1e-3 * eager.norm() + 1e-6


def test_a_second_derivative_is_refused():
    edges, (tokens, pixels) = layer(64, rounds=1), inputs((2,), 9, 64)
    tokens.requires_grad_()
    with torch.autocast("cuda", torch.bfloat16):
        y = edges(tokens, pixels)
    (slope,) = torch.autograd.grad(y.square().sum(), tokens, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        slope.sum().backward()
