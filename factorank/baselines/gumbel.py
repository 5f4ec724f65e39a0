"""Gumbel noise: the best of some scores with it is a draw from their softmax."""

import torch
from torch import Tensor


def standard_gumbel(uniform: Tensor) -> Tensor:
    """Standard Gumbel numbers of uniform ones in [0, 1).

    >>> standard_gumbel(torch.tensor([0.1, 0.5, 0.9]))
    tensor([-0.8340,  0.3665,  2.2504])
    """
    return -(-uniform.clamp(min=torch.finfo(uniform.dtype).tiny).log()).log()
