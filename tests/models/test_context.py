"""Contexts: aligned and not, shapes that broadcast, lists of several lengths, modules of the user's own."""

import itertools
import math

import pytest
import torch
from torch import nn

import factorank as fr
from factorank.errors import ModelError
from factorank.models.context import EncodedContext
from factorank.models.unmasking import UNMASK
from factorank.sampling.choosers import Replay
from tests.models.naive import all_orders, assert_drawn_from, small_model


class Features(nn.Module):
    """A user's module: vectors as tokens in front of the code; NaN marks tokens that are not there."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(2, 16)

    def forward(self, x):
        return self.map(x.nan_to_num()), ~x.isnan().any(-1)


def conditional(objective, kind, code="lehmer", n=4):
    torch.manual_seed(1)
    if kind == "aligned":
        return small_model(n, code, objective, context=fr.ItemContext(9, 16)), torch.randint(9, (3, n))
    context = torch.randn(3, 3, 2)
    context[0, 1] = math.nan
    return small_model(n, code, objective, context=Features()), context


def exact(objective):
    return {} if objective == "autoregressive" else {"unmask": "left-to-right", "nfe": 2}


KINDS = [(objective, kind) for objective in ("masked", "autoregressive") for kind in ("aligned", "in front")]


@pytest.mark.parametrize(("objective", "kind"), KINDS)
def test_each_row_has_its_own_law(objective, kind):
    model, context = conditional(objective, kind)
    law = model.distribution(context, **exact(objective))
    orders = all_orders(4)
    together = law.log_prob(orders[:, None]).detach()
    assert together.shape == (24, 3)
    torch.testing.assert_close(together.exp().sum(0), torch.ones(3))
    assert (together[:, 0] - together[:, 1]).abs().max() > 0.1
    samples = law.sample((3000,), generator=torch.Generator().manual_seed(0))
    for row in range(3):
        alone = model.distribution(context[row], **exact(objective))
        assert alone.batch_shape == ()
        torch.testing.assert_close(alone.log_prob(orders), together[:, row])
        assert_drawn_from(samples[:, row], orders, together[:, row].exp())
    if objective == "autoregressive":
        torch.testing.assert_close(-model.loss(orders[:3], context), together[[0, 1, 2], [0, 1, 2]])


@pytest.mark.parametrize("kind", ["aligned", "in front"])
def test_cached_steps_equal_the_whole_pass(kind):
    model, context = conditional("autoregressive", kind)
    law = model.distribution(context)
    code = model.code.encode(all_orders(4))[:, None].expand(24, 3, 4)
    *_, step = law._walk(law.conditions, 24, Replay(code), None, score=True)
    torch.testing.assert_close(step.log_prob, law._score(law.conditions, code, None))


@pytest.mark.parametrize(("objective", "kind"), KINDS)
def test_shapes_broadcast(objective, kind):
    model, context = conditional(objective, kind)
    law = model.distribution(context[:, None], **exact(objective))  # batch (3, 1)
    orders = fr.random_permutations(4, (2, 3, 5))
    values = law.log_prob(orders)
    assert values.shape == (2, 3, 5)
    for row in range(3):
        alone = model.distribution(context[row], **exact(objective))
        torch.testing.assert_close(values[:, row], alone.log_prob(orders[:, row]))
    wide = law.expand((3, 5))
    assert wide.sample((2,)).shape == (2, 3, 5, 4)
    torch.testing.assert_close(wide.log_prob(orders), values)
    assert law.sample().shape == law.mode.shape == (3, 1, 4)
    assert law.log_prob(torch.arange(4)).shape == (3, 1)
    with pytest.raises(ModelError, match="broadcast"):
        law.log_prob(fr.random_permutations(4, (2, 5)))
    fixed = torch.full((7, 4), -1)
    assert model.distribution(context[:, None], fixed=fixed, **exact(objective)).batch_shape == (3, 7)


def test_padding_tokens_in_front_do_not_matter():
    for objective in ("masked", "autoregressive"):
        model, context = conditional(objective, "in front")
        orders = all_orders(4)
        short = model.distribution(context[0, [0, 2]], **exact(objective))
        padded = model.distribution(context[0], **exact(objective))
        torch.testing.assert_close(padded.log_prob(orders), short.log_prob(orders))


def test_positions_see_all_items_and_only_earlier_values():
    model, items = conditional("autoregressive", "aligned")
    tokens = model.context(items[:1])[0].detach().requires_grad_()
    memory = model.network.memory(EncodedContext(tokens, None, True), None)
    code = model.code.encode(torch.tensor([[3, 1, 0, 2]]))
    hidden = model.network.causal_hidden(code, memory)
    seen = torch.autograd.grad(hidden[0, 1].sum(), tokens)[0].abs().sum(-1)[0]
    assert (seen > 0).all()
    changed = code.clone()
    changed[0, 1] = 0
    after = model.network.causal_hidden(changed, memory)
    assert torch.equal(after[0, :2], hidden[0, :2])
    assert not torch.equal(after[0, 2:], hidden[0, 2:])


@pytest.mark.parametrize("code", ["insertion", "left-lehmer"])
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_padding_gives_the_law_of_the_shorter_list(code, objective):
    """A model of n = 3 with the same weights is the model of n = 5 on lists of three."""
    long = small_model(5, code, objective, context=fr.ItemContext(9, 16))
    short = small_model(3, code, objective, context=fr.ItemContext(9, 16))
    weights = {}
    for name, value in long.state_dict().items():
        if name == "network.values.weight":
            value = value[[0, 1, 2, 5]]
        elif name.endswith(("places", "head.weight")):
            value = value[:3]
        elif name.endswith("head.bias"):
            value = value[:3, :3]
        weights[name] = value
    short.load_state_dict(weights)
    items = torch.tensor([[4, 1, 7, -1, -1], [2, 8, 3, 5, 0]])
    orders = torch.cat([all_orders(3), torch.full((6, 2), -1)], 1)
    options = {} if objective == "autoregressive" else {"unmask": "left-to-right"}
    for nfe in (3,) if objective == "masked" else (None,):
        padded = long.distribution(items[0], nfe=5 if nfe else None, **options).log_prob(orders)
        alone = short.distribution(items[0, :3], nfe=nfe, **options).log_prob(all_orders(3))
        torch.testing.assert_close(padded, alone)
        assert padded.exp().sum().item() == pytest.approx(1, abs=1e-5)
    mixed = long.distribution(items, **options)
    both = torch.stack([orders[3], torch.tensor([4, 0, 3, 1, 2])])
    torch.testing.assert_close(mixed.log_prob(both)[0], padded[3])

    ways = [{}] if objective == "autoregressive" else [{"unmask": unmask, "nfe": 2} for unmask in UNMASK]
    for way in ways:
        samples = long.distribution(items, **way).sample((500,), generator=torch.Generator().manual_seed(0))
        assert (samples[:, 0, 3:] == -1).all()
        assert fr.is_permutation(samples[:, 0, :3]).all()
        assert fr.is_permutation(samples[:, 1]).all()
    samples = mixed.sample((3000,), generator=torch.Generator().manual_seed(0))[:, 0]
    assert_drawn_from(samples, orders, padded.detach().exp())
    ranks = mixed.mean_ranks(samples=10)
    assert ranks.isnan().tolist() == (items < 0).tolist()

    if objective == "autoregressive":
        torch.testing.assert_close(-long.loss(both, items), mixed.log_prob(both))
    losses = [long.loss(both, items, generator=torch.Generator().manual_seed(seed)) for seed in range(5)]
    assert torch.stack(losses).isfinite().all()


def test_masked_loss_of_a_padded_list_is_the_bound_of_the_short_one():
    model = small_model(4, "insertion")
    order = torch.tensor([[1, 0, -1, -1]])
    losses = []
    for count, ranks in itertools.product(range(2), itertools.permutations([0.1, 0.2, 0.3, 0.4])):
        noise = torch.tensor((count + 0.5) / 2), torch.tensor([ranks])
        losses.append(model.loss(order, noise=noise))
    # The two ways of revealing two positions; the first value of an insertion code is always 0.
    present, code = order >= 0, torch.tensor([[0, 0, 4, 4]])
    bound = 0
    for shown in ([0], []):
        visible = torch.full((1, 4), 4)
        visible[:, shown] = code[:, shown]
        logits = model.network.head(model.network.hidden(visible, None, present))
        bound = bound - logits[0, 1].log_softmax(-1)[0] / 2
    torch.testing.assert_close(torch.stack(losses).mean(), bound)


def test_padding_is_refused_where_domains_depend_on_n():
    for code in ("inline", "lehmer", "fisher-yates"):
        model = small_model(4, code, context=fr.ItemContext(9, 16))
        items = torch.tensor([1, 2, 3, -1])
        with pytest.raises(ModelError, match="domains do not depend on n"):
            model.distribution(items)
        with pytest.raises(ModelError, match="domains do not depend on n"):
            model.loss(torch.tensor([0, 2, 1, -1]), items)
        with pytest.raises(ModelError, match="as many items as the list"):
            model.loss(torch.tensor([0, 2, 1, 3]), items)
    model = small_model(4, "insertion", context=fr.ItemContext(9, 16))
    with pytest.raises(ModelError, match="at the end of a list"):
        model.distribution(torch.tensor([1, -1, 3, 4]))
    with pytest.raises(ModelError, match="at the end of a list"):
        model.loss(torch.tensor([0, -1, 2, 1]), torch.tensor([1, 2, 3, 4]))
    for order in ([2, 0, 1, 3], [1, 0, -1, -1]):
        with pytest.raises(ModelError, match="as many items as the list"):
            model.loss(torch.tensor(order), torch.tensor([1, 2, 3, -1]))
    law = model.distribution(torch.tensor([1, 2, 3, -1]), nfe=1)
    with pytest.raises(ModelError, match="as many items as the list"):
        law.log_prob(torch.arange(4))


def test_a_list_without_items():
    for objective in ("masked", "autoregressive"):
        model = small_model(3, "insertion", objective, context=fr.ItemContext(9, 16))
        items = torch.tensor([[-1, -1, -1], [4, 2, -1]])
        law = model.distribution(items)
        assert (law.sample((5,))[:, 0] == -1).all()
        orders = torch.tensor([[-1, -1, -1], [1, 0, -1]])
        assert law.log_prob_bound(orders)[0] == 0
        loss = model.loss(orders, items)
        assert loss.isfinite().all()
        assert loss[0] == 0


def test_token_context_and_refusals():
    letters = fr.TokenContext("abc", 16)
    assert letters.ids(["ab", "c"], 3).tolist() == [[0, 1, -1], [2, -1, -1]]
    with pytest.raises(ModelError, match="'x' in 'ax' is not in the vocabulary"):
        letters.ids(["ax"])
    with pytest.raises(ModelError, match="room for 1"):
        letters.ids(["ab"], 1)
    with pytest.raises(ModelError, match="each symbol once"):
        fr.TokenContext("aba", 4)
    model = small_model(3, "insertion", context=letters)
    assert model.distribution(letters.ids(["cab"]), nfe=1).sample().shape == (1, 3)
    with pytest.raises(ModelError, match=r"item ids are 0\.\.2"):
        model.distribution(torch.tensor([0, 1, 3]))
    with pytest.raises(ModelError, match="integer tensor"):
        model.distribution(torch.rand(3))
    with pytest.raises(ModelError, match="none was given"):
        model.distribution()
    with pytest.raises(ModelError, match=r"not \(\*batch, 3, 16\)"):
        model.distribution(torch.tensor([0, 1]))
    with pytest.raises(ModelError, match="16 wide"):
        small_model(3, "insertion", context=fr.TokenContext("abc", 8))


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_no_contexts_at_all(objective):
    model = small_model(4, "insertion", objective, context=fr.ItemContext(9, 16))
    law = model.distribution(torch.zeros(0, 4, dtype=torch.int64), **exact(objective))
    assert law.sample((3,)).shape == (3, 0, 4)
    assert law.mode.shape == (0, 4)
    assert law.log_prob(fr.random_permutations(4, (3, 0))).shape == (3, 0)


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_a_law_keeps_nothing_of_the_weights(objective):
    """Only the context is encoded beforehand; what a call computes is gone after it."""
    model = small_model(4, "insertion", objective)
    law, orders = model.distribution(**exact(objective)), all_orders(4)
    before = law.log_prob(orders)
    law.sample((3,))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    torch.testing.assert_close(law.log_prob(orders), model.distribution(**exact(objective)).log_prob(orders))
    assert (law.log_prob(orders) - before).abs().max() > 0.01


def test_an_encoder_is_a_module():
    for context, match in (
        (lambda x: x, "not a function"),
        (fr.ItemContext, "not the class ItemContext"),
        ([1], "not a list"),
    ):
        with pytest.raises(ModelError, match=f"context is a module that maps a context to tokens.*{match}"):
            fr.PermutationModel(4, "lehmer", width=16, depth=1, heads=2, context=context)


def test_only_what_can_be_rebuilt_is_registered():
    with pytest.raises(ModelError, match=r"what its config\(\) returns.*but Linear has no such method"):
        fr.register_context("mine", torch.nn.Linear)
    for encoder in (lambda width: None, fr.ItemContext(3, 8)):
        with pytest.raises(ModelError, match=r"a subclass of nn\.Module, not"):
            fr.register_context("mine", encoder)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ([16], "positional|mapping"),
        ({"width": torch.tensor(16)}, "not JSON serializable"),
        ({"width": 16, "size": 1}, "unexpected keyword argument 'size'"),
        ({}, "missing a required argument: 'width'"),
        ({"width": float("nan")}, "not JSON compliant"),
    ],
)
def test_what_does_not_rebuild_an_encoder_is_not_saved(options, match, tmp_path, monkeypatch):
    class Mine(torch.nn.Linear):
        def __init__(self, width):
            super().__init__(2, width)

        def config(self):
            return options

    monkeypatch.setattr("factorank.models.context._registered", {"mine": Mine})
    model = small_model(4, "lehmer", context=Mine(16))
    with pytest.raises(ModelError, match=rf"config\(\) of Mine returns the keyword arguments .*({match})"):
        model.save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
@pytest.mark.parametrize("aligned", [True, False])
def test_a_context_of_another_batch(objective, aligned):
    encoder = fr.ItemContext(9, 16)
    encoder.aligned = aligned
    model = small_model(4, "insertion", objective, context=encoder)
    orders, items = fr.random_permutations(4, (6,)), torch.randint(9, (6, 4))
    for batch in ((5, 4), (6, 6, 4), (2, 4)):
        context = torch.randint(9, batch)
        with pytest.raises(ModelError, match=r"batch shape \(6,\) do not go with a context of batch shape"):
            model.loss(orders, context)
    with pytest.raises(
        ModelError, match=r"batch shape \(6,\) do not go with a context of batch shape \(5,\)"
    ):
        model.logits(model.code.encode(orders), items[:5])
    with pytest.raises(ModelError, match=r"a law of batch shape \(6,\) takes orders"):
        model.distribution(items, unmask="left-to-right").log_prob(orders[:5])
    shared = model.loss(orders, items[:1], generator=torch.Generator().manual_seed(0))
    each = model.loss(orders, items[:1].expand(6, 4), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(shared, each)


def test_what_is_no_encoding_is_refused():
    class Strange(torch.nn.Module):
        def forward(self, answer):
            return answer

    model = small_model(4, "lehmer", context=Strange())
    tokens = torch.zeros(2, 3, 16)
    for answer, match in (
        ({"tokens": tokens}, "it gave dict"),
        ((tokens, None, None), "it gave tuple"),
        ((tokens, [[True] * 3] * 2), "it gave list for the second"),
        (tokens.long(), r"it gave torch.int64"),
        ((tokens, torch.ones(2, 3)), r"gave torch.float32 \(2, 3\) for the padding of tokens \(2, 3, 16\)"),
    ):
        with pytest.raises(ModelError, match=match):
            model.distribution(answer, nfe=1)
