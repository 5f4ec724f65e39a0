"""Rankings on a GPU: the law comes back where they were, and it is the same law."""

import pytest
import torch

import factorank as fr


@pytest.mark.gpu
def test_fits_return_to_the_device():
    votes = fr.Mallows(torch.tensor([3, 1, 4, 0, 2]), 0.5).sample(
        (400,), generator=torch.Generator().manual_seed(0)
    )
    there = votes.cuda()
    for family in (fr.Mallows, fr.GeneralizedMallows, fr.RIM, fr.PlackettLuce):
        law, plain = family.fit(there), family.fit(votes)
        assert law.device.type == "cuda"
        torch.testing.assert_close(law.log_prob(there).cpu(), plain.log_prob(votes))
    for family in ("mallows", "generalized-mallows", "rim", "plackett-luce"):
        mixed = fr.Mixture.fit(there, components=2, family=family, generator=torch.Generator().manual_seed(1))
        assert mixed.log_prob(there).is_cuda
        assert mixed.sample((3,)).is_cuda
        assert mixed.condition([2, 0]).sample((3,)).is_cuda
    own = torch.Generator("cuda").manual_seed(0)
    partial = fr.PartialOrders.from_orders(torch.where(torch.arange(5, device="cuda") < 2, there, -1))
    law = fr.Mixture.fit(partial, components=2, generator=own)
    assert law.weights.is_cuda
    assert law.components[0].central.is_cuda
    drawn = fr.distributions.AMP(law.components[0], partial).sample((4,), generator=own)
    assert drawn.is_cuda
    assert partial.agrees(drawn).all()
    assert fr.consensus(there).order.is_cuda
