"""Temperature and top_p: on each conditional, by definition, and part of the law."""

import itertools
import math

import pytest
import torch

from factorank.errors import ModelError
from factorank.sampling.categorical import tempered
from tests.models.naive import all_orders, free_positions, small_model


def cut_by_definition(probs, top_p):
    """The most likely values until their probabilities sum to top_p; a loop over one categorical."""
    kept, total = [0.0] * len(probs), 0.0
    for value in sorted(range(len(probs)), key=lambda v: (-probs[v], v)):
        if top_p < 1 and total >= top_p - 1e-4:
            break
        kept[value], total = probs[value], total + probs[value]
    return [p / total for p in kept]


def tempered_by_definition(logits, temperature, top_p):
    weights = [math.exp(x / temperature) for x in logits]
    return cut_by_definition([w / sum(weights) for w in weights], top_p)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_p", [1e-3, 0.5, 0.9, 1.0])
def test_a_categorical(temperature, top_p, generator):
    logits = 2 * torch.randn(50, 6, generator=generator)
    logits[:, 4] = -torch.inf
    got = tempered(logits, temperature, top_p).softmax(-1)
    for row, probs in zip(logits.tolist(), got, strict=True):
        torch.testing.assert_close(probs, torch.tensor(tempered_by_definition(row, temperature, top_p)))


def test_rounding_does_not_decide_ties(generator):
    """Equal probabilities that sum to top_p exactly: the smaller values are kept, whatever the noise."""
    noisy = 1e-6 * torch.randn(200, 4, generator=generator)
    assert (tempered(noisy, top_p=0.5).isfinite() == torch.tensor([True, True, False, False])).all()
    many = tempered(torch.zeros(3, 40), top_p=0.5).isfinite()
    assert torch.equal(many, (torch.arange(40) < 20).expand(3, 40))


@torch.no_grad()
def walked(model, row, options, certainty_first):
    """The log-probability of one code, position by position, by the definition of the law."""
    shown, total = [], 0.0
    while rest := free_positions(model, shown):
        visible = torch.full_like(row, model.n)
        visible[shown] = row[shown]
        if model.causal:
            logits = model.network.head(model.network.causal_hidden(row[None], None))[0]
        else:
            logits = model.network.head(model.network.hidden(visible[None], None, None))[0]
        probs = [tempered_by_definition(line, **options) for line in logits.tolist()]
        if certainty_first:
            rest.sort(key=lambda i: (-round(max(probs[i]) * 4096), i))
        chosen = probs[rest[0]][row[rest[0]]]
        total += math.log(chosen) if chosen > 0 else -math.inf
        shown = [*shown, rest[0], *([0] if int(model.code.sizes(model.n)[0]) == 1 else [])]
    return total


@pytest.mark.parametrize("code", ["lehmer", "insertion"])
@pytest.mark.parametrize("unmask", ["left-to-right", "confident", "autoregressive"])
def test_laws(code, unmask):
    causal = unmask == "autoregressive"
    model, orders = small_model(4, code, "autoregressive" if causal else "masked"), all_orders(4)
    for temperature, top_p in itertools.product([0.5, 1.7], [0.6, 1.0]):
        options = {"temperature": temperature, "top_p": top_p}
        law = model.distribution(unmask=None if causal else unmask, **options)
        truth = [walked(model, row, options, unmask == "confident") for row in model.code.encode(orders)]
        torch.testing.assert_close(law.log_prob(orders).detach(), torch.tensor(truth), atol=1e-4, rtol=1e-4)


def test_gradients_flow_through_what_is_kept():
    model = small_model(4, "lehmer")
    law = model.distribution(nfe=2, unmask="left-to-right", temperature=0.7, top_p=0.8)
    law.log_prob(law.sample((20,))).sum().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("name", ["temperature", "top_p"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, True, "warm", None])
def test_refusals(name, value):
    for objective in ("masked", "autoregressive"):
        with pytest.raises(ModelError, match=f"{name} is a number above 0"):
            small_model(3, "lehmer", objective).distribution(**{name: value})
    with pytest.raises(ModelError, match=r"top_p is a number above 0 and at most 1, not 1\.5"):
        small_model(3, "lehmer").distribution(top_p=1.5)


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_a_model_in_float64_has_laws_in_float64(objective):
    model, orders = small_model(4, "lehmer", objective).double(), all_orders(4)
    law = model.distribution(unmask="left-to-right")
    values = law.log_prob(orders)
    assert values.dtype == torch.float64
    assert values.exp().sum().item() == pytest.approx(1, abs=1e-13)
    assert law.entropy().dtype == torch.float64
    if objective == "masked":
        first = model.distribution(nfe=1)
        assert {x.dtype for x in (first.log_prob(orders), first.entropy(), first.marginals())} == {
            torch.float64
        }
    narrow = model.float().distribution(unmask="left-to-right").log_prob(orders)
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow.double(), values, atol=1e-4, rtol=1e-4)
