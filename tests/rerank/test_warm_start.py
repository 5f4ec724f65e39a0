"""Rankers that go on from earlier ones: what is learnt stays with the items, new items and users join."""

from dataclasses import replace

import pytest
import torch

import factorank as fr
from factorank.cli import main
from factorank.data.ratings import Ratings, joined
from factorank.rerank.users import load_users, split_as, split_users
from factorank.rerank.warm_start import turned
from tests.rerank.small import SMALL, ratings


def renamed(table, shift):
    """The same ratings of items whose ids are larger by ``shift``."""
    return replace(table, ids=[name + shift for name in table.ids])


@pytest.fixture(scope="module")
def earlier():
    setting = fr.rerank.preset("small", **SMALL | {"steps": 40})
    return fr.Ranker.fit(ratings(), 0.2, setting=setting, device="cpu", lr=0.01)


def test_a_start_without_steps_answers_as_before(earlier):
    """At a learning rate of nothing the weights stay, and the same table gives the same features."""
    table = ratings()
    again = fr.Ranker.fit(table, 0.2, start=earlier, device="cpu", lr=1e-12)
    assert again.setting.steps == 10
    items, observed = list(range(100, 106)), [107, 103]
    first, second = (ranker.rerank(items, observed) for ranker in (earlier, again))
    assert first.items == second.items
    torch.testing.assert_close(first.place, second.place, rtol=0, atol=0.02)


def test_new_items_and_users_join(earlier):
    old, more = ratings(), ratings(users=40, seed=1)
    more = replace(renamed(more, 6), user_ids=[f"new {name}" for name in more.user_ids])
    table = joined(old, more)
    assert len(table) == 100
    assert table.ids == list(range(100, 118))
    ranker = fr.Ranker.fit(table, 0.2, start=earlier, device="cpu", lr=1e-12)
    weight = ranker.model.context.embedding.weight.detach()
    torch.testing.assert_close(weight[:12], earlier.model.context.embedding.weight[:12])
    assert float(weight[12:18].abs().max()) < 1e-6
    assert set(ranker.rerank([100, 117, 113]).items) == {100, 117, 113}
    trained = fr.Ranker.fit(table, 0.2, start=earlier, device="cpu", lr=0.01)
    assert float(trained.model.context.embedding.weight.detach()[12:18].abs().max()) > 1e-3


def test_what_does_not_go_together_is_refused(earlier):
    table = ratings()
    for change, message in (
        ({"width": 32}, "has another network: n = 8, width 16"),
        ({"rank": 3}, "factor 2"),
    ):
        setting = replace(earlier.setting, **change)
        with pytest.raises(fr.FactorankError, match=message):
            fr.Ranker.fit(table, 0.2, start=earlier, setting=setting, device="cpu")


def test_tables_join():
    old = Ratings.from_rows([1, 1, 2], [10, 20, 10], [5.0, 1.0, 3.0], [1, 2, 3], source="old")
    old = replace(old, titles=["ten", "twenty"], features=torch.tensor([[1.0], [2.0]]), feature_names=["x"])
    new = Ratings.from_rows([2, 3, 1], [10, 30, 20], [4.0, 2.0, 2.0], [9, 9, 1])
    new = replace(new, titles=["TEN", "TWENTY", "thirty"])
    both = joined(old, new)
    assert both.ids == [10, 20, 30]
    assert both.titles == ["ten", "twenty", "thirty"]
    assert both.features.tolist() == [[1.0], [2.0], [0.0]]
    # The later time counts: the new rating of 20 by user 1 is older than the one that is there.
    rows = zip(both.users.tolist(), both.items.tolist(), both.values.tolist(), strict=True)
    assert set(rows) == {(0, 0, 5.0), (0, 1, 1.0), (1, 0, 4.0), (2, 2, 2.0)}
    clicks = [Ratings.from_rows(["a"], ["x"], None, implicit=True) for _ in range(2)]
    torch.testing.assert_close(joined(*clicks).values, torch.tensor([3.0]).log2())
    with pytest.raises(fr.FactorankError, match="one of the tables holds choices"):
        joined(clicks[0], Ratings.from_rows(["a"], ["x"], [1.0]))
    with pytest.raises(fr.FactorankError, match="users of one table are numbers"):
        joined(old, Ratings.from_rows(["a"], [10], [1.0]))


def test_the_command_goes_on_from_a_run(tmp_path, capsys):
    table = ratings(users=80)
    rows = [
        (table.user_ids[user], table.ids[item], value)
        for user, item, value in zip(
            table.users.tolist(), table.items.tolist(), table.values.tolist(), strict=True
        )
    ]
    files = [tmp_path / "old.csv", tmp_path / "new.csv"]
    files[0].write_text("user,item,rating\n" + "".join(f"{u},{i},{v}\n" for u, i, v in rows))
    files[1].write_text("user,item,rating\n" + "".join(f"later {u},{i + 6},{v}\n" for u, i, v in rows[:300]))
    options = ["--min-item-ratings", "2", "--min-user-ratings", "5", "--n", "8", "--told", "order"]
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    assert main(["rerank", "fit", str(files[0]), *options, "--steps", "4", "--out", first]) == 0
    assert main(["rerank", "fit", str(files[1]), *options[:4], "--start", first, "--out", second]) == 0
    assert "training the earlier ranker" in capsys.readouterr().out
    before, after = load_users(first), load_users(second)
    assert set(after["validation"].user_ids) == set(before["validation"].user_ids)
    assert len(after["train"]) > len(before["train"])
    assert fr.Ranker.load(second).catalogue.index(117) is not None
    assert set(split_as(after["train"], before)) == {"train", "validation", "test"}


def test_one_item_that_stays_decides_how_factors_are_turned():
    found = turned(torch.tensor([[-1.0], [2.0]]), torch.tensor([[3.0]]), torch.tensor([0, -1]))
    assert found.tolist() == [[1.0], [-2.0]]


def test_users_are_split_the_same_each_time():
    one, other, third = split_users(ratings()), split_users(ratings(), 0), split_users(ratings(), 1)
    assert {name: part.user_ids for name, part in one.items()} == {
        name: part.user_ids for name, part in other.items()
    }
    assert any(one[name].user_ids != third[name].user_ids for name in one)
