"""The loss is the any-order bound in expectation (masked) or minus the log-probability (autoregressive)."""

import itertools

import pytest
import torch

import factorank as fr
from tests.models.naive import all_orders, autoregressive_log_prob, partition_log_prob, small_model

CODES = ["inline", "lehmer", "left-lehmer", "fisher-yates", "insertion"]


def any_order_bound(model, orders):
    """The mean over all orders of revealing one position at a time."""
    listings = list(itertools.permutations(range(model.n)))
    values = [partition_log_prob(model, orders, [(i,) for i in each], certain=()) for each in listings]
    return -torch.stack(values).mean(0)


@pytest.mark.parametrize("code", CODES)
def test_expectation_is_the_any_order_bound(code):
    """Every count and every set of masked positions once, which is the expectation exactly."""
    model, orders = small_model(3, code), all_orders(3)
    losses = []
    with torch.no_grad():
        for count, ranks in itertools.product(range(3), itertools.permutations([0.1, 0.4, 0.8])):
            noise = torch.tensor((count + 0.5) / 3), torch.tensor([ranks])
            losses += [torch.cat([model.loss(order[None], noise=noise) for order in orders])]
    torch.testing.assert_close(
        torch.stack(losses).mean(0), any_order_bound(model, orders), atol=1e-5, rtol=1e-5
    )


def test_drawn_noise_gives_the_same_expectation():
    model, order = small_model(3, "lehmer"), torch.tensor([2, 0, 1])
    with torch.no_grad():
        losses = model.loss(order.expand(30_000, 3), generator=torch.Generator().manual_seed(0))
    assert losses.std() > 0.1
    bound = any_order_bound(model, order[None]).item()
    assert losses.mean().item() == pytest.approx(bound, abs=5 * float(losses.std()) / 30_000**0.5)


def test_counts_are_spread_evenly_over_the_batch(monkeypatch):
    model, seen = small_model(5, "lehmer"), []
    real = model.network.hidden
    monkeypatch.setattr(model.network, "hidden", lambda code, *a: seen.append(code) or real(code, *a))
    for seed in range(20):
        model.loss(fr.random_permutations(5, (4, 10)), generator=torch.Generator().manual_seed(seed))
        counts = (seen.pop() == model.n).sum(-1).flatten()
        assert counts.bincount(minlength=6).tolist() == [0, 8, 8, 8, 8, 8]


@pytest.mark.parametrize("code", CODES)
def test_autoregressive_loss_is_exact(code):
    model, orders = small_model(4, code, "autoregressive"), all_orders(4)
    torch.testing.assert_close(-model.loss(orders).detach(), autoregressive_log_prob(model, orders))
    torch.testing.assert_close(-model.loss(orders), model.distribution().log_prob(orders))


def test_generator_and_noise_are_the_same_draw():
    model, orders = small_model(4, "insertion"), all_orders(4)
    noise = model.noise(orders.shape[:-1], device="cpu", generator=torch.Generator().manual_seed(5))
    one = model.loss(orders, generator=torch.Generator().manual_seed(5))
    assert torch.equal(one, model.loss(orders, noise=noise))
    assert torch.equal(model(orders, noise=noise), one)
    assert small_model(4, "insertion", "autoregressive").noise(torch.Size((2,)), device="cpu") is None


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_compiles_whole(objective):
    """One graph, forward and backward; the backend does not matter for that."""
    model = small_model(4, "insertion", objective, context=fr.ItemContext(9, 16))
    orders, items = all_orders(4), torch.randint(9, (24, 4))
    noise = model.noise(orders.shape[:-1], device="cpu")
    compiled = torch.compile(model.loss, fullgraph=True, backend="aot_eager")
    loss = compiled(orders, items, noise=noise)
    torch.testing.assert_close(loss, model.loss(orders, items, noise=noise))
    loss.sum().backward()
    assert model.network.places.grad is not None


def test_faulty_rows_are_not_a_number_where_they_cannot_be_refused():
    model = small_model(4, "lehmer")
    compiled = torch.compile(model.loss, fullgraph=True, backend="aot_eager")
    losses = compiled(torch.tensor([[0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 2, -1]]))
    assert losses.isnan().tolist() == [False, True, True]


def test_head_is_float32_under_autocast():
    model, orders = small_model(4, "lehmer", "autoregressive"), all_orders(4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model.loss(orders)
        hidden = model.network.causal_hidden(model.code.encode(orders), None)
        assert model.network.head(hidden).dtype == torch.float32
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, model.loss(orders), atol=0.1, rtol=0.05)


def test_size_of_the_papers_network():
    model = fr.PermutationModel(10, "fisher-yates", width=128, depth=8, heads=8, dropout=0.05)
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(1.59e6, rel=0.005)


def suffix_loss(model, order, count):
    """The last ``count`` positions predicted from those before them, n / count times their sum."""
    code = model.code.encode(order)
    masked = torch.cat([code[..., : model.n - count], torch.full_like(code[..., :count], model.n)], -1)
    log_probs = model.network.head(model.network.hidden(masked, None, None)).log_softmax(-1)
    chosen = log_probs.gather(-1, code[..., None])[..., model.n - count :, 0].sum(-1)
    return -chosen * model.n / count


@pytest.mark.parametrize("code", CODES)
def test_masks_of_a_suffix_and_of_all(code):
    orders = all_orders(4)
    for count in range(1, 5):
        model = small_model(4, code, masks="suffix")
        noise = torch.full((24,), (count - 0.5) / 4), torch.rand(24, 4)
        torch.testing.assert_close(model.loss(orders, noise=noise), suffix_loss(model, orders, count))
    model = small_model(4, code, masks="all")
    torch.testing.assert_close(-model.loss(orders), model.distribution(nfe=1).log_prob(orders))


@pytest.mark.parametrize("code", CODES)
def test_masks_of_a_prefix(code):
    orders = all_orders(4)
    model = small_model(4, code, masks="prefix")
    encoded = model.code.encode(orders)
    for count in range(1, 5):
        masked = torch.cat([torch.full_like(encoded[..., :count], model.n), encoded[..., count:]], -1)
        log_probs = model.network.head(model.network.hidden(masked, None, None)).log_softmax(-1)
        chosen = log_probs.gather(-1, encoded[..., None])[..., :count, 0].sum(-1)
        noise = torch.full((24,), (count - 0.5) / 4), torch.rand(24, 4)
        torch.testing.assert_close(model.loss(orders, noise=noise), -chosen * 4 / count)


def test_a_prefix_of_a_short_list_ends_where_the_list_does():
    model = small_model(5, "left-lehmer", masks="prefix")
    short = torch.tensor([[2, 0, 1, -1, -1]])
    code = model.code.encode(short[:, :3])
    for count in range(1, 4):
        masked = torch.cat([torch.full((1, count), model.n), code[:, count:], torch.zeros(1, 2).long()], -1)
        present = torch.tensor([[True, True, True, False, False]])
        log_probs = model.network.head(model.network.hidden(masked, None, present)).log_softmax(-1)
        chosen = log_probs[:, :3].gather(-1, code[..., None])[:, :count, 0].sum(-1)
        noise = torch.full((1,), (count - 0.5) / 3), torch.rand(1, 5)
        torch.testing.assert_close(model.loss(short, noise=noise), -chosen * 3 / count)


def test_a_model_of_prefixes_reveals_right_to_left():
    model = small_model(4, "left-lehmer", masks="prefix")
    law = model.distribution(nfe=2)
    assert law.unmask == "right-to-left"
    assert law.log_prob(all_orders(4)).exp().sum().item() == pytest.approx(1, abs=1e-5)
    assert model.distribution(partition=[[2, 3], [1]]).nfe == 2
    assert model.distribution(nfe=2, fixed=torch.tensor([-1, -1, -1, 2])).exact
    assert model.distribution(entropy_bound=0.1, unmask="right-to-left").unmask == "right-to-left"
    for refused, match in (
        (lambda: model.distribution(nfe=2, unmask="left-to-right"), "has learnt to reveal right to left"),
        (lambda: model.distribution(partition=[[1], [2, 3]]), "has learnt to reveal right to left"),
        (lambda: model.distribution(entropy_bound=0.1, unmask="confident"), "reveal right to left"),
        (lambda: model.distribution(fixed=torch.tensor([0, -1, -1, -1])), "must be the last ones"),
        (lambda: model.distribution(observed=torch.tensor([1, 0])), "from those after it"),
    ):
        with pytest.raises(fr.errors.ModelError, match=match):
            refused()


def test_masks_say_what_was_learnt():
    every, suffix = small_model(4, "insertion", masks="all"), small_model(4, "insertion", masks="suffix")
    assert every.distribution().nfe == 1
    assert suffix.distribution(nfe=2).unmask == "left-to-right"
    assert suffix.distribution(nfe=2, observed=torch.tensor([1, 0])).exact
    for refused in (
        lambda: every.distribution(nfe=2),
        lambda: every.distribution(observed=torch.tensor([1, 0])),
        lambda: suffix.distribution(nfe=2, unmask="confident"),
        lambda: suffix.distribution(fixed=torch.tensor([-1, 0, -1, -1])),
        lambda: fr.PermutationModel(4, "lehmer", "autoregressive", masks="all"),
        lambda: fr.PermutationModel(4, "lehmer", masks="none"),
    ):
        with pytest.raises(fr.errors.ModelError, match="masks"):
            refused()
