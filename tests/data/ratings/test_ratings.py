"""Ratings as arrays: what is kept, how lists are drawn, and what is refused."""

import itertools
import math

import pytest
import torch
from scipy.stats import chisquare

from factorank.data.ratings import Ratings, load_ratings, order_of
from factorank.data.ratings.random_lists import random_places
from factorank.errors import RatingsError
from tests.data.ratings.rated import as_rows

ROWS = [  # user, item, rating: ann rated 4 items, bob 2, cat 3
    ("ann", "w", 5.0),
    ("cat", "x", 1.0),
    ("ann", "z", 2.0),
    ("bob", "x", 3.0),
    ("ann", "x", 4.0),
    ("cat", "w", 2.5),
    ("bob", "y", 0.5),
    ("cat", "z", 4.5),
    ("ann", "y", 1.0),
]


@pytest.fixture
def small() -> Ratings:
    return Ratings.from_rows(*zip(*ROWS, strict=True))


def test_rows_in_any_order_become_users_in_order(small):
    assert small.user_ids == ["ann", "bob", "cat"]
    assert small.ids == ["w", "x", "y", "z"]
    assert as_rows(small) == sorted(ROWS)
    assert small.starts.tolist() == [0, 4, 6, 9]
    assert (small.starts.dtype, small.items.dtype, small.values.dtype) == (
        torch.int64,
        torch.int32,
        torch.float32,
    )
    assert (len(small), small.item_count) == (3, 4)


def test_of_a_pair_rated_twice_the_last_row_counts():
    twice = Ratings.from_rows([7, 7, 7, 3], [1, 2, 1, 1], [1.0, 2.0, 3.0, 4.0])
    assert as_rows(twice) == [(3, 1, 4.0), (7, 1, 3.0), (7, 2, 2.0)]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_rating_that_is_no_number_is_refused_or_dropped(bad):
    columns = ["a", "b", "c"], ["x", "y", "x"], [1.0, bad, 2.0]
    with pytest.raises(RatingsError, match="row 2 has no rating"):
        Ratings.from_rows(*columns)
    kept = Ratings.from_rows(*columns, missing="drop")
    assert as_rows(kept) == [("a", "x", 1.0), ("c", "x", 2.0)]
    assert kept.ids == ["x"]  # an item without ratings is not in the catalogue
    with pytest.raises(RatingsError, match="'refuse' or 'drop'"):
        Ratings.from_rows(*columns, missing="ignore")


def test_what_cannot_be_ratings_is_refused():
    with pytest.raises(RatingsError, match="no ratings"):
        Ratings.from_rows([], [], [])
    with pytest.raises(RatingsError, match="one length"):
        Ratings.from_rows([1, 2], [1], [1.0])
    with pytest.raises(RatingsError, match="whole numbers or text"):
        Ratings.from_rows([0.5], [1], [1.0])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 5.0], [1.0, 5.0]),
        ([0.0, 1.0], [0.0, 1.0]),
        ([-1.0, 1.0], [0.0, 2.0]),
        ([0.0, 100.0], [0.0, 5.0]),
        ([-10.0, 10.0], [0.0, 5.0]),
    ],
)
def test_relevance_is_from_0_to_5(values, expected):
    ratings = Ratings.from_rows([1, 1], [1, 2], values)
    assert ratings.relevance(ratings.values).tolist() == pytest.approx(expected)


def test_filter_counts_items_over_all_users_and_users_over_the_items_kept(small):
    kept = small.filter(min_item_ratings=3, item_count=None, min_user_ratings=1)  # x has 3; w, y, z have 2
    assert as_rows(kept) == [row for row in sorted(ROWS) if row[1] == "x"]
    kept = small.filter(min_item_ratings=1, item_count=None, min_user_ratings=3)
    assert as_rows(kept) == [row for row in sorted(ROWS) if row[0] != "bob"]
    assert kept.ids == small.ids
    chosen = {
        tuple(small.filter(min_item_ratings=1, item_count=2, min_user_ratings=0, seed=s).ids)
        for s in range(60)
    }
    assert chosen == set(itertools.combinations("wxyz", 2))
    first, same = (
        small.filter(min_item_ratings=1, item_count=2, min_user_ratings=1, seed=5) for _ in range(2)
    )
    assert as_rows(first) == as_rows(same) == [row for row in sorted(ROWS) if row[1] in first.ids]
    with pytest.raises(RatingsError, match="most rated of 4 has 3"):
        small.filter(min_item_ratings=4)
    with pytest.raises(RatingsError, match="most active of 3 users rated 4"):
        small.filter(min_item_ratings=1, min_user_ratings=5)


def test_split_parts_the_users():
    users = torch.arange(30).repeat_interleave(3)
    ratings = Ratings.from_rows(users.tolist(), [1, 2, 3] * 30, [1.0] * 90)
    parts = ratings.split(validation=0.2, test=0.1, seed=3)
    assert [len(part) for part in parts] == [21, 6, 3]
    assert sorted(itertools.chain(*(part.user_ids for part in parts))) == list(range(30))
    assert sorted(itertools.chain(*map(as_rows, parts))) == as_rows(ratings)
    again = ratings.split(validation=0.2, test=0.1, seed=3)
    assert [part.user_ids for part in again] == [part.user_ids for part in parts]
    assert ratings.split(seed=4)[1].user_ids != ratings.split(seed=5)[1].user_ids
    with pytest.raises(RatingsError, match="none of 30 users"):
        ratings.split(validation=0.5, test=0.5)


def test_lists_hold_a_users_ratings_each_once(small):
    generator = torch.Generator().manual_seed(0)
    items, relevance = small.draw(3, 500, generator)
    rating_of = {(user, item): value for user, item, value in ROWS}
    users = {"ann": {"w", "x", "y", "z"}, "cat": {"w", "x", "z"}}
    counts = dict.fromkeys(users, 0)
    for row, values in zip(items.tolist(), relevance.tolist(), strict=True):
        names = [small.ids[i] for i in row]
        assert len(set(names)) == 3
        fits = [
            user
            for user in users
            if set(names) <= users[user] and [rating_of[user, n] for n in names] == values
        ]
        assert len(fits) == 1  # bob has two ratings, too few
        counts[fits[0]] += 1
    assert chisquare(list(counts.values())).pvalue > 0.01
    assert (items.dtype, relevance.dtype) == (torch.int64, torch.float32)


@pytest.mark.parametrize(("length", "n"), [(4, 4), (5, 3), (4, 2), (6, 1), (3, 3), (5, 4)])
def test_every_sequence_of_places_is_equally_likely(length, n, generator):
    places = random_places(torch.full((40_000,), length), n, generator)
    possible = list(itertools.permutations(range(length), n))
    drawn = [tuple(row) for row in places.tolist()]
    assert set(drawn) == set(possible)
    assert chisquare([drawn.count(each) for each in possible]).pvalue > 0.001


def test_places_follow_the_swaps_of_fisher_yates(monkeypatch):
    """All draws of every length, against the shuffle written out."""
    for length, n in [(4, 4), (5, 5), (6, 4), (7, 3)]:
        every = list(itertools.product(*(range(length - i) for i in range(n))))
        uniform = torch.tensor([[(d + 0.5) / (length - i) for i, d in enumerate(row)] for row in every])
        monkeypatch.setattr(torch, "rand", lambda *_, u=uniform, **__: u.double())
        got = random_places(torch.full((len(every),), length), n, None)
        monkeypatch.undo()
        for row, places in zip(every, got.tolist(), strict=True):
            cards = list(range(length))
            for i, d in enumerate(row):
                cards[i], cards[i + d] = cards[i + d], cards[i]
            assert places == cards[:n]


def test_lists_of_different_lengths_end_in_padding(small, generator):
    items, relevance = small.draw(4, 3000, generator, shortest=2)
    lengths = (items >= 0).sum(1)
    assert chisquare(torch.bincount(lengths)[2:].numpy()).pvalue > 0.01
    inside = torch.arange(4) < lengths[:, None]
    assert ((items >= 0) == inside).all()
    assert ((relevance >= 0) == inside).all()
    assert (relevance[~inside] == -1).all()
    for length in (2, 3, 4):
        rows = items[lengths == length][:, :length].sort(1).values
        assert (rows.diff(dim=1) > 0).all()
    with pytest.raises(RatingsError, match="shortest"):
        small.draw(3, 1, shortest=4)
    items, _ = small.draw(9, 2000, generator, shortest=3)  # nobody has more than 4
    assert torch.bincount((items >= 0).sum(1)).nonzero()[:, 0].tolist() == [3, 4]
    with pytest.raises(RatingsError, match="no user has 5 ratings"):
        small.draw(9, 2, shortest=5)


@pytest.mark.gpu
def test_a_captured_graph_draws_new_lists_at_every_replay(small):
    there, generator = small.to("cuda"), torch.Generator("cuda").manual_seed(0)
    there.draw(4, 256, generator, shortest=2)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        items, relevance = there.draw(4, 256, generator, shortest=2)
    graph.replay()
    first = items.clone()
    graph.replay()
    assert not torch.equal(items, first)
    rating_of = {(small.user_ids.index(u), small.ids.index(i)): value for u, i, value in ROWS}
    for row, values in zip(items.tolist(), relevance.tolist(), strict=True):
        pairs = [pair for pair in zip(row, values, strict=True) if pair[0] >= 0]
        assert any(all(rating_of.get((user, i)) == value for i, value in pairs) for user in range(3))


def test_too_few_ratings_for_a_list_are_refused(small, generator):
    with pytest.raises(RatingsError, match="no user has 5 ratings; the most active of 3 has 4"):
        small.draw(5, 2, generator)
    with pytest.raises(RatingsError, match="'bob' has 2 ratings, fewer than the n = 3"):
        small.lists(3, [0, 1], generator)
    with pytest.raises(RatingsError, match="no user 3"):
        small.lists(1, [3], generator)
    assert small.users_with(3).tolist() == [0, 2]


def test_lists_of_given_users_repeat_with_the_generator(small):
    first, same = (small.lists(3, torch.tensor([2, 0]), torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(first[0], same[0])
    assert torch.equal(first[1], same[1])
    assert set(first[0][0].tolist()) == {0, 1, 3}  # cat's


def test_order_is_best_first_with_ties_at_random_and_padding_last(generator):
    relevance = torch.tensor([2.0, 5.0, 2.0, 2.0, -1.0, -1.0]).expand(6000, 6)
    orders = order_of(relevance, generator)
    assert (orders[:, 0] == 1).all()
    assert (orders[:, 4:] == torch.tensor([4, 5])).all()
    drawn = [tuple(row) for row in orders[:, 1:4].tolist()]
    possible = list(itertools.permutations([0, 2, 3]))
    assert chisquare([drawn.count(each) for each in possible]).pvalue > 0.01


def test_saved_ratings_are_read_back(small, tmp_path):
    features = torch.rand(4, 2)
    full = Ratings(
        **{name: getattr(small, name) for name in ("starts", "items", "values", "ids", "user_ids", "source")},
        titles=["Wé", "X", "Y", "Z"],
        features=features,
        feature_names=["a", "b"],
        feature_scales=[(0.0, 1.0), (3.0, 0.5)],
        shift=10.0,
        scale=0.25,
    )
    for ratings in (small, full):
        file = tmp_path / "folder" / "ratings.safetensors"
        ratings.save(file)
        back = load_ratings(file)
        assert as_rows(back) == as_rows(ratings)
        for name in ("ids", "user_ids", "titles", "shift", "scale", "source"):
            assert getattr(back, name) == getattr(ratings, name)
        assert list(back.feature_names) == list(ratings.feature_names)
        assert [tuple(each) for each in back.feature_scales] == list(ratings.feature_scales)
    assert torch.equal(back.features, features)


def test_a_damaged_copy_is_refused(small, tmp_path):
    file = tmp_path / "ratings.safetensors"
    small.save(file)
    data = file.read_bytes()
    file.write_bytes(data[:-5])
    with pytest.raises(RatingsError, match="damaged"):
        Ratings.load(file)
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(2)}, file)
    with pytest.raises(RatingsError, match="no ratings of this library"):
        Ratings.load(file)
    with pytest.raises(RatingsError, match="no file"):
        Ratings.load(tmp_path / "none")


def test_one_user_and_one_item():
    single = Ratings.from_rows([1], [1], [3.0])
    items, relevance = single.draw(1, 4)
    assert items.tolist() == [[0]] * 4
    assert relevance.tolist() == [[3.0]] * 4
    assert single.draw(0, 4)[0].shape == (4, 0)
    assert order_of(relevance).tolist() == [[0]] * 4
