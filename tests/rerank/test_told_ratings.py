"""Rankers that read the ratings of observed items, and not their order alone."""

import pytest
import torch

import factorank as fr
from factorank.data.ratings import Ratings
from factorank.errors import FactorankError
from factorank.rerank import training as training_module
from factorank.rerank.evaluation import draw_lists
from factorank.rerank.lists import Lists, list_reference
from factorank.rerank.objective import WITHHELD, SortedPrefix
from factorank.rerank.place_probabilities import list_law
from factorank.rerank.training import preference_order
from tests.rerank.small import SMALL, ranker, ratings


def wide_ratings():
    """Ratings from -8 to 10: relevances are moved up, and scaled to 0..5."""
    table = ratings()
    items = [table.ids[i] for i in table.items.tolist()]
    return Ratings.from_rows(table.users.tolist(), items, (table.values * 4 - 10).tolist())


@pytest.fixture(scope="module")
def reading():
    return ranker(told="ratings", steps=20)


@pytest.mark.parametrize("withheld", [True, False])
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_the_loss_is_that_of_the_law_given_the_ratings(objective, withheld):
    model = ranker(objective, told="ratings", steps=20).model
    generator = torch.Generator().manual_seed(0)
    items, relevance = ratings().draw(8, 40, generator, shortest=3)
    order = preference_order(items, relevance, generator)
    length = (items >= 0).sum(-1)
    training = SortedPrefix(model).eval()
    chance = torch.full((40,), 0.99 * WITHHELD if withheld else WITHHELD)
    for r in (1, 2, 5):
        free = (length - r).clamp(min=1)
        strata = (free - 0.5) / (length - 1)
        losses = training.loss(order, (items, relevance), noise=(strata, torch.zeros(40, 8), chance))
        first = torch.where(order < (length - free)[:, None], order, -1)
        observed = first.gather(1, (first < 0).long().argsort(dim=1, stable=True))
        rated = relevance.gather(1, observed.clamp(min=0))
        lists = Lists(items, observed, relevance=None if withheld else rated)
        reference = list_reference(lists, torch.arange(8) / 8, kind="sorted")
        law = list_law(model, lists, reference, None if model.causal else 1)
        place_of = reference.argsort(-1)
        renamed = torch.where(order < 0, -1, place_of.gather(-1, order.clamp(min=0)))
        torch.testing.assert_close(losses, -law.log_prob(renamed) * length / free)


def test_some_lists_are_learnt_from_their_order_alone(reading):
    *_, chance = SortedPrefix(reading.model).noise(
        torch.Size([5000]), device="cpu", generator=torch.Generator()
    )
    assert (chance < WITHHELD).float().mean() == pytest.approx(WITHHELD, abs=0.03)
    assert len(SortedPrefix(ranker().model).noise(torch.Size([5]), device="cpu")) == 2


def test_a_rating_carries_what_an_order_of_one_does_not(reading):
    items = list(range(100, 107))
    none, one = reading.rerank(items, k=2), reading.rerank(items, [103], k=2)
    torch.testing.assert_close(none.top, one.top, rtol=0, atol=0)
    high, low = (reading.rerank(items, {103: rating}, k=2) for rating in (5.0, 1.0))
    assert (high.place.sort().values - low.place.sort().values).abs().max() > 1e-3
    order = ranker()
    with pytest.warns(fr.errors.RankerWarning, match="one rating, of 103, which changes nothing"):
        rated = order.rerank(items, {103: 5.0}, k=2)
    alone = order.rerank(items, k=2)
    torch.testing.assert_close(rated.top, alone.top, rtol=0, atol=0)


def test_users_with_and_without_ratings_in_one_batch(reading):
    items = [[100, 101, 102, 103, 104]] * 3
    observed = [{101: 2.0, 104: 4.5}, [104, 101], {103: 1.0}]
    together = reading.rerank(items, observed, k=2)
    for user in range(3):
        alone = reading.rerank(items[user], observed[user], k=2)
        assert together[user].items == alone.items
        torch.testing.assert_close(together[user].top, alone.top)
    assert (together[0].place.sort().values - together[1].place.sort().values).abs().max() > 1e-3


def test_ratings_are_given_in_the_units_of_the_table(tmp_path):
    wide = wide_ratings()
    setting = fr.rerank.preset("small", **SMALL | {"told": "ratings"})
    chosen = fr.Ranker.fit(wide, 0.2, setting=setting, device="cpu")
    assert chosen.units == (wide.shift, wide.scale) != (0.0, 1.0)
    mean, spread = chosen.model.context.rating_scale.tolist()
    relevance = wide.relevance(wide.values)
    assert (mean, spread) == pytest.approx((float(relevance.mean()), float(relevance.std())), rel=0.1)
    chosen.save(tmp_path)
    again = fr.Ranker.load(tmp_path)
    assert (again.units, again.told) == (chosen.units, "ratings")
    wanted, got = (either.rerank([100, 101, 102], {103: 9.0}, k=2) for either in (chosen, again))
    torch.testing.assert_close(wanted.top, got.top, rtol=0, atol=0)


def test_every_rating_reaches_the_token_of_its_item(monkeypatch):
    wide = wide_ratings()
    setting = fr.rerank.preset("small", **SMALL | {"told": "ratings"})
    chosen = fr.Ranker.fit(wide, 0.2, setting=setting, device="cpu")
    context, contexts = chosen.model.context, []
    forward = context.forward
    monkeypatch.setattr(context, "forward", lambda items: (contexts.append(items), forward(items))[1])
    observed = {103: 9.0, 101: -6.0, 107: 10.0}
    chosen.rerank([100, 102, 101], observed, references=1)
    ids, _, count, rated = contexts[0]
    assert int(count) == 3
    for place, item in enumerate(ids[0].tolist()):
        rating = observed.get(chosen.catalogue.ids[item]) if item >= 0 else None
        wanted = torch.nan if rating is None else float(wide.relevance(torch.tensor(rating)))
        assert rated[0, place].item() == pytest.approx(wanted, nan_ok=True)


def test_held_out_lists_come_with_their_ratings(monkeypatch):
    passed = {}
    train = training_module.train
    monkeypatch.setattr(
        training_module, "train", lambda *rest, **options: passed.update(options) or train(*rest, **options)
    )
    table = ratings()
    held = Ratings.from_rows(
        ["a"] * 8, list(range(100, 108)), [float(i) for i in range(8)]
    )  # up to 7: scaled
    fr.Ranker.fit(table, held, setting=fr.rerank.preset("small", **SMALL | {"told": "ratings"}), device="cpu")
    order, (items, relevance) = passed["held_out"]
    assert order.shape == items.shape == relevance.shape
    assert relevance.max() == 7  # in the units of the ratings that are trained on


def test_evaluation_shows_the_ratings_of_the_observed(reading):
    lists = draw_lists(ratings(), 6, lists=20)
    read = lists.for_ranker(reading, 3)
    for row in range(len(lists.items)):
        wanted = lists.relevance[row, :3].sort(descending=True).values
        torch.testing.assert_close(read.relevance[row], wanted)
    assert lists.for_ranker(ranker(), 3).relevance is None


def test_one_rating_reveals_the_taste_of_a_user():
    """Half of the users like even items, half odd ones: a rating can reveal which, an order of one cannot."""
    rows = [
        (user, item, 5.0 if (user + item) % 2 else 1.0 + 0.1 * item)
        for user in range(80)
        for item in range(8)
    ]
    data = Ratings.from_rows(*map(list, zip(*rows, strict=True)))
    setting = fr.rerank.preset("small", **SMALL | {"told": "ratings", "steps": 150, "rank": 1})
    chosen = fr.Ranker.fit(data, 0.1, setting=setting, device="cpu", lr=0.01)
    for rating, liked in ((5.0, 0), (1.0, 1)):
        answer = chosen.rerank(list(range(1, 7)), {0: rating}, references=16)
        assert {item % 2 for item in [item for item in answer.items if item][:3]} == {liked}


@pytest.mark.parametrize(
    ("rating", "message"),
    [
        (50.0, "the list rates 103 50; the ratings trained on are 0.5 to 5"),
        (float("inf"), "rates 103 inf; a rating is a finite number"),
        (None, "rates 103 None, which is no number"),
        ("good", "rates 103 'good', which is no number"),
    ],
)
def test_ratings_that_are_none(reading, rating, message):
    with pytest.raises(FactorankError, match=message):
        reading.rerank([100, 101], {103: rating})


def test_ties_of_one_user_change_nothing_for_another(reading):
    items = [[100, 101, 102, 103, 104]] * 2
    for ties in ({101: 3.0, 104: 3.0}, {101: 2.0, 104: 3.0}):
        both = reading.rerank(items, [{100: 4.0}, ties])
        assert both[0].items == reading.rerank(items[0], {100: 4.0}).items


def test_a_table_of_equal_ratings():
    rows = [(user, item, 3.0) for user in range(40) for item in range(8)]
    data = Ratings.from_rows(*map(list, zip(*rows, strict=True)))
    setting = fr.rerank.preset("small", **SMALL | {"told": "ratings", "features": ("mean", "taste")})
    answer = fr.Ranker.fit(data, 0.1, setting=setting, device="cpu").rerank([0, 1, 2], {3: 3.0})
    assert answer.place.isfinite().all()


def test_refusals():
    with pytest.raises(FactorankError, match=r"'taste' is for rankers .* not 'insertion' and 'random'"):
        ranker(features=("mean", "taste"), reference="random")
    with pytest.raises(FactorankError, match="told is 'order' or 'ratings', not 'stars'"):
        ranker(told="stars")
    with pytest.raises(FactorankError, match="reference='sorted', not 'insertion' and 'random'"):
        ranker(told="ratings", reference="random")


@pytest.mark.gpu
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_the_captured_step_learns_the_same(objective):
    chosen = SMALL | {"told": "ratings", "features": ("mean", "taste"), "objective": objective, "steps": 30}
    setting = fr.rerank.preset("small", **chosen, dropout=0.0, item_dropout=0.0)
    captured, eager = (
        fr.Ranker.fit(ratings(), 0.2, setting=setting, device="cuda", capture=capture).model
        for capture in (True, False)
    )
    for parameter, other in zip(captured.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=1e-2, atol=1e-3)
