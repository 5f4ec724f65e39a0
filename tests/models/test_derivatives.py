"""Second derivatives are right or refused; ``torch.func`` and ``torch.export`` give what plain calls give."""

import pytest
import torch
from torch.func import functional_call, grad, jvp, vmap

import factorank as fr
from tests.models.naive import small_model

OBJECTIVES = ["masked", "autoregressive"]
every_objective = pytest.mark.parametrize("objective", OBJECTIVES)


class Dense(torch.nn.Module):
    """Tokens put before those of the code."""

    def __init__(self, width=16):
        super().__init__()
        self.map = torch.nn.Linear(2, width)

    def forward(self, x):
        return self.map(x)


def setting(objective, encoder):
    """A model, orders, a context and the noise of the loss."""
    contexts = {"none": None, "items": fr.ItemContext(9, 16), "tokens": Dense()}
    model = small_model(4, "insertion", objective, context=contexts[encoder])
    generator = torch.Generator().manual_seed(3)
    orders = fr.random_permutations(4, (6,), generator=generator)
    context = {
        "none": None,
        "items": torch.randint(9, (6, 4), generator=generator),
        "tokens": torch.randn((6, 3, 2), generator=generator),
    }[encoder]
    noise = model.noise(torch.Size([6]), device="cpu", generator=generator)
    return model, orders, context, noise


def penalty(model, orders, context, noise):
    loss = model.loss(orders, context, noise=noise).mean()
    gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True, allow_unused=True)
    return sum(gradient.square().sum() for gradient in gradients if gradient is not None)


@every_objective
@pytest.mark.parametrize("encoder", ["none", "items", "tokens"])
def test_a_penalty_on_the_gradient_is_refused_or_right(objective, encoder):
    given = setting(objective, encoder)
    weight = given[0].network.transformer.blocks[0].qkv.weight
    with pytest.raises(fr.FactorankError, match=r"first derivatives only.*with factorank.plain\(\)"):
        penalty(*given).backward()
    given[0].zero_grad()
    with fr.plain():
        penalty(*given).backward()
        direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
        steps = []
        start = weight.detach().clone()
        for step in (1e-3, -1e-3):
            with torch.no_grad():
                weight.copy_(start + step * direction)
            steps.append(penalty(*given).item())
    slope = (steps[0] - steps[1]) / 2e-3
    assert abs(slope) > 0.1
    assert (weight.grad * direction).sum().item() == pytest.approx(slope, rel=0.01)


@every_objective
def test_a_second_derivative_by_some_weights_only_is_refused_or_right(objective):
    model, orders, context, noise = setting(objective, "none")
    first, last = model.network.places, model.network.transformer.blocks[0].down.weight

    def mixed(by):
        """The gradient by all weights of a penalty on the gradient by one."""
        loss = model.loss(orders, context, noise=noise).mean()
        (slope,) = torch.autograd.grad(loss, by, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), first)[0]

    with pytest.raises(fr.FactorankError, match="first derivatives only"):
        mixed(first)  # its gradient comes through attention, and around it too
    with fr.plain():
        by_last = mixed(last)
    if objective == "masked":  # what lies behind attention asks for its first derivative alone
        torch.testing.assert_close(mixed(model.network.head.weight), plain_mixed(mixed, model))
    assert by_last.abs().max() > 0


def plain_mixed(mixed, model):
    with fr.plain():
        return mixed(model.network.head.weight)


@every_objective
def test_first_gradients_are_those_of_the_plain_twin(objective):
    model, orders, context, noise = setting(objective, "items")
    model.loss(orders, context, noise=noise).mean().backward()
    fast = [weight.grad.clone() for weight in model.parameters()]
    model.zero_grad()
    with fr.plain():
        model.loss(orders, context, noise=noise).mean().backward()
    for ours, weight in zip(fast, model.parameters(), strict=True):
        torch.testing.assert_close(ours, weight.grad)


def loss_of(model, context, noise):
    def loss(weights, orders, context=context, noise=noise):
        return functional_call(model, weights, (orders, context), {"noise": noise}).mean()

    return loss


@every_objective
def test_the_gradients_of_each_row(objective):
    model, orders, context, noise = setting(objective, "items")
    weights = dict(model.named_parameters())
    rows = (orders[:, None], context[:, None], None if noise is None else tuple(x[:, None] for x in noise))
    loss = loss_of(model, context, noise)
    each = vmap(grad(loss), in_dims=(None, 0, 0, None if noise is None else 0))(weights, *rows)
    for row in range(len(orders)):
        here = None if noise is None else tuple(x[row, None] for x in noise)
        alone = loss(weights, orders[row, None], context[row, None], here)
        expected = torch.autograd.grad(alone, list(weights.values()))
        for name, gradient in zip(weights, expected, strict=True):
            torch.testing.assert_close(each[name][row], gradient, rtol=1e-4, atol=1e-5)


@every_objective
def test_a_derivative_along_a_direction(objective):
    model, orders, context, noise = setting(objective, "items")
    weights = dict(model.named_parameters())
    generator = torch.Generator().manual_seed(5)
    along = {name: torch.randn(weight.shape, generator=generator) for name, weight in weights.items()}
    loss = loss_of(model, context, noise)
    value, slope = jvp(lambda weights: loss(weights, orders), (weights,), (along,))
    gradients = torch.autograd.grad(loss(weights, orders), list(weights.values()))
    expected = sum((g * along[name]).sum() for name, g in zip(weights, gradients, strict=True))
    torch.testing.assert_close(slope, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(value, loss(weights, orders))


@every_objective
def test_vmap_of_logits_and_of_log_prob(objective):
    model, orders, context, _ = setting(objective, "items")
    codes = model.code.encode(orders)
    each = vmap(model.logits)(codes, context)
    torch.testing.assert_close(each, model.logits(codes, context))
    law = model.distribution(context, unmask="left-to-right")
    several = orders.expand(3, 6, 4)
    torch.testing.assert_close(vmap(law.log_prob)(several), law.log_prob(several))
    assert torch.equal(vmap(model.code.encode)(orders), codes)
    assert torch.equal(vmap(model.code.decode, in_dims=1, out_dims=1)(codes[:, None]), orders[:, None])


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of torch, about attention in vmap
@pytest.mark.parametrize(
    ("objective", "options"),
    [
        ("masked", {"nfe": 1}),
        ("masked", {"nfe": 2}),
        ("masked", {"entropy_bound": 0.2}),
        ("masked", {"nfe": 2, "remask": 1}),
        ("autoregressive", {}),
    ],
)
def test_vmap_of_mode_and_of_sample(objective, options):
    model, _, context, _ = setting(objective, "items")
    modes = vmap(lambda each: model.distribution(each, **options).mode)(context)
    assert torch.equal(modes, model.distribution(context, **options).mode)
    drawn = vmap(lambda each: model.distribution(each, **options).sample((5,)), randomness="different")
    drawn = drawn(context)
    assert drawn.shape == (len(context), 5, model.n)
    assert bool(fr.is_permutation(drawn).all())


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of torch, about attention in vmap
@pytest.mark.filterwarnings("ignore:torch.searchsorted")  # about speed as well
@every_objective
def test_vmap_of_draws_that_nothing_tells_apart(objective):
    law = setting(objective, "none")[0].distribution()
    for randomness in ("different", "same"):
        drawn = vmap(lambda _: law.sample((50,)), randomness=randomness)(torch.zeros(2))
        assert bool(fr.is_permutation(drawn).all())
        assert torch.equal(drawn[0], drawn[1]) == (randomness == "same")


class Asked(torch.nn.Module):
    """The log-probability of orders, or the mode, as a module that can be exported."""

    def __init__(self, model, **options):
        super().__init__()
        self.model, self.options = model, options

    def forward(self, context, order=None):
        law = self.model.distribution(context, **self.options)
        return law.mode if order is None else law.log_prob(order)


@pytest.mark.parametrize(
    ("objective", "options"),
    [
        ("masked", {"nfe": 2, "unmask": "left-to-right"}),
        ("autoregressive", {}),
    ],
)
def test_export_with_a_padded_context(objective, options):
    model = small_model(3, "insertion", objective, depth=1, context=fr.ItemContext(9, 16))
    asked = Asked(model, **options)
    context = torch.tensor([[3, 1, -1], [1, 5, 0], [6, -1, -1]])
    orders = torch.tensor([[1, 0, -1], [2, 1, 0], [0, -1, -1]])
    whole = torch.tensor([[3, 1, 4], [1, 5, 0], [6, 2, 0]])
    modes = torch.export.export(asked, (context,)).module()
    scores = torch.export.export(asked, (context, orders)).module()
    for given, order in ((context, orders), (whole, fr.random_permutations(3, (3,)))):
        assert torch.equal(modes(given), asked(given))
        torch.testing.assert_close(scores(given, order), asked(given, order))


def test_what_vmap_cannot_follow_is_refused_in_our_words():
    model, orders, context, _ = setting("masked", "items")
    with pytest.raises(fr.ModelError, match="draft takes depends on what is drawn, which vmap cannot follow"):
        vmap(lambda each: model.distribution(each, unmask="left-to-right", draft="self").mode)(context)

    def conditioned(each):
        return model.distribution(each, nfe=2, unmask="left-to-right").condition([3, 0]).log_prob(orders)

    with pytest.raises(fr.ModelError, match=r"shorter than n \(inside vmap: unless model.padded = False\)"):
        vmap(conditioned)(context)
    expected = torch.stack([conditioned(each) for each in context])
    model.padded = False
    torch.testing.assert_close(vmap(conditioned)(context), expected)
