"""Models of ranks: position i of the code belongs to item i, and the laws speak of orders all the same."""

import dataclasses

import pytest
import torch
from torch import nn

import factorank as fr
from factorank.errors import ModelError
from factorank.jigsaw.encoder import PieceEncoder
from factorank.models.context import mismatch
from tests.models.naive import all_orders, assert_drawn_from, small_model

CODES = ["lehmer", "left-lehmer", "fisher-yates", "insertion"]
LAWS = [("masked", {"nfe": 1}), ("masked", {"nfe": 2, "unmask": "confident"}), ("autoregressive", {})]


def pair(code, objective, **options):
    """A model of ranks and the same weights as a model of orders."""
    return tuple(small_model(4, code, objective, target=target, **options) for target in ("rank", "order"))


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(("objective", "how"), LAWS)
def test_the_law_of_an_order_is_that_of_its_rank(code, objective, how):
    ranks, orders = pair(code, objective, context=fr.ItemContext(9, 16))
    items = torch.tensor([[3, 1, 4, 0], [5, 2, 6, 8]])
    listed = all_orders(4)[:, None]
    law, twin = ranks.distribution(items, **how), orders.distribution(items, **how)
    log_probs = law.log_prob(listed)
    torch.testing.assert_close(log_probs, twin.log_prob(fr.inverse(listed)))
    torch.testing.assert_close(log_probs.exp().sum(0), torch.ones(2))
    torch.testing.assert_close(law.marginals(), twin.marginals().mT)
    assert torch.equal(law.mode, fr.inverse(twin.mode))
    drawn = law.sample((4000,), generator=torch.Generator().manual_seed(0))
    assert_drawn_from(drawn[:, 0], all_orders(4), log_probs[:, 0].exp().detach())
    shape = torch.Size([len(listed)])
    noise = ranks.noise(shape, device="cpu", generator=torch.Generator().manual_seed(0))
    order = listed[:, 0]
    torch.testing.assert_close(
        ranks.loss(order, items[:1], noise=noise), orders.loss(fr.inverse(order), items[:1], noise=noise)
    )


@pytest.mark.parametrize("code", CODES)
def test_marginals_by_enumeration_with_a_reference(code):
    reference = torch.tensor([2, 0, 3, 1])
    model = small_model(4, code, target="rank", reference=reference)
    law, listed = model.distribution(nfe=1), all_orders(4)
    probabilities = law.log_prob(listed).exp().detach()
    assert probabilities.sum().item() == pytest.approx(1, abs=1e-5)
    at = torch.nn.functional.one_hot(fr.inverse(listed), 4).float()
    torch.testing.assert_close(law.marginals(), (probabilities[:, None, None] * at).sum(0))
    assert_drawn_from(law.sample((4000,), generator=torch.Generator().manual_seed(0)), listed, probabilities)


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_observed_items_of_a_left_lehmer_model_of_ranks(objective):
    model = small_model(4, "left-lehmer", objective, target="rank", context=fr.ItemContext(9, 16))
    items, observed = torch.tensor([3, 1, 4, 0]), torch.tensor([3, 1])
    law = model.distribution(items, observed=observed, unmask="left-to-right")
    listed = all_orders(4)
    rank = fr.inverse(listed)
    agrees = rank[:, 3] < rank[:, 1]
    probabilities = law.log_prob(listed).exp().detach()
    assert (probabilities[~agrees] == 0).all()
    assert probabilities.sum().item() == pytest.approx(1, abs=1e-5)
    assert_drawn_from(law.sample((4000,), generator=torch.Generator().manual_seed(0)), listed, probabilities)
    # Of the laws with this reference, that of the observed items is the one renormalised.
    whole = model.distribution(items, reference=torch.tensor([1, 3, 0, 2]), unmask="left-to-right")
    share = torch.where(agrees, whole.log_prob(listed).exp(), 0)
    torch.testing.assert_close(probabilities, share / share.sum(), rtol=1e-3, atol=1e-5)
    conditioned = whole.condition(observed=[3, 1])
    torch.testing.assert_close(conditioned.log_prob(listed).exp(), probabilities, rtol=1e-3, atol=1e-5)


def test_observed_needs_a_code_whose_first_values_say_it():
    for code, target in (("insertion", "rank"), ("left-lehmer", "order"), ("lehmer", "rank")):
        model = small_model(4, code, target=target)
        with pytest.raises(ModelError, match=f"the code here is {code} of the {target}"):
            model.distribution(observed=torch.tensor([0, 1]))


def test_what_is_saved_is_the_target(tmp_path):
    model = small_model(4, "lehmer", target="rank", context=fr.ItemContext(9, 16))
    model.save_pretrained(tmp_path)
    loaded = fr.PermutationModel.from_pretrained(tmp_path)
    assert loaded.target == "rank"
    assert "target='rank'" in repr(loaded)
    items = torch.tensor([3, 1, 4, 0])
    expected = model.distribution(items, nfe=1).log_prob(all_orders(4))
    torch.testing.assert_close(loaded.distribution(items, nfe=1).log_prob(all_orders(4)), expected)


def test_refusals():
    with pytest.raises(ModelError, match="target is 'order' or 'rank', not 'ranks'"):
        small_model(4, "lehmer", target="ranks")
    with pytest.raises(ModelError, match="target='rank' needs a code of which every sequence"):
        small_model(4, "inline", target="rank")
    with pytest.raises(ModelError, match="encodes orders, not ranks"):
        fr.PermutationModel.from_mallows(fr.Mallows(torch.arange(4), 0.5), target="rank")


class Pictures(nn.Module):
    """A user's encoder with a token for each item, of a context with a structure of its own."""

    aligned = exchangeable = True

    def __init__(self, width=16):
        super().__init__()
        self.map = nn.Linear(3, width)

    def forward(self, context):
        picture, (scale, shift) = context["picture"], context["more"]
        return self.map(picture * scale[..., None] + shift[..., None])


def structured(rows, n, generator):
    shape = (rows, n)
    pictures = torch.randn((*shape, 3), generator=generator)
    return {"picture": pictures, "more": (torch.ones(shape), torch.zeros(shape))}


def test_a_mismatch_is_said_before_training(generator):
    orders, context = fr.random_permutations(4, (32,), generator=generator), structured(32, 4, generator)
    options = {"steps": 1, "batch_size": 16, "device": "cpu"}
    model = small_model(4, "lehmer", context=Pictures())
    with pytest.warns(
        UserWarning, match="token i of the Pictures goes to position i of the lehmer code.*'rank'"
    ):
        fr.train(model, (orders, context), **options)
    model = small_model(4, "lehmer", context=Pictures()).train()
    with pytest.warns(UserWarning, match="goes to position i of the lehmer code"):
        model.loss(orders, context)  # in a loop of one's own, once
    model.loss(orders, context)
    with pytest.warns(UserWarning, match="which is place i with target='rank': the default .* learns more"):
        small_model(4, "insertion", context=Pictures(), target="rank").train().loss(orders, context)
    for code, target in (("lehmer", "rank"), ("lehmer", "order"), ("insertion", None)):
        fr.train(small_model(4, code, context=Pictures(), target=target), (orders, context), **options)
    assert mismatch(small_model(4, "lehmer")) is None
    pieces = PieceEncoder(2, 4, 16)  # aligned, and what its tokens are is its model's own affair
    assert mismatch(small_model(4, "lehmer", context=pieces)) is None
    model = small_model(4, "lehmer", context=nn.Linear(3, 16)).train()  # which says nothing of its tokens
    model.loss(orders, torch.randn(32, 4, 3, generator=generator))
    assert "'rank'" not in mismatch(small_model(4, "inline", context=fr.ItemContext(3, 16)))


@dataclasses.dataclass
class Inner:
    points: torch.Tensor


@dataclasses.dataclass
class Outer:
    inner: Inner
    name: str
    more: list


class OfDataclass(nn.Module):
    aligned = exchangeable = True

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(3, 16)

    def forward(self, context):
        assert context.name == "set"
        return self.map(context.inner.points + context.more[0][..., None])


def test_a_context_may_be_a_dataclass(generator):
    orders = fr.random_permutations(4, (32,), generator=generator)
    points = torch.randn((32, 4, 3), generator=generator)
    context = Outer(Inner(points), "set", [torch.zeros(32, 4)])
    model = small_model(4, "insertion", context=OfDataclass())
    options = {"steps": 2, "device": "cpu"}
    assert fr.train(model, (orders, context), batch_size=8, held_out=0.25, **options).steps == 2
    assert fr.train(model, [(orders, context)], **options).steps == 2
    assert model.distribution(context, nfe=1)[3].sample((2,)).shape == (2, 4)


def test_what_is_no_tensor_of_a_context_is_named(generator):
    orders = fr.random_permutations(4, (32,), generator=generator)
    model = small_model(4, "insertion", context=Texts())
    with pytest.raises(ModelError, match="do not go with a context of batch shape") as caught:
        fr.train(model, (orders, ["a"] * 32), steps=1, batch_size=8, device="cpu")
    assert "all else goes to the encoder as it is: str." in caught.value.__notes__[-1]


class Texts(nn.Module):
    aligned = exchangeable = True

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(4, 16))

    def forward(self, texts):
        return self.token.expand(len(texts), 4, 16)


@pytest.mark.parametrize("code", ["lehmer", "insertion"])
def test_ranks_of_items_are_learnt_with_every_code(code, generator):
    """Sorting by the first number of each picture, with a context that is a dictionary and a tuple."""

    def data(rows, generator):
        context = structured(rows, 4, generator)
        return context["picture"][..., 0].argsort(-1), context

    torch.manual_seed(0)
    target = "rank" if code == "lehmer" else None
    context = Pictures(32)
    model = fr.PermutationModel(4, code, width=32, depth=1, heads=2, context=context, target=target)
    fr.train(model, data, steps=250, batch_size=64, lr=5e-3, device="cpu")
    orders, context = data(200, generator)
    assert (model.distribution(context, nfe=1).mode == orders).all(-1).float().mean() > 0.6


@pytest.mark.parametrize("code", ["insertion", "left-lehmer"])
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
@pytest.mark.parametrize("aligned", [True, False])
def test_a_model_of_shorter_lists_is_that_of_padded_ones(code, objective, aligned):
    encoder = fr.ItemContext(9, 16)
    encoder.aligned = aligned
    model = small_model(5, code, objective, context=encoder, target="order")
    short = model.with_length(3)
    listed = all_orders(3)
    items = torch.tensor([3, 1, 4])
    padding = torch.full((len(listed), 2), -1)
    padded = torch.cat([items, padding[0]]) if aligned else items
    how = {"unmask": "left-to-right"}
    expected = model.distribution(padded, **how).log_prob(torch.cat([listed, padding], -1))
    got = short.distribution(items, **how).log_prob(listed)
    torch.testing.assert_close(got, expected)
    assert got.exp().sum().item() == pytest.approx(1, abs=1e-5)


def test_lengths_that_a_model_has_not_learnt():
    with pytest.raises(ModelError, match=r"lists of 1\.\.4, not of 5; train one with a larger n"):
        small_model(4, "insertion").with_length(5)
    with pytest.raises(ModelError, match=r"domains do not depend on n.*not lehmer"):
        small_model(4, "lehmer").with_length(3)
