"""Remasking: doubtful values are drawn anew. The law by its definition, and no log_prob."""

import itertools
import math

import pytest
import torch

import factorank as fr
from factorank.errors import ModelError
from tests.models.naive import all_orders, assert_drawn_from, small_model


@torch.no_grad()
def conditional(model, code, shown, position):
    visible = torch.full((1, model.n), model.n)
    visible[0, shown] = torch.tensor([code[i] for i in shown], dtype=torch.int64)
    return model.network.head(model.network.hidden(visible, None, None))[0, position].softmax(-1).tolist()


def law_by_definition(model, rounds):
    """Left to right, one position at a time; n = 3: the free positions of a Lehmer code are 0 and 1."""
    states = {}
    for values in itertools.product(range(3), range(2)):
        chances = [
            conditional(model, values, [], 0)[values[0]],
            conditional(model, values, [0], 1)[values[1]],
        ]
        states[values, tuple(chances)] = math.prod(chances)
    for _ in range(rounds):
        after = {}
        for (values, chances), weight in states.items():
            doubted = 0 if chances[0] <= chances[1] else 1
            # The last value is certain, and known by then.
            probs = conditional(model, (*values, 0), [1 - doubted, 2], doubted)
            for value in range(3 - doubted):
                changed, trusted = list(values), list(chances)
                changed[doubted], trusted[doubted] = value, probs[value]
                key = tuple(changed), tuple(trusted)
                after[key] = after.get(key, 0.0) + weight * probs[value]
        states = after
    totals = torch.zeros(6)
    for (values, _), weight in states.items():
        order = model.code.decode(torch.tensor([*values, 0]))
        totals[int(fr.index_of(order))] += weight
    return totals


@pytest.mark.parametrize("rounds", [1, 2])
def test_the_law_is_that_of_its_definition(rounds):
    model = small_model(3, "lehmer")
    law = model.distribution(nfe=2, unmask="left-to-right", remask=rounds)
    truth = law_by_definition(model, rounds)
    assert truth.sum().item() == pytest.approx(1, abs=1e-5)
    drawn, nfe = law.sample_with_nfe((4000,), generator=torch.Generator().manual_seed(0))
    assert_drawn_from(drawn, all_orders(3), truth)
    assert nfe.unique().tolist() == [2 + rounds]
    assert torch.equal(law.nfe_of(drawn), nfe)
    plain = model.distribution(nfe=2, unmask="left-to-right").log_prob(all_orders(3)).exp()
    assert (truth - plain).abs().max() > 0.01


def test_every_way_of_unmasking_and_fixed_values():
    model = small_model(5, "insertion")
    fixed = torch.tensor([[0, 1, -1, -1, -1], [-1, -1, -1, -1, -1], [0, 1, 2, 0, 3]])
    for unmask in ("random", "left-to-right", "right-to-left", "confident"):
        law = model.distribution(fixed=fixed, nfe=2, unmask=unmask, remask=2)
        codes = model.code.encode(law.sample((50,)))
        assert ((fixed < 0) | (codes == fixed)).all()
        assert fr.is_permutation(law.mode).all()
        assert law.marginals().shape == (3, 5, 5)


def test_it_has_no_log_prob():
    law = small_model(4, "lehmer").distribution(nfe=2, unmask="left-to-right", remask=1)
    assert not law.exact
    assert "remask=1" in repr(law)
    order = torch.arange(4)
    for method in (law.log_prob, law.log_prob_bound, law.log_prob_estimate):
        with pytest.raises(ModelError, match="no log_prob"):
            method(order)
    with pytest.raises(ModelError, match="no log_prob"):
        law.entropy()
    causal, suffix = small_model(4, "lehmer", "autoregressive"), small_model(4, "lehmer", masks="suffix")
    for model, options in (
        (causal, {}),
        (suffix, {}),
        (law.model, {"nfe": 1}),
        (law.model, {"entropy_bound": 0.5}),
    ):
        with pytest.raises(ModelError, match="remask is for masked models"):
            model.distribution(remask=1, **options)
    for rounds in (-1, True, 1.5):
        with pytest.raises(ModelError, match="a whole number of rounds"):
            law.model.distribution(nfe=2, remask=rounds)
    with pytest.raises(ModelError, match="reveal one position after the other"):
        law.model.distribution(unmask="left-to-right", remask=1, draft="self")
