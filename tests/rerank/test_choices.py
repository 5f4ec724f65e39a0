"""Clicks and counts: read, counted, completed with items not chosen, learnt, and asked about."""

import random
from collections import Counter

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.data.ratings import as_ratings, load_ratings
from factorank.data.ratings.choices import chosen, with_unchosen
from factorank.rerank.first_stage import FirstStage
from tests.rerank.small import SMALL


def clicks(users=240, items=24, count=12, seed=0):
    """Users who click items of their own parity, some of them several times."""
    draw = random.Random(seed)
    rows = []
    for user in range(users):
        for _ in range(count):
            item = 2 * draw.randrange(items // 2) + (user % 2 if draw.random() < 0.97 else 1 - user % 2)
            rows.append((user, 100 + item, draw.randrange(10**6)))
    return rows


@pytest.fixture(scope="module")
def events():
    return clicks()


@pytest.fixture(scope="module")
def ranker(events):
    user, item, time = zip(*events, strict=True)
    table = as_ratings({"user": list(user), "item": list(item), "time": list(time)}, implicit=True)
    setting = fr.rerank.preset("small", **SMALL | {"told": None, "features": None, "n": 10, "steps": 250})
    return fr.Ranker.fit(table, 0.2, setting=setting, device="cpu", lr=0.01)


def test_rows_are_counted(tmp_path, events):
    counts = Counter((user, item) for user, item, _ in events)
    latest = {(user, item): time for user, item, time in sorted(events, key=lambda row: row[2])}
    lines = "".join(f"{user},{item},{time}\n" for user, item, time in events)
    named, bare = tmp_path / "named.csv", tmp_path / "bare.csv"
    named.write_text("session_user,item_id,ts\n" + lines)
    bare.write_text(lines)
    for table in (load_ratings(named, user="session_user", implicit=True), load_ratings(bare, implicit=True)):
        assert table.implicit
        assert table.repeated == 0
        assert len(table.items) == len(counts)
        rows = zip(
            table.users.tolist(),
            table.items.tolist(),
            table.values.tolist(),
            table.times.tolist(),
            strict=True,
        )
        for user, item, value, time in rows:
            pair = (table.user_ids[user], table.ids[item])
            assert value == pytest.approx(np.log2(1 + counts[pair]), rel=1e-6)
            assert time == latest[pair]
    again = tmp_path / "table.safetensors"
    table.save(again)
    assert load_ratings(again).implicit


def test_counts_are_added_up_and_zeros_stay(tmp_path):
    file = tmp_path / "plays.csv"
    file.write_text("user,track,plays,rating\n1,a,2,9\n1,a,1,9\n1,b,0,9\n2,b,1,9\n")
    table = load_ratings(file, implicit=True)
    assert table.values.tolist() == [2.0, 0.0, 1.0]
    assert with_unchosen(table).values.tolist() == [2.0, 0.0, 0.0, 1.0]  # user 1 has one not chosen already
    assert chosen(table).values.tolist() == [2.0, 1.0]
    file.write_text("user,track,plays\n1,a,-2\n")
    with pytest.raises(fr.FactorankError, match="counts are 0 or more, not -2"):
        load_ratings(file, implicit=True)
    file.write_text("user,track,when\n1,a,3\n")
    with pytest.raises(fr.FactorankError, match="or implicit if the rows are clicks"):
        load_ratings(file)


def test_items_not_chosen_are_drawn(events):
    user, item, time = zip(*events, strict=True)
    table = as_ratings({"user": list(user), "item": list(item), "time": list(time)}, implicit=True)
    whole = with_unchosen(table, seed=3)
    assert torch.equal(whole.items, with_unchosen(table, seed=3).items)
    assert torch.equal(chosen(whole).items, table.items)
    assert torch.equal(chosen(whole).times, table.times)
    for number in range(len(whole)):
        rows = slice(int(whole.starts[number]), int(whole.starts[number + 1]))
        items, values = whole.items[rows], whole.values[rows]
        assert bool((items.diff() > 0).all())
        count = int(table.lengths[number])
        assert int((values == 0).sum()) == min(count, table.item_count - count)
        assert set(whole.times[rows].tolist()) == set(
            chosen(whole).of_users(torch.tensor([number])).times.tolist()
        )
    explicit = as_ratings({"user": [1, 1], "item": [1, 2], "rating": [0.0, 3.0]})
    assert with_unchosen(explicit) is explicit
    assert chosen(explicit) is explicit


def test_popular_items_are_drawn_more_often():
    """With the square root of their counts: nine times the choices, three times the draws."""
    rows = [(user, 0) for user in range(1800)] + [(user, 1) for user in range(1800, 2000)]
    rows += [(user, 2) for user in range(2000, 22_000)]
    user, item = zip(*rows, strict=True)
    whole = with_unchosen(as_ratings({"user": list(user), "item": list(item)}, implicit=True))
    of_last = whole.items[(whole.values == 0) & (whole.users >= 2000)]
    share = float((of_last == 0).double().mean())
    assert share == pytest.approx(3 / 4, abs=4 * (3 / 16 / 20_000) ** 0.5)


def test_the_first_stage_reads_choices_alone(ranker, events):
    user, item, _ = zip(*events, strict=True)
    table = as_ratings({"user": list(user), "item": list(item)}, implicit=True)
    for name in ("weights", "counts"):
        both = (getattr(FirstStage.fit(part), name) for part in (table, with_unchosen(table)))
        torch.testing.assert_close(*both)


def test_clicks_say_what_a_user_wants(ranker, tmp_path):
    assert ranker.told == "choices"
    unseen = list(range(112, 120))
    for parity in (0, 1):
        clicked = [100 + 2 * i + parity for i in range(5)]
        answer = ranker.rerank(unseen, clicked, forbidden=clicked)
        alike, others = (
            [r.place for r in answer if (r.item % 2 == parity) is same] for same in (True, False)
        )
        assert sum(alike) / 4 < sum(others) / 4 - 0.5
        counted = ranker.rerank(unseen, dict.fromkeys(clicked, 1), forbidden=clicked)
        assert counted.items == answer.items
        arrays = ranker.rerank(np.array([clicked + unseen[:5]]), np.array([clicked]))
        torch.testing.assert_close(arrays[0].place, ranker.rerank(unseen[:5], clicked).place)
        best = ranker.recommend(clicked, 4).items
        assert [item % 2 for item in best] == [parity] * 4
    ranker.save(tmp_path)
    loaded = fr.Ranker.load(tmp_path)
    assert loaded.told == "choices"
    assert loaded.rerank(unseen, clicked).items == ranker.rerank(unseen, clicked).items


def test_clicks_have_no_order_and_are_counted(ranker):
    clicked = [100, 102, 105, 104]
    answer = ranker.rerank([110, 111, 113], clicked, forbidden=clicked)
    again = ranker.rerank([113, 110, 111], clicked[::-1], forbidden=clicked)
    assert again.items == answer.items
    torch.testing.assert_close(again.place, answer.place, rtol=0, atol=1e-4)
    twice = ranker.rerank([110, 111, 113], [100, 100, 102, 105, 104], forbidden=clicked)
    same = ranker.rerank([110, 111, 113], {100: 2, 102: 1, 105: 1, 104: 1}, forbidden=clicked)
    torch.testing.assert_close(twice.place, same.place)
    with pytest.raises(fr.FactorankError, match="rates 100 -1; the ratings trained on are 0 to inf"):
        ranker.rerank([110], {100: -1})
