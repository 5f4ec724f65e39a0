"""The compiled loop of insertion places beside its plain twin."""

import pytest
import torch

from factorank.distributions.places import insertion_places, insertion_places_by_torch


@pytest.mark.parametrize("shape", [(1,), (2, 3), (7,), (0,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_paths_give_the_same_places(shape, dtype):
    for n in (1, 2, 9):
        probs = torch.rand((*shape, n, n), dtype=dtype, generator=torch.Generator().manual_seed(n)).tril()
        probs = probs / probs.sum(-1, keepdim=True)
        places = insertion_places(probs)
        torch.testing.assert_close(places, insertion_places_by_torch(probs))
        torch.testing.assert_close(places.sum(-1), torch.ones_like(places.sum(-1)))


def test_transposed_and_transformed_input_is_taken():
    probs = torch.rand((4, 5, 5), generator=torch.Generator().manual_seed(0)).tril()
    probs = probs / probs.sum(-1, keepdim=True)
    strided = probs.movedim(0, -1).contiguous().movedim(-1, 0)
    torch.testing.assert_close(insertion_places(strided), insertion_places(probs))
    torch.testing.assert_close(torch.func.vmap(insertion_places)(probs), insertion_places(probs))
