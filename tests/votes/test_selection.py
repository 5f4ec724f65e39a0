"""Selection laws: exact against a list of all orders, and every answer given the order of any items."""

import itertools
import math

import pytest
import torch
from scipy.stats import chisquare

import factorank as fr
from factorank.votes.selection import SelectionModel
from factorank.votes.selection_law import SelectionLaw

N = 5
EVERY = torch.tensor(list(itertools.permutations(range(N))))


@pytest.fixture(params=[False, True], ids=["from the first place", "from the last place"])
def model(request):
    torch.manual_seed(0)
    model = SelectionModel(N, width=16, from_end=request.param).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.7)
    return model


@torch.no_grad()
def probabilities(model):
    """By hand: the product of the choices along each order, softmax over the items that are left."""
    result = []
    for order in EVERY.tolist():
        picks, total = order[::-1] if model.from_end else order, 1.0
        for place, item in enumerate(picks):
            picked = torch.zeros(N, dtype=torch.bool)
            picked[picks[:place]] = True
            last = torch.tensor(picks[place - 1] if place else N)
            total *= float(model.choices(picked, last).double().exp()[item])
        result.append(total)
    return torch.tensor(result, dtype=torch.float64)


def test_the_law_is_that_of_the_choices_and_sums_to_one(model):
    expected = probabilities(model)
    assert expected.sum() == pytest.approx(1, abs=1e-5)
    torch.testing.assert_close(model.distribution().log_prob(EVERY).exp(), expected, rtol=1e-5, atol=1e-9)
    torch.testing.assert_close((-model.loss(EVERY)).double().exp(), expected, rtol=1e-4, atol=1e-9)


def test_marginals_entropy_and_mode_are_those_of_the_list(model):
    law, p = model.distribution(), probabilities(model)
    places = torch.zeros(N, N, dtype=torch.float64)
    for order, share in zip(EVERY.tolist(), p.tolist(), strict=True):
        for place, item in enumerate(order):
            places[item, place] += share
    torch.testing.assert_close(law.marginals(), places, rtol=1e-4, atol=1e-6)
    assert float(law.entropy()) == pytest.approx(float(-(p * p.log()).sum()), rel=1e-4)
    assert law.mode.tolist() == EVERY[p.argmax()].tolist()


@pytest.mark.parametrize("observed", [[3, 1], [0, 4, 2], [4, 2, 0, 3], [1, 0, 2, 4, 3]])
def test_the_law_given_the_order_of_any_items(model, observed):
    p = probabilities(model)
    agrees = [[item for item in order if item in observed] == observed for order in EVERY.tolist()]
    kept = p * torch.tensor(agrees)
    law = model.distribution().condition(observed)
    torch.testing.assert_close(law.log_prob(EVERY).exp(), kept / kept.sum(), rtol=1e-4, atol=1e-9)
    drawn = law.sample((200,), generator=torch.Generator().manual_seed(0))
    assert all([item for item in order if item in observed] == observed for order in drawn.tolist())
    if len(observed) < N:
        assert float(law.log_evidence) == pytest.approx(float(kept.sum().log()), rel=1e-4, abs=1e-6)
        again = law.condition([observed[0], observed[-1]])  # says nothing new
        torch.testing.assert_close(
            again.log_prob(EVERY).exp(), law.log_prob(EVERY).exp(), rtol=1e-6, atol=1e-9
        )


def test_samples_follow_the_law(model):
    drawn = model.distribution().sample((20_000,), generator=torch.Generator().manual_seed(1))
    counts = torch.bincount(fr.index_of(drawn), minlength=len(EVERY)).double()
    expected = probabilities(model)
    common = expected * len(drawn) > 5
    rest = [[float(values[~common].sum())] for values in (counts, expected * len(drawn))]
    observed, wanted = ([*values[common].tolist(), *more] for values, more in zip(
        (counts, expected * len(drawn)), rest, strict=True))  # fmt: skip
    scale = sum(observed) / sum(wanted)
    assert chisquare(observed, [value * scale for value in wanted]).pvalue > 1e-3


def test_a_saved_model_is_the_same_and_a_damaged_one_is_refused(model, tmp_path):
    model.save_pretrained(tmp_path)
    again = SelectionModel.from_pretrained(tmp_path)
    torch.testing.assert_close(again.distribution().log_prob(EVERY), model.distribution().log_prob(EVERY))
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(fr.ModelError, match="7 bytes and should have"):
        SelectionModel.from_pretrained(tmp_path)


def test_many_items_need_no_table():
    torch.manual_seed(0)
    law = SelectionModel(20, width=8).distribution()
    drawn = law.sample((50,), generator=torch.Generator().manual_seed(0))
    assert fr.is_permutation(drawn).all()
    assert float(law.log_prob(drawn).mean()) == pytest.approx(-math.lgamma(21), rel=1e-4)
    given = law.condition([7, 3])
    assert not given.exact
    assert float(given.log_evidence.exp()) == pytest.approx(0.5, abs=0.05)
    assert isinstance(law, SelectionLaw)
    assert sorted(law.mode.tolist()) == list(range(20))


def test_a_mixture_of_both_directions_is_conditioned_exactly(model):
    other = SelectionModel(N, width=8, from_end=not model.from_end)
    mixture = fr.Mixture([0.3, 0.7], [model.distribution(), other.distribution()])
    p = mixture.log_prob(EVERY).exp()
    law = mixture.condition([4, 0, 2])
    agrees = torch.tensor([[i for i in order if i in (4, 0, 2)] == [4, 0, 2] for order in EVERY.tolist()])
    kept = p * agrees
    assert law.exact
    torch.testing.assert_close(law.log_prob(EVERY).exp(), kept / kept.sum(), rtol=1e-4, atol=1e-9)
