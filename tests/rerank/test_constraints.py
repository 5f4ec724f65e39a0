"""Pinned, hidden and grouped items: exact by enumeration, and the observed order still holds."""

import itertools
import random

import pytest
import torch

import factorank as fr
from factorank.errors import RankerWarning
from factorank.rerank.constraints import diverse_order, group_numbers, shown_places
from factorank.rerank.keys import seeds_of
from factorank.rerank.lists import Lists, list_reference
from factorank.rerank.place_probabilities import list_law, place_probabilities
from factorank.rerank.reranking import Query


def test_places_among_the_shown_are_those_of_all_orders():
    """By enumeration of all values of the code."""
    generator = torch.Generator().manual_seed(0)
    n, hidden = 5, torch.tensor([[True, False, True, False, False], [False, False, False, False, True]])
    values = torch.rand(2, n, n, generator=generator).tril()
    values = values / values.sum(-1, keepdim=True)
    expected = torch.zeros(2, n, n)
    for code in itertools.product(*(range(k + 1) for k in range(n))):
        order: list[int] = []
        for item, slot in enumerate(code):
            order.insert(slot, item)
        for row in range(2):
            probability = values[row, range(n), list(code)].prod()
            for place, item in enumerate([item for item in order if not hidden[row, item]]):
                expected[row, item, place] += probability
    torch.testing.assert_close(shown_places(values, hidden), expected)


def test_probabilities_of_places_are_never_negative():
    """Not even where the values of a position add up to a little more than one."""
    values = torch.rand(500, 6, 6, generator=torch.Generator().manual_seed(0)).tril()
    values = values / values.sum(-1, keepdim=True)
    assert (values.cumsum(-1) > 1).any()
    assert (shown_places(values, torch.zeros(500, 6, dtype=torch.bool)) >= 0).all()


def test_groups_are_numbered_by_their_labels(masked):
    names, groups = [[103, "item 1"], [101]], {101: "a", 102: "b", 103: "b"}
    assert group_numbers(masked.catalogue, names, groups, 3).tolist() == [[1, 0, -1], [0, -1, -1]]
    assert group_numbers(masked.catalogue, [[104, 102]], groups, 2).tolist() == [[-1, 1]]
    assert group_numbers(masked.catalogue, [[104, "new"]], {"new": 1}, 2).tolist() == [[-1, 0]]


def test_groups_of_what_is_no_item_are_warned_of(masked):
    with pytest.warns(fr.errors.RankerWarning, match="groups hold 'zz' and 1 more, no item of the ranker"):
        masked.rerank([100, 101], groups={"zz": 1, 100: 1, 777: 2}, k=2)


@pytest.mark.parametrize(("pins", "hides"), [({4: 1}, ()), ({4: 2, 1: 0}, ()), ({}, (0,)), ({5: 3}, (2,))])
def test_places_are_those_of_the_law_given_the_conditions(masked, pins, hides):
    """Against all 720 orders of the law in one reference, those that break a condition left out."""
    items = torch.tensor([[3, 7, 1, 9, 0, 5, -1, -1]])
    observed = torch.tensor([[2, 0, 3]])
    pinned = torch.tensor([[pins.get(place, -1) for place in range(8)]])
    hidden = torch.tensor([[place in hides for place in range(8)]])
    lists = Lists(items, observed, pinned=pinned, hidden=hidden)
    seed = torch.Generator().manual_seed(5)
    query = Query(references=1, nfe=1)
    [(_, among)] = place_probabilities(masked.model, lists, query, kind=masked.reference, generator=seed)
    key = seeds_of(torch.Generator().manual_seed(5), 1)
    reference = list_reference(lists, lists.keys(key)[:, 0], kind=masked.reference)
    law = list_law(masked.model, lists, reference)
    orders = torch.tensor(list(itertools.permutations(range(6))))
    padded = torch.nn.functional.pad(orders, (0, 2), value=-1)
    log_prob = law.log_prob(padded[:, None])[:, 0].exp()
    expected, total = torch.zeros(8, 8), 0.0
    for order, probability in zip(orders.tolist(), log_prob.tolist(), strict=True):
        named = [int(reference[0, item]) for item in order]
        shown = [place for place in named if place not in hides]
        if any(shown.index(item) != place for item, place in pins.items()):
            continue
        total += probability
        for place, item in enumerate([item for item in shown if item not in pins]):
            expected[item, place] += probability
    kept = [place for place in range(6) if place not in hides and place not in pins]
    torch.testing.assert_close(among[0, kept], expected[kept] / total, rtol=1e-4, atol=1e-5)


def test_answers_hold_every_condition(masked):
    items, observed = list(range(100, 107)), [105, 101, 103]
    answer = masked.rerank(items, observed, pinned={104: 0, "item 9": 4}, forbidden=[101, 100], k=3)
    assert answer.items[0] == 104
    assert answer.items[4] == "item 9"
    assert set(answer.items) == {102, 103, 104, 105, 106, "item 9"}
    assert answer.items.index(105) < answer.items.index(103)
    assert answer.place[0] == 0
    assert answer.place[4] == 4
    assert answer.top[0] == 1
    assert float(answer.top.sum()) == pytest.approx(3, abs=1e-4)
    assert float(answer.place.sum()) == pytest.approx(15, abs=1e-3)
    free = masked.rerank(items, observed, k=3)
    assert masked.rerank(items, observed, pinned={}, forbidden=[], k=3).items == free.items


def test_conditions_of_each_list(masked):
    lists, observed = [[100, 101, 102], [103, 104]], [[105], [106, 107]]
    answers = masked.rerank(lists, observed, pinned=[{102: 0}, {}], forbidden=[[105], [106, 107]])
    assert [sorted(answer.items) for answer in answers] == [[100, 101, 102], [103, 104]]
    assert answers[0].items[0] == 102
    alone = masked.rerank(lists[1], observed[1], forbidden=[106, 107])
    assert alone.items == answers[1].items
    torch.testing.assert_close(alone.place, answers[1].place[:2])


def test_modes_and_samples_hold_them_too(masked):
    for by in ("mode", "sample", "place"):
        answer = masked.rerank(list(range(100, 106)), [103, 101], pinned={105: 1}, forbidden=[103], by=by)
        assert answer.items[1] == 105
        assert sorted(answer.items) == [100, 101, 102, 104, 105]


def test_long_lists_hold_them_too(masked):
    items = list(range(100, 112))
    answer = masked.rerank(items, [103, 101, 110], pinned={105: 0, 106: 10}, forbidden=[101])
    assert len(answer) == 11
    assert 101 not in answer.items
    assert answer.items[0] == 105
    assert answer.items[10] == 106
    assert answer.items.index(103) < answer.items.index(110)
    assert float(answer.place.sum()) == pytest.approx(55, rel=1e-3)


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"pinned": {100: 3}}, "pins 100 to place 3; its places are 0 to 2"),
        ({"pinned": {100: -1}}, "pins 100 to -1; places are whole numbers from 0 on"),
        ({"pinned": {100: 0, 101: 0}}, "pins 100 and 101 to place 0"),
        ({"pinned": {100: 0, "item 0": 1}}, "pins an item twice"),
        ({"pinned": {102: 0}}, "pins 102, which is observed"),
        ({"pinned": {100: 0}, "forbidden": [100]}, "pins 100, which is forbidden"),
        ({"pinned": {999: 0}}, "holds 999, which the ranker has not been trained on"),
        ({"forbidden": [999]}, "forbidden of the list holds 999"),
        ({"pinned": [{}, {}]}, "1 lists of items but 2 of pinned"),
        ({"groups": ["a"]}, "groups map items to labels"),
        ({"groups": {}, "most": 0}, "most is at least 1, not 0"),
    ],
)
def test_what_cannot_be_is_refused(masked, conditions, message):
    with pytest.raises(fr.FactorankError, match=message):
        masked.rerank([100, 101], [102], **conditions)


def test_no_group_has_more_than_its_share(masked):
    items, observed = list(range(100, 108)), [106, 100, 104]
    groups = {item: item % 3 for item in items if item != 107}
    for most in (1, 2):
        answer = masked.rerank(items, observed, groups=groups, most=most, k=4)
        first = [groups.get(item) for item in answer.items[:4]]
        assert all(first.count(label) <= most for label in range(3))
        assert sorted(answer.items) == items
        assert [item for item in answer.items if item in observed] == observed
    recommended = masked.recommend([100, 101], k=3, groups={item: item % 3 for item in range(100, 112)})
    assert {item % 3 for item in recommended.items} == {0, 1, 2}


def test_the_best_diverse_list_is_found(masked):
    """Greedy choice against all orders, by the expected DCG of the first k."""
    items = list(range(100, 106))
    groups = {100: "a", 101: "a", 102: "a", 103: "b", 104: "b", 105: "c"}
    gain = {ranked.item: -ranked.place for ranked in masked.rerank(items, by="place")}
    chosen = masked.rerank(items, groups=groups, most=1, k=3, by="place").items[:3]

    def dcg(order):
        return sum((gain[item] + 10) / (place + 2) for place, item in enumerate(order))

    allowed = [o for o in itertools.permutations(items, 3) if len({groups[item] for item in o}) == 3]
    assert dcg(chosen) == pytest.approx(max(map(dcg, allowed)))


def test_groups_are_as_asked_wherever_an_order_allows_it():
    """Against all orders: the observed items of a list may come one after the other, or not at all."""
    draw, possible = random.Random(0), 0
    for _ in range(300):
        n, most = draw.randint(3, 5), draw.randint(1, 2)
        k, group = draw.randint(2, n), [draw.choice([-1, 0, 0, 1]) for _ in range(n)]
        order = draw.sample(range(n), n)
        observed = [item for item in order if draw.random() < 0.5]
        free = [item for item in order if item not in observed]
        pins = {free[0]: order.index(free[0])} if free and draw.random() < 0.5 else {}

        def allowed(other, n=n, k=k, most=most, group=group, observed=observed, pins=pins):
            first = [group[item] for item in other[:k] if group[item] >= 0]
            kept = [item for item in other if item in observed] == observed
            return (
                kept
                and all(other[place] == item for item, place in pins.items())
                and all(first.count(label) <= most for label in first)
            )

        if not any(map(allowed, itertools.permutations(range(n)))):
            continue
        possible += 1
        lists = Lists(torch.arange(n)[None], torch.tensor([observed], dtype=torch.int64).view(1, -1))
        lists.group = torch.tensor([group])
        lists.pinned = torch.tensor([[pins.get(item, -1) for item in range(n)]]) if pins else None
        assert allowed(diverse_order(torch.tensor([order]), lists, k, most)[0].tolist())
    assert possible > 150


def test_too_few_groups_are_warned_of(masked):
    with pytest.warns(RankerWarning, match="too few groups for 1 of each among the first 3"):
        answer = masked.rerank([100, 101, 102], groups=dict.fromkeys((100, 101, 102), "a"), k=3)
    assert sorted(answer.items) == [100, 101, 102]


def test_autoregressive_rankers_have_no_exact_conditions(causal):
    with pytest.raises(fr.FactorankError, match="need a masked ranker"):
        causal.rerank([100, 101], pinned={100: 0})
