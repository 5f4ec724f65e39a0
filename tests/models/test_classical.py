"""The paper's remarks: Mallows and RIM as models, equal at every NFE."""

import pytest
import torch

import factorank as fr
from factorank.errors import ModelError
from factorank.models.unmasking import UNMASK
from tests.models.naive import all_orders

NETWORK = {"width": 8, "depth": 1, "heads": 1}


def laws_of(model):
    if model.objective == "autoregressive":
        return [model.distribution()]
    return [model.distribution(nfe=nfe, unmask=unmask) for nfe in range(1, model.n + 1) for unmask in UNMASK]


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
@pytest.mark.parametrize("weights", [None, [0.5, 1.0, 2.0, 0.0, 1.5]])
@pytest.mark.parametrize("phi", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("central", [[0, 1, 2, 3, 4], [3, 0, 4, 1, 2]])
def test_mallows(objective, weights, phi, central):
    weights = None if weights is None else torch.tensor(weights)
    law = fr.Mallows(torch.tensor(central), phi, weights=weights)
    model = fr.PermutationModel.from_mallows(law, objective=objective, **NETWORK)
    orders = all_orders(5)
    truth = law.log_prob(orders)
    for each in laws_of(model):  # for a product any partition gives the same, so the bound is the value
        torch.testing.assert_close(each.log_prob_bound(orders, samples=1), truth, atol=1e-5, rtol=1e-5)
    assert law.log_prob(model.distribution().sample((20,))).isfinite().all()


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_rim(objective):
    torch.manual_seed(0)
    logits = torch.randn(5, 5)
    for reference in ([0, 1, 2, 3, 4], [4, 2, 0, 1, 3]):
        law = fr.RIM(logits=logits, reference=torch.tensor(reference))
        model = fr.PermutationModel.from_rim(law, objective=objective, **NETWORK)
        orders = all_orders(5)
        for each in laws_of(model):
            torch.testing.assert_close(each.log_prob_bound(orders, samples=1), law.log_prob(orders))
        first = torch.tensor(reference[:3])[[2, 0, 1]]  # the first items of the reference can be observed
        observed = model.distribution(observed=first).log_prob_bound(orders, samples=1)
        assert observed.exp().sum().item() == pytest.approx(1, abs=1e-5)
        torch.testing.assert_close(observed, law.condition(first).log_prob(orders))


def test_refusals():
    law = fr.Mallows(torch.arange(3), torch.tensor([0.3, 0.5]))
    with pytest.raises(ModelError, match="not from a batch"):
        fr.PermutationModel.from_mallows(law, **NETWORK)
    with pytest.raises(ModelError, match=r"shape \(3,\)"):
        fr.PermutationModel(3, "lehmer", reference=torch.arange(4), **NETWORK)
