"""Laws given some code values (``fixed``) or the order of some items (``observed``)."""

import itertools
import re

import pytest
import torch

import factorank as fr
from factorank.errors import CodeError, ModelError
from factorank.models.network import evaluating
from factorank.models.unmasking import UNMASK, last
from factorank.rerank.encoder import FeatureContext
from factorank.sampling.choosers import Draw
from tests.models.naive import (
    all_orders,
    assert_drawn_from,
    autoregressive_log_prob,
    cut,
    free_positions,
    partition_log_prob,
    small_model,
)

CODES = ["lehmer", "left-lehmer", "fisher-yates", "insertion"]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("places", [(0,), (2,), (0, 1), (1, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("nfe", [1, 2])
def test_masked_fixed(code, places, nfe):
    model, orders = small_model(4, code), all_orders(4)
    codes = model.code.encode(orders)
    fixed = torch.full((4,), -1)
    fixed[list(places)] = codes[17][list(places)]
    agrees = ((fixed < 0) | (codes == fixed)).all(-1)
    law = model.distribution(fixed=fixed, nfe=nfe, unmask="left-to-right")
    values = law.log_prob(orders)
    assert torch.equal(values.isinf(), ~agrees)
    blocks = cut(free_positions(model, places), nfe)
    truth = partition_log_prob(model, orders[agrees], blocks, shown=places)
    torch.testing.assert_close(values[agrees], truth)
    assert values.exp().sum().item() == pytest.approx(1, abs=1e-5)
    samples = law.sample((1000,), generator=torch.Generator().manual_seed(0))
    assert_drawn_from(samples, orders, values.detach().exp())
    for unmask in ("random", "confident"):
        samples = model.distribution(fixed=fixed, nfe=nfe, unmask=unmask).sample((50,))
        assert (model.code.encode(samples) == fixed)[:, list(places)].all()
    assert (model.code.encode(law.mode) == fixed)[list(places)].all()


@pytest.mark.parametrize("unmask", UNMASK)
def test_rows_with_different_numbers_of_free_positions(unmask):
    model, orders = small_model(4, "lehmer"), all_orders(4)
    fixed = torch.tensor([[-1, -1, -1, -1], [2, -1, -1, -1], [3, 1, 0, 0], [-1, 1, 1, -1]])
    for nfe in (1, 2, 3, 4):
        law = model.distribution(fixed=fixed, nfe=nfe, unmask=unmask)
        samples = law.sample((1500,), generator=torch.Generator().manual_seed(nfe))
        assert law.nfe_of(samples)[0].tolist() == [min(nfe, free) for free in (3, 2, 0, 1)]
        again, used = law.sample_with_nfe((1500,), generator=torch.Generator().manual_seed(nfe))
        assert torch.equal(again, samples)
        assert torch.equal(used, law.nfe_of(samples))
        for row in range(4):
            alone = model.distribution(fixed=fixed[row], nfe=nfe, unmask=unmask)
            generator = torch.Generator().manual_seed(0)
            values = alone.log_prob_estimate(orders, samples=200, generator=generator)
            if law.exact:
                torch.testing.assert_close(law.log_prob(orders[:, None])[:, row], values)
                assert_drawn_from(samples[:, row], orders, values.detach().exp())
            drawn = model.code.encode(samples[:, row])
            assert ((fixed[row] < 0) | (drawn == fixed[row])).all()


@pytest.mark.parametrize("code", [*CODES, "inline"])
def test_autoregressive_fixed_prefix(code):
    model, orders = small_model(4, code, "autoregressive"), all_orders(4)
    codes, whole = model.code.encode(orders), autoregressive_log_prob(model, orders)
    for count in range(5):
        fixed = torch.where(torch.arange(4) < count, codes[9], -1)
        law = model.distribution(fixed=fixed)
        values = law.log_prob(orders).detach()
        agrees = (codes[:, :count] == codes[9, :count]).all(-1)
        assert torch.equal(values.isinf(), ~agrees)
        if model.code.factorized:
            torch.testing.assert_close(values[agrees], whole[agrees] - whole[agrees].logsumexp(0))
        samples = law.sample((500,), generator=torch.Generator().manual_seed(0))
        assert (
            (samples if code == "inline" else model.code.encode(samples))[:, :count].eq(fixed[:count]).all()
        )
        assert agrees[(orders == law.mode).all(-1)].all()


def test_autoregressive_samples_share_the_known_prefix(monkeypatch):
    model = small_model(5, "insertion", "autoregressive")
    fixed = torch.tensor([[0, 1, 2, -1, -1], [0, 0, -1, -1, -1]])
    rows, step = [], model.network.step
    monkeypatch.setattr(
        model.network, "step", lambda value, *rest: (rows.append(value.shape), step(value, *rest))[1]
    )
    model.distribution(fixed=fixed).sample((7,))
    assert rows == [(1, 2)] * 3 + [(7, 2)] * 2  # two values are known in both rows; the third is drawn


@pytest.mark.parametrize("aligned", [True, False])
def test_rows_keep_their_own_prefix(aligned):
    """What a walk says of the codes that it drew is what the law says of them."""
    torch.manual_seed(0)
    context = FeatureContext(9, 16, layout="aligned" if aligned else "prefix", places=0 if aligned else 5)
    model = fr.PermutationModel(5, "insertion", "autoregressive", 16, 2, 2, context=context)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    items = torch.stack([torch.randperm(9)[:5] for _ in range(4)])
    items[1, 4:] = -1 if aligned else items[1, 4:]
    fixed = torch.tensor([[0, 1, 2], [0, 0, 1], [0, 1, 0], [0, 0, 2]])
    fixed = torch.nn.functional.pad(fixed, (0, 2), value=-1)
    law = model.distribution(items, fixed=fixed)
    with torch.no_grad(), evaluating(model):
        step = last(law._walk(law.conditions, 6, Draw(None), None, score=True))
        orders = law.conditions.decode(model, step.code)
        torch.testing.assert_close(step.log_prob, law.log_prob(orders), atol=1e-4, rtol=1e-4)


def test_fixed_refusals():
    causal, masked = small_model(4, "lehmer", "autoregressive"), small_model(4, "lehmer")
    with pytest.raises(ModelError, match="row 1 of fixed has a free position before a fixed one"):
        causal.distribution(fixed=torch.tensor([[1, -1, -1, -1], [-1, 2, -1, -1]]))
    with pytest.raises(
        CodeError, match=r"right-Lehmer code of length 4 allows 0..2 at position 1, .* holds 3"
    ):
        masked.distribution(fixed=torch.tensor([1, 3, -1, -1]))
    with pytest.raises(ModelError, match="each of the 4 positions"):
        masked.distribution(fixed=torch.tensor([1, 2]))
    with pytest.raises(ModelError, match=r"not as torch\.float32"):
        masked.distribution(fixed=torch.zeros(4))
    with pytest.raises(ModelError, match="not both"):
        masked.distribution(fixed=torch.zeros(4).long(), observed=torch.arange(2))


def relative_order(orders, items):
    """The items of a set in the order in which each row has them."""
    return torch.stack([row[torch.isin(row, torch.tensor(items))] for row in orders])


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_observed_items_come_first_in_the_reference(objective):
    """Against a model that is handed the reordered items and the first code values by hand."""
    model, orders = small_model(4, "insertion", objective, context=fr.ItemContext(9, 16)), all_orders(4)
    items = torch.tensor([5, 2, 8, 0])
    ways = (
        [{}]
        if objective == "autoregressive"
        else [{"nfe": 2, "unmask": u} for u in ("left-to-right", "confident")]
    )
    for options in ways:
        for observed in [[3], [2, 0], [0, 2], [3, 0, 1], [1, 3, 2, 0]]:
            law = model.distribution(items, observed=torch.tensor(observed), **options)
            values = law.log_prob(orders).detach()
            reference = torch.tensor(sorted(observed) + [i for i in range(4) if i not in observed])
            agrees = (relative_order(orders, observed) == torch.tensor(observed)).all(-1)
            assert torch.equal(values.isinf(), ~agrees)
            assert values.exp().sum().item() == pytest.approx(1, abs=1e-5)

            renamed = fr.inverse(reference)[orders]  # items by their place in the reference
            codes = model.code.encode(renamed)
            fixed = torch.where(torch.arange(4) < len(observed), codes[agrees][0], -1)
            by_hand = model.distribution(items[reference], fixed=fixed, **options).log_prob(renamed)
            torch.testing.assert_close(values, by_hand)

            samples = law.sample((300,), generator=torch.Generator().manual_seed(0))
            assert (relative_order(samples, observed) == torch.tensor(observed)).all()
            assert_drawn_from(samples, orders, values.exp())
            assert (relative_order(law.mode[None], observed) == torch.tensor(observed)).all()


def test_observed_batches_of_several_lengths():
    """(64,) samples of a batch in which rows observe 0 to 3 items and lists have 3 to 5."""
    model = small_model(5, "insertion", context=fr.ItemContext(9, 16))
    items = torch.tensor([[4, 1, 7, -1, -1], [2, 8, 3, 5, 0], [6, 5, 1, 0, -1]])
    observed = torch.tensor([[2, 0, -1], [4, 1, 3], [-1, -1, -1]])
    for unmask in UNMASK:
        law = model.distribution(items, observed=observed, nfe=4, unmask=unmask)
        samples = law.sample((64,))
        assert samples.shape == (64, 3, 5)
        assert torch.equal((samples < 0).any(0), items < 0)
        assert (relative_order(samples[:, 0], [2, 0]) == torch.tensor([2, 0])).all()
        assert (relative_order(samples[:, 1], [4, 1, 3]) == torch.tensor([4, 1, 3])).all()
        assert fr.is_permutation(samples[:, 0, :3]).all()
        assert law.log_prob_bound(samples, samples=2).isfinite().all()
    whole = torch.tensor([[*p, -1, -1] for p in itertools.permutations(range(3))])
    law = model.distribution(items[0], observed=observed[0], nfe=4, unmask="confident")
    assert law.log_prob(whole).exp().sum().item() == pytest.approx(1, abs=1e-5)
    shared = model.distribution(items[1], observed=observed, nfe=1)
    assert shared.batch_shape == (3,)


def test_observing_the_first_items_of_a_fixed_reference():
    for objective in ("masked", "autoregressive"):
        model, orders = small_model(4, "insertion", objective), all_orders(4)
        options = {} if objective == "autoregressive" else {"unmask": "left-to-right"}
        law = model.distribution(observed=torch.tensor([1, 0]), **options)
        values = law.log_prob(orders)
        whole = model.distribution(**options).log_prob(orders)
        agrees = (relative_order(orders, [0, 1]) == torch.tensor([1, 0])).all(-1)
        torch.testing.assert_close(values[agrees], whole[agrees] - whole[agrees].logsumexp(0))
        with pytest.raises(ModelError, match="only its first items can be observed"):
            model.distribution(observed=torch.tensor([2, 0]))


def test_observed_refusals():
    model = small_model(4, "insertion", context=fr.ItemContext(9, 16))
    items = torch.tensor([5, 2, 8, 0])
    for observed, match in [
        ([0, 4], "items 0..3"),
        ([0, -2], "items 0..3"),
        ([1, 1], "row 0 holds 1 2 times"),
        ([-1, 1], "goes on after it"),
        ([0, 1, 2, 3, -1], "at most the 4 items"),
    ]:
        with pytest.raises(ModelError, match=match):
            model.distribution(items, observed=torch.tensor(observed))
    with pytest.raises(ModelError, match="not in the list"):
        model.distribution(torch.tensor([5, 2, -1, -1]), observed=torch.tensor([2]))
    for code in ("lehmer", "left-lehmer", "fisher-yates", "inline"):
        with pytest.raises(ModelError, match=f"needs an insertion model.*{code}"):
            small_model(4, code).distribution(observed=torch.tensor([0]))


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_an_observation_that_top_p_leaves_out_is_refused(objective):
    """The first items of the reference are conditioned on by their values alone, which may be impossible."""
    model = small_model(4, "insertion", objective, context=fr.ItemContext(9, 16), seed=5)
    items = torch.tensor([[5, 2, 8, 0], [1, 2, 3, 4], [4, 6, 0, 7]])
    law = model.distribution(items, unmask="left-to-right", top_p=0.3)
    orders = all_orders(4)
    probs = law.log_prob(orders[:, None]).exp().detach()
    refused = 0
    for first in ([0, 1], [1, 0], [2, 0, 1], [1, 2, 0]):
        agrees = (relative_order(orders, sorted(first)) == torch.tensor(first)).all(-1)
        possible = probs[agrees].sum(0) > 0
        if bool(possible.all()):
            assert law.condition(first).log_prob(orders[:, None]).exp().sum(0).tolist() == pytest.approx(
                [1] * 3
            )
            continue
        refused += 1
        row = int(possible.int().argmin())
        with pytest.raises(
            fr.FactorankError, match=rf"{re.escape(str(first))} has probability zero .* row \[{row}\]"
        ):
            law.condition(first)
        for each, fine in zip(law, possible.tolist(), strict=True):
            if fine:
                values = each.condition(first).log_prob(orders[agrees]).exp()
                assert values.sum().item() == pytest.approx(1)
    assert refused
