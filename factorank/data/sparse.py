"""Sparse matrices of ratings."""

import warnings

import torch
from torch import Tensor


def sparse_matrix(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A coalesced matrix with these values at these places; places outside of the shape are refused.

    >>> sparse_matrix(torch.tensor([0, 1]), torch.tensor([2, 0]), torch.tensor([5.0, 3.0]), (2, 3)).to_dense()
    tensor([[0., 0., 5.],
            [3., 0., 0.]])
    """
    with warnings.catch_warnings():
        # Torch 2.11 warns that checks are off by default, even where they are turned on.
        warnings.filterwarnings("ignore", "Sparse invariant checks", UserWarning)
        places = torch.stack([rows, columns])
        return torch.sparse_coo_tensor(places, values, shape, check_invariants=True).coalesce()
