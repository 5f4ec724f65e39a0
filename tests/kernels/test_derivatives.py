"""What fused operations share: a second derivative is refused, also where torch would let it pass as zero."""

import pytest
import torch
from torch.autograd.function import once_differentiable

from factorank.errors import FactorankError
from factorank.kernels.derivatives import first_derivative_only


def cube(guard):
    class Cube(torch.autograd.Function):
        """x³ with a backward pass that autograd does not see, as that of a kernel."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        @guard
        def backward(ctx, grad_y):
            (x,) = ctx.saved_tensors
            return (3 * x**2 * grad_y,)

    return Cube.apply


def test_constant_gradients_do_not_slip_through():
    x = torch.tensor([2.0], requires_grad=True)
    (slope,) = torch.autograd.grad(cube(once_differentiable)(x).sum(), x, create_graph=True)
    assert not slope.requires_grad  # why torch's own guard is not enough: the penalty would be inert
    with pytest.raises(FactorankError, match="first derivatives only"):
        torch.autograd.grad(cube(first_derivative_only)(x).sum(), x, create_graph=True)


def test_first_derivatives_pass():
    x = torch.tensor([2.0], requires_grad=True)
    cube(first_derivative_only)(x).sum().backward()
    assert x.grad.item() == 12


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_code_keeps_its_gradient():
    x = torch.tensor([2.0], requires_grad=True)
    function = cube(first_derivative_only)
    torch.compile(lambda x: function(x).sum(), backend="aot_eager", fullgraph=True)(x).backward()
    assert x.grad.item() == 12


@pytest.mark.gpu
@pytest.mark.parametrize("path", ["attention", "blocks", "edges"])
def test_every_fused_operation_refuses(path):
    from factorank.jigsaw.edges import EdgeAttention
    from factorank.kernels import dispatch
    from factorank.models.transformer import Transformer

    torch.manual_seed(0)
    if path == "attention":
        x = torch.randn((4, 10, 3, 2, 16), device="cuda", requires_grad=True)
        y = dispatch.attention(x)
    elif path == "blocks":
        x = torch.randn((4, 10, 64), device="cuda", requires_grad=True)
        with torch.autocast("cuda", torch.bfloat16):
            y = Transformer(64, 2, 4, 0.0).cuda()(x)
    else:
        x = torch.randn((2, 9, 64), device="cuda", requires_grad=True)
        pixels = torch.randn((2, 9, 3, 3, 3), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            y = EdgeAttention(3, 3, 64, rounds=2).cuda()(x, pixels)
    with pytest.raises(FactorankError, match="first derivatives only"):
        torch.autograd.grad(y.float().sum(), x, create_graph=True)
