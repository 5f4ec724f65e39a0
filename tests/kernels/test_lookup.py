"""Rows of a table and the gradients of the table: as torch's embedding has them, once and twice."""

import pytest
import torch
import torch.nn.functional as F

from factorank.kernels import dispatch
from factorank.kernels.lookup import Lookup


@pytest.mark.parametrize("shape", [(64, 5), (6, 5), (7, 3), (2, 3, 4), (4,), (0, 3)])
def test_as_torchs_embedding(shape, generator):
    index = torch.randint(9, shape, generator=generator)
    direction = torch.randn((*shape, 6), generator=generator)
    gradients = []
    for pick in (lambda table: Lookup.apply(table, index), lambda table: F.embedding(index, table)):
        table = torch.randn((9, 6), generator=torch.Generator().manual_seed(0), requires_grad=True)
        picked = pick(table)
        (picked.square() * direction).sum().backward()
        gradients.append((picked.detach(), table.grad))
    (ours, our_gradient), (theirs, their_gradient) = gradients
    assert torch.equal(ours, theirs)
    torch.testing.assert_close(our_gradient, their_gradient)


def test_second_derivatives(generator):
    table = torch.randn((4, 3), dtype=torch.float64, generator=generator, requires_grad=True)
    index = torch.randint(4, (6, 2), generator=generator)
    assert torch.autograd.gradgradcheck(lambda table: Lookup.apply(table, index).pow(3), (table,))


@pytest.mark.gpu
def test_on_a_gpu_it_runs_where_gradients_are_recorded():
    index = torch.randint(11, (1024, 10), device="cuda")
    table = torch.randn((11, 128), device="cuda", requires_grad=True)
    direction = torch.randn((1024, 10, 128), device="cuda")
    gradients = []
    for pick in (dispatch.lookup, lambda table, index: F.embedding(index, table)):
        table.grad = None
        with torch.autocast("cuda", torch.bfloat16):
            picked = pick(table, index)
        assert picked.dtype == torch.float32
        (picked * direction).sum().backward()
        gradients.append(table.grad)
    assert (gradients[0] - gradients[1]).norm() < 1e-3 * gradients[1].norm()
    assert "Lookup" in type(dispatch.lookup(table, index).grad_fn).__name__
