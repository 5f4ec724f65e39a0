"""Stratified draws: each follows the law, and together they are spread."""

import pytest
import torch

from factorank.models import chunks
from tests.models.naive import (
    all_orders,
    assert_drawn_from,
    autoregressive_log_prob,
    confident_log_prob,
    cut,
    free_positions,
    partition_log_prob,
    random_probs,
    small_model,
)

LAWS = ["autoregressive", "random", "left-to-right", "confident"]


def a_law(kind, n=4, code="insertion", **options):
    """The law of a random model with n items, and its probabilities of all orders, from the definition."""
    model, orders = (
        small_model(n, code, "autoregressive" if kind == "autoregressive" else "masked"),
        all_orders(n),
    )
    if kind == "autoregressive":
        return model.distribution(**options), autoregressive_log_prob(model, orders).exp()
    law = model.distribution(nfe=2, unmask=kind, **options)
    if kind == "random":
        return law, random_probs(model, orders, 2)
    if kind == "confident":
        return law, confident_log_prob(model, orders, 2).exp()
    return law, partition_log_prob(model, orders, cut(free_positions(model), 2)).exp()


@pytest.mark.parametrize("code", ["insertion", "lehmer"])
@pytest.mark.parametrize("kind", LAWS)
def test_each_draw_follows_the_law(kind, code, generator):
    """One draw of each of many stratified batches of 5: all orders are as frequent as they are likely."""
    law, probs = a_law(kind, code=code)
    drawn = law.expand((4000,)).stratified(5, generator=generator)
    for sample in (0, 3):
        assert_drawn_from(drawn[sample], all_orders(4), probs.detach())


@pytest.mark.parametrize("kind", LAWS)
def test_places_are_right_on_average_and_vary_less(kind, generator):
    law, probs = a_law(kind)
    orders, rows, samples = all_orders(4), 1500, 16
    places = law.expand((rows,)).marginals(samples=samples, generator=generator)
    ranks = torch.nn.functional.one_hot(orders.argsort(-1), 4).double()
    exact = (probs.double()[:, None, None] * ranks).sum(0)
    spread = places.double().std(0)
    assert ((places.double().mean(0) - exact).abs() <= 4.5 * spread / rows**0.5 + 1e-6).all()
    plain = (exact * (1 - exact) / samples).sqrt()
    assert (spread < 1.1 * plain + 1e-6).all()
    assert spread.square().sum() < 0.6 * plain.square().sum()


@pytest.mark.parametrize("fixed_count", [1, 2, 3])
@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_counts_at_the_first_free_position(fixed_count, chunk, monkeypatch, generator):
    """All samples share its predictions; the chunks they are drawn in do not matter."""
    n, samples = 5, 17
    model, orders = small_model(n, "insertion", "autoregressive"), all_orders(n)
    if chunk is not None:
        widest = n * max(4 * model.width, 2 * n)
        monkeypatch.setitem(chunks.CHUNK, "cpu", chunk * widest)
    fixed = torch.tensor([[0, 1, 1], [0, 0, 2], [0, 1, 0], [0, 0, 0]])[:, :fixed_count]
    law = model.distribution(fixed=torch.nn.functional.pad(fixed, (0, n - fixed_count), value=-1))
    code = model.code.encode(law.stratified(samples, generator=generator))
    assert torch.equal(code[..., :fixed_count], fixed.expand(samples, -1, -1))
    probs = law.log_prob(orders[:, None]).detach().double().exp()
    values = model.code.encode(orders)[:, fixed_count]
    for row in range(4):
        for value in range(fixed_count + 1):
            expected = samples * float(probs[values <= value, row].sum())
            assert abs(int((code[:, row, fixed_count] <= value).sum()) - expected) < 1 + 1e-4


@pytest.mark.parametrize("kind", ["autoregressive", "left-to-right", "confident"])
def test_chunks_of_samples_do_not_change_the_draws(kind, monkeypatch):
    law, _ = a_law(kind)
    law = law.expand((1,))
    drawn = []
    for chunk in (100, 3):
        monkeypatch.setitem(chunks.CHUNK, "cpu", chunk * 4 * 4 * law.model.width)
        drawn.append(law.stratified(20, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(*drawn)
