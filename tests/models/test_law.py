"""The rest of a law: draws, modes, beams, entropies, paths, mean ranks."""

import itertools
import math

import pytest
import scipy.stats
import torch

import factorank as fr
from factorank.errors import ModelError
from factorank.models import autoregressive, chunks
from factorank.models.conditions import Conditions
from factorank.models.context import EncodedContext
from factorank.sampling.categorical import cumulative, draw, draw_many
from tests.models.naive import (
    all_orders,
    all_sequences,
    autoregressive_log_prob,
    random_probs,
    small_model,
)


def test_draws_follow_the_probabilities_and_avoid_excluded_values():
    generator = torch.Generator().manual_seed(0)
    logits = torch.tensor(
        [[-math.inf, 1.0, 0.0, -math.inf, -2.0, -math.inf], [0.0, -math.inf, -90.0, 0, 0, 0]]
    )
    for values in (
        draw_many(logits, 20_000, generator=generator),
        draw(logits.expand(20_000, 2, 6), generator=generator),
    ):
        assert values.shape == (20_000, 2)
        for row in range(2):
            counts, probs = values[:, row].bincount(minlength=6), logits[row].double().softmax(-1)
            assert (counts[probs < 1e-30] == 0).all()
            likely = probs > 1e-30
            assert (
                scipy.stats.chisquare(counts[likely], probs[likely] / probs[likely].sum() * 20_000).pvalue
                > 1e-4
            )


def test_edges_of_the_cumulative_table():
    """Whatever number of [0, 1) is looked up, no excluded value comes out."""
    logits = torch.tensor([-math.inf, 0.0, -math.inf, math.log(2), -math.inf])
    table = cumulative(logits)
    assert table.tolist() == [0, pytest.approx(1 / 3), pytest.approx(1 / 3), 1, 1]
    uniform = torch.tensor([0.0, float(table[1]), math.nextafter(1, 0)], dtype=torch.float64)
    assert torch.searchsorted(table, uniform, right=True).tolist() == [1, 3, 3]


def test_rare_values_are_drawn():
    """Probability 1e-9: 24-bit noise would never give it."""
    probs = torch.tensor([1 - 1e-9, 1e-9], dtype=torch.float64)
    table = cumulative(probs.log())
    assert float(1 - table[0]) == pytest.approx(1e-9, rel=1e-5)


@pytest.mark.parametrize("code", ["lehmer", "insertion", "inline"])
def test_beam_finds_the_likeliest(code):
    """A beam as wide as there are codes is exhaustive."""
    model = small_model(4, code, "autoregressive")
    law = model.distribution()
    orders, log_probs = law.beam(300)
    torch.testing.assert_close(law.log_prob(orders), log_probs)
    assert torch.equal(log_probs, log_probs.sort(descending=True).values)
    if code == "inline":
        assert orders.shape == (256, 4)
        assert log_probs.exp().sum().item() == pytest.approx(1, abs=1e-5)
    else:
        values = autoregressive_log_prob(model, all_orders(4))
        assert orders.shape == (24, 4)
        torch.testing.assert_close(log_probs, values.sort(descending=True).values)
        assert torch.equal(law.mode, all_orders(4)[values.argmax()])
    greedy = law.beam(1)[0]
    assert greedy.shape == (1, 4)
    with pytest.raises(ModelError, match="at least 1"):
        law.beam(0)


def test_the_beam_of_a_law():
    model = small_model(4, "lehmer", "autoregressive")
    for width in (1, 3, 24):
        law = model.distribution(beam=width)
        assert torch.equal(law.mode, model.distribution().beam(width)[0][0])
        assert law.beam()[0].shape == (width, 4)
    for width in (0, True, 1.5):
        with pytest.raises(ModelError, match="at least 1 order"):
            model.distribution(beam=width)


@pytest.mark.parametrize("code", ["lehmer", "insertion"])
@torch.no_grad()
def test_a_beam_over_blocks(code):
    """Wide enough it finds the most likely order; of width one it takes the likeliest value each time."""
    orders = all_orders(4)
    for seed in range(3):
        model = small_model(4, code, seed=seed)
        for options in (
            {"nfe": 2, "unmask": "left-to-right"},
            {"nfe": [1, 2], "unmask": "right-to-left", "temperature": 1.5},
            {"unmask": "confident"},
            {"entropy_bound": 0.8},
        ):
            values = model.distribution(**options).log_prob(orders)
            found = [model.distribution(beam=width, **options) for width in (None, 2, 24)]
            best = [law.log_prob(law.mode).item() for law in found]
            assert best[2] == pytest.approx(values.max().item(), abs=1e-5)
            assert best[0] <= best[2] + 1e-5
            assert fr.is_permutation(found[1].mode)
        greedy = model.distribution(nfe=2, unmask="left-to-right")
        assert torch.equal(greedy._beam(greedy.conditions, 1)[0, 0], model.code.encode(greedy.mode))
        random = model.distribution(nfe=2, beam=24)
        confident = model.distribution(nfe=2, unmask="confident", beam=24)
        assert torch.equal(random.mode, confident.mode)
    fixed = torch.tensor([[0, -1, -1, -1], [-1, -1, -1, -1], [0, 1, 0, 0]])
    law = model.distribution(fixed=fixed, nfe=2, unmask="left-to-right", beam=24)
    values = law.log_prob(orders[:, None])
    torch.testing.assert_close(law.log_prob(law.mode), values.amax(0))


def test_beam_with_context_and_fixed_values():
    for context, known in [
        (fr.ItemContext(9, 16), torch.randint(9, (3, 4))),
        (InFront(), torch.randn(3, 2, 16)),
    ]:
        model = small_model(4, "insertion", "autoregressive", context=context)
        law = model.distribution(known, fixed=torch.tensor([0, 1, -1, -1]))
        orders, log_probs = law.beam(12)
        assert orders.shape == (3, 12, 4)
        torch.testing.assert_close(law.log_prob(orders.movedim(1, 0)), log_probs.T)
        torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(3))
        law = model.distribution(known, fixed=torch.tensor([[0, 1, 2, -1], [0, 1, 2, 2], [0, -1, -1, -1]]))
        orders, log_probs = law.beam(6)
        assert (orders >= 0).all(-1).sum(-1).tolist() == [4, 1, 6]
        assert torch.equal((orders < 0).all(-1), log_probs == -math.inf)


class InFront(torch.nn.Module):
    def forward(self, x):
        return x, torch.tensor([[True, True], [True, False], [False, False]])[: len(x)]


@pytest.mark.parametrize("nfe", [1, 2, 4])
def test_greedy_mode(nfe):
    """At one NFE the mode is exact; otherwise it follows the blocks."""
    model, orders = small_model(4, "lehmer"), all_orders(4)
    law = model.distribution(nfe=nfe, unmask="left-to-right")
    if nfe == 1:
        assert torch.equal(law.mode, orders[law.log_prob(orders).argmax()])
        assert torch.equal(model.distribution(nfe=1).mode, law.mode)
    assert torch.equal(law.mode, law.mode)
    confident = model.distribution(nfe=nfe, unmask="confident").mode
    assert torch.equal(model.distribution(nfe=nfe).mode, confident)


def test_entropy():
    model, orders = small_model(4, "lehmer"), all_orders(4)
    for law in (
        model.distribution(nfe=1),
        model.distribution(nfe=3, unmask="confident"),
        small_model(4, "lehmer", "autoregressive").distribution(),
    ):
        values = law.log_prob(orders).detach()
        exact = -(values.exp() * values).sum().item()
        assert law.entropy().item() == pytest.approx(exact, abs=1e-5)
        estimate = law.entropy(samples=4000, generator=torch.Generator().manual_seed(0)).item()
        assert estimate == pytest.approx(exact, abs=0.1)
        again = law.estimate("entropy", samples=4000, generator=torch.Generator().manual_seed(0))
        assert again.value.item() == estimate
    fixed = model.distribution(nfe=1, fixed=torch.tensor([[1, 2, 0, 0], [-1, -1, -1, -1]]))
    assert fixed.entropy()[0] == 0
    random = model.distribution(nfe=2)
    assert random.estimates == {"entropy", "marginals", "mean_ranks"}
    exact = -(random_probs(model, orders, 2) * random_probs(model, orders, 2).log()).sum().item()
    assert random.entropy().item() == pytest.approx(exact, abs=0.15)
    inline = small_model(3, "inline")
    assert inline.distribution(nfe=1).entropy().item() > 0
    assert inline.distribution(nfe=1).estimates == frozenset()
    law, sequences = inline.distribution(unmask="left-to-right"), all_sequences(inline)
    assert "entropy" in law.estimates  # which its permutations alone do not give
    values = law.log_prob(sequences).detach()
    estimate = law.estimate("entropy", samples=4000, generator=torch.Generator().manual_seed(0))
    assert abs(estimate.value + (values.exp() * values).sum()) < 5 * estimate.error


@pytest.mark.parametrize("code", ["lehmer", "left-lehmer", "fisher-yates", "insertion"])
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_path(code, objective):
    """Always a permutation; what has been revealed stays; the end is what ``sample`` draws."""
    model = small_model(5, code, objective)
    law = model.distribution(nfe=3 if objective == "masked" else None)
    steps = list(law.path((20,), generator=torch.Generator().manual_seed(4)))
    assert len(steps) == (4 if objective == "masked" else 6)
    assert (steps[0][0] == -1).all()
    assert (steps[0][1] == torch.arange(5)).all()
    for (before, _), (after, order) in itertools.pairwise(steps):
        assert fr.is_permutation(order).all()
        assert ((before == -1) | (before == after)).all()
        assert (after >= 0).sum() > (before >= 0).sum()
    assert torch.equal(model.code.decode(steps[-1][0]), steps[-1][1])
    assert torch.equal(law.sample((20,), generator=torch.Generator().manual_seed(4)), steps[-1][1])


def test_mean_ranks():
    model = small_model(4, "lehmer")
    law = model.distribution(nfe=1)
    orders = all_orders(4)
    exact = law.log_prob(orders).exp() @ fr.inverse(orders).float()
    estimate = law.mean_ranks(samples=4000, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(estimate, exact.detach(), atol=0.1, rtol=0)
    with pytest.raises(ModelError, match="inline"):
        small_model(3, "inline").distribution(nfe=1).mean_ranks(samples=3)


def test_a_law_is_a_torch_distribution():
    model = small_model(4, "insertion", context=fr.ItemContext(9, 16))
    law = model.distribution(torch.randint(9, (3, 4)), nfe=1)
    assert isinstance(law, torch.distributions.Distribution)
    assert (law.batch_shape, law.event_shape) == ((3,), (4,))
    weights = torch.distributions.Categorical(torch.tensor([0.2, 0.3, 0.5]))
    mixture = torch.distributions.MixtureSameFamily(weights, law, validate_args=False)
    assert mixture.log_prob(all_orders(4)).exp().sum().item() == pytest.approx(1, abs=1e-5)
    assert mixture.sample((10,)).shape == (10, 4)
    assert repr(law) == "MaskedLaw(n=4, code='insertion', nfe=1, unmask='random', batch_shape=(3,))"
    inline = small_model(3, "inline").distribution(nfe=1)
    assert inline.support.check(torch.tensor([1, 1, 0]))
    assert not model.distribution(torch.randint(9, (4,))).support.check(torch.tensor([1, 1, 0, 2]))


def test_a_law_keeps_its_first_evaluation_until_a_weight_changes(monkeypatch):
    model, calls = small_model(3, "lehmer"), []
    real = model.network.hidden
    monkeypatch.setattr(model.network, "hidden", lambda *a: calls.append(1) or real(*a))
    law = model.distribution(nfe=1)
    for _ in range(3):
        law.sample((10,))
    assert len(calls) == 1
    with torch.no_grad():
        model.network.head.bias.copy_(torch.eye(3) * 100)
    assert (model.code.encode(law.sample((50,)))[:, 0] == 0).all()
    assert len(calls) == 2


def test_no_evaluation_is_spent_once_everything_is_revealed(monkeypatch):
    model = small_model(5, "lehmer")
    law = model.distribution(entropy_bound=1e9)
    calls, hidden = [], model.network.hidden
    monkeypatch.setattr(model.network, "hidden", lambda *given: calls.append(1) or hidden(*given))
    law.sample((3,), generator=torch.Generator().manual_seed(0))
    assert len(calls) == 1


def test_memory_is_that_of_draws_unless_orders_are_scored(monkeypatch):
    law = small_model(6, "lehmer", "autoregressive").distribution().expand((3,))
    monkeypatch.setitem(chunks.CHUNK, "cpu", 5000)
    cut = [[where for _, *where in chunks.chunks(law, 40, **options)] for options in ({}, {"drawn": True})]
    assert cut[0] == cut[1]
    assert len(cut[0]) < len(list(chunks.chunks(law, 40, drawn=False)))


def test_one_by_one_from_the_left_is_conditioned_in_closed_form():
    """The others are not: their first values, given the rest, are not those of the law."""
    model = small_model(5, "insertion")
    for options, closed in (
        ({"nfe": 4, "unmask": "left-to-right"}, True),
        ({"nfe": 2, "unmask": "left-to-right"}, False),
        ({"nfe": 4, "unmask": "right-to-left"}, False),
    ):
        given = model.distribution(**options).condition([1, 0])
        assert isinstance(given, type(model.distribution())) == closed
        orders = all_orders(5)
        joint = model.distribution(**options).log_prob(orders)
        agrees = orders.argsort(-1)[:, 1] < orders.argsort(-1)[:, 0]
        wanted = torch.where(agrees, joint - joint[agrees].logsumexp(0), -torch.inf)
        torch.testing.assert_close(given.log_prob(orders), wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("observed", [[0, 1], [2, 0]])
def test_a_model_with_a_reference_is_conditioned_on_any_items(observed):
    model = small_model(4, "insertion", "autoregressive", reference=torch.tensor([2, 0, 3, 1]))
    law, orders = model.distribution(), all_orders(4)
    places = orders.argsort(-1)
    agrees = places[:, observed[0]] < places[:, observed[1]]
    joint, given = law.log_prob(orders), law.condition(observed)
    wanted = torch.where(agrees, joint - joint[agrees].logsumexp(0), -torch.inf)
    torch.testing.assert_close(given.log_prob(orders), wanted, atol=1e-4, rtol=0)
    assert isinstance(given, type(law)) == (observed == [2, 0])


def test_what_is_exact_is_listed_up_to_seven_items():
    for n in (7, 8):
        law = small_model(n, "lehmer").distribution(nfe=2, unmask="left-to-right")
        assert law.enumerable == (n == 7)
        assert ("entropy" in law.estimates) == (n == 8)


def test_what_a_recording_of_one_law_serves(monkeypatch):
    """A context of full lists alone tells a law from others of its model; asked of a GPU, simulated here."""
    monkeypatch.setattr(chunks.dispatch, "records", lambda device, rows: True)
    tokens, present = torch.zeros(2, 4, 16), torch.ones(2, 4, dtype=torch.bool)
    full, padded = (EncodedContext(tokens, there, True) for there in (None, present))
    assert chunks.can_share(Conditions(2, full))
    assert not chunks.can_share(Conditions(2))
    assert not chunks.can_share(Conditions(2, padded))
    assert not chunks.can_share(Conditions(2, full, reference=torch.arange(4).expand(2, 4)))


def test_how_many_codes_a_search_keeps_unless_told():
    for objective, width in (("masked", 1), ("autoregressive", autoregressive.BEAM)):
        model = small_model(4, "lehmer", objective)
        assert model.distribution().beam_width == width
        assert model.distribution(beam=3).beam_width == 3


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_rows_that_are_drawn_apart_keep_their_conditions(objective, monkeypatch):
    model = small_model(4, "lehmer", objective)
    fixed = torch.tensor([[0, -1, -1, -1], [3, -1, -1, -1], [1, -1, -1, -1]])
    monkeypatch.setitem(chunks.CHUNK, "cpu", 1)
    law = model.distribution(fixed=fixed, **({"nfe": 2} if objective == "masked" else {}))
    parts = [(rows, draws) for _, rows, draws in chunks.chunks(law, 5)]
    assert parts == [(slice(row, row + 1), slice(draw, draw + 1)) for row in range(3) for draw in range(5)]
    for _ in range(2):
        drawn = law.sample((5,), generator=torch.Generator().manual_seed(0))
        assert torch.equal(model.code.encode(drawn)[..., 0], fixed[:, 0].expand(5, 3))


def test_samples_of_one_context_that_agree_are_evaluated_once(monkeypatch):
    """Three codes of the first value, whatever number of samples; rows of a batch are evaluated together."""
    model = small_model(3, "lehmer")
    sizes, hidden = [], model.network.hidden
    monkeypatch.setattr(
        model.network, "hidden", lambda code, *rest: sizes.append(len(code)) or hidden(code, *rest)
    )
    law = model.distribution(nfe=2, unmask="left-to-right")
    draws = law.sample((500,), generator=torch.Generator().manual_seed(0))
    assert sizes[1:] == [len(model.code.encode(draws)[:, 0].unique())]
    sizes.clear()
    law.expand((2,)).sample((50,))
    assert sizes[-1] == 50
