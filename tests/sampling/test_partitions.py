"""Blocks of positions: as many as asked for, sizes that differ by at most one; entropy-bounded steps."""

import itertools
import math

import pytest
import torch

from factorank.errors import ModelError
from factorank.models.unmasking import SCHEDULES
from factorank.sampling.partitions import Blocks, block, entropies, listing, within_entropy
from tests.models.naive import (
    all_orders,
    assert_drawn_from,
    block_log_probs,
    first_certain,
    free_positions,
    partition_log_prob,
    small_model,
)


@pytest.mark.parametrize("length", range(12))
@pytest.mark.parametrize("nfe", range(1, 12))
def test_sizes(length, nfe):
    for schedule in SCHEDULES:
        blocks = Blocks(nfe, schedule)
        edges = [blocks.bounds(length, step) for step in range(nfe)]
        sizes = [stop - start for start, stop in edges]
        assert sum(sizes) == length
        assert min(sizes) >= (nfe <= length)
        if schedule == "equal":
            assert max(sizes) - min(sizes) <= 1
            assert sizes == sorted(sizes, reverse=True)
        elif nfe <= length:
            assert sizes[-1] == max(sizes)
            assert all(b - a >= -1 for a, b in itertools.pairwise(sizes))  # growing, but for rounding
        assert all(a[1] == b[0] for a, b in itertools.pairwise(edges))
        assert all(size <= blocks.widest(length, step) for step, size in enumerate(sizes))
        as_tensor = [blocks.bounds(torch.tensor([length]), step) for step in range(nfe)]
        assert [(int(start), int(stop)) for start, stop in as_tensor] == edges


def test_blocks_of_rows_with_different_lengths():
    free = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 0, 1, 1], [0, 0, 0, 0, 0]]).bool()
    for nfe, schedule in itertools.product(range(1, 6), SCHEDULES):
        listed = listing(free, 7, "random", torch.Generator().manual_seed(0))
        met = torch.zeros(7, 3, 5, dtype=torch.int64)
        for step in range(nfe):
            positions, inside = block(listed, free.sum(-1), Blocks(nfe, schedule), step)
            assert all(
                len(set(row)) == len(row) for row in positions.reshape(-1, positions.shape[-1]).tolist()
            )
            met.scatter_add_(-1, positions, inside.long())
        assert torch.equal(met, free.long().expand(7, 3, 5))


def test_random_listings_are_uniform():
    free = torch.tensor([[True, True, False, True]])
    listed = listing(free, 6000, "random", torch.Generator().manual_seed(0))[:, 0]
    assert (listed[:, 3] == 2).all()
    outcomes = torch.tensor(
        [[0, 1, 3, 2], [0, 3, 1, 2], [1, 0, 3, 2], [1, 3, 0, 2], [3, 0, 1, 2], [3, 1, 0, 2]]
    )
    assert_drawn_from(listed, outcomes, torch.full((6,), 1 / 6))


@pytest.mark.parametrize(
    ("unmask", "wanted"),
    [("left-to-right", [[0, 1, 2, 3], [1, 3, 0, 2]]), ("right-to-left", [[3, 2, 1, 0], [3, 1, 0, 2]])],
)
def test_fixed_listings(unmask, wanted):
    free = torch.tensor([[True, True, True, True], [False, True, False, True]])
    assert listing(free, 2, unmask).tolist() == [wanted, wanted]


def entropy_bound_steps(model, row, bound, unmask):
    """The rule by hand, for one code: the blocks, and the log-probability."""
    shown, blocks, total = [], [], 0.0
    while free_positions(model, shown):
        visible = torch.full_like(row, model.n)
        visible[shown] = row[shown]
        probs = model.network.head(model.network.hidden(visible[None], None, None))[0].softmax(-1).double()
        entropy = [-sum(float(p) * math.log(p) for p in line if p > 0) for line in probs]
        rest = free_positions(model, shown)
        if unmask == "confident":
            rest.sort(key=lambda i: (round(entropy[i] * 4096), i))
        elif unmask == "right-to-left":
            rest.reverse()
        taken = [rest[0]]
        for i in rest[1:]:
            each = [entropy[j] for j in [*taken, i]]
            if sum(each) - max(each) > bound:
                break
            taken.append(i)
        total += float(block_log_probs(model, row[None], shown)[0, taken].sum())
        shown, blocks = [*shown, *taken, *first_certain(model)], [*blocks, taken]
    return blocks, total


@pytest.mark.parametrize("unmask", ["confident", "left-to-right", "right-to-left"])
@pytest.mark.parametrize("bound", [0.0, 0.6, 1.2, 100.0])
@torch.no_grad()
def test_entropy_bound(unmask, bound):
    model, orders = small_model(4, "lehmer"), all_orders(4)
    law = model.distribution(entropy_bound=bound, unmask=unmask)
    assert law.nfe is None
    by_hand = [entropy_bound_steps(model, row, bound, unmask) for row in model.code.encode(orders)]
    values = law.log_prob(orders)
    torch.testing.assert_close(values, torch.tensor([total for _, total in by_hand]), atol=1e-4, rtol=1e-4)
    assert values.exp().sum().item() == pytest.approx(1, abs=1e-5)
    counts = [len(blocks) for blocks, _ in by_hand]
    assert law.nfe_of(orders).tolist() == counts
    # The last Lehmer value is certain, and takes no evaluation.
    assert {0.0: 3, 100.0: 1}.get(bound, counts[0]) == counts[0]
    samples, nfe = law.sample_with_nfe((1500,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(nfe, law.nfe_of(samples))
    assert_drawn_from(samples, orders, values.exp())
    assert law.mode.shape == (4,)


def test_entropy_bound_takes_at_least_one_position():
    logits = torch.zeros(2, 3, 4)
    remaining = torch.tensor([[True, True, True], [False, True, False]])
    positions, inside = within_entropy(logits, remaining, 0.0, "confident")
    assert positions[0, 0] == 0
    assert inside.tolist() == [[True, False, False], [True, False, False]]
    assert positions[1, 0] == 1
    torch.testing.assert_close(entropies(logits[0, 0]), torch.tensor(math.log(4)).double())
    positions, _ = within_entropy(torch.zeros(40, 4), torch.ones(40, dtype=torch.bool), 0.0, "confident")
    assert positions.tolist() == list(range(40))  # ties by position


def test_entropy_bound_refusals():
    model = small_model(4, "lehmer")
    with pytest.raises(ModelError, match="nfe=2 was given too"):
        model.distribution(entropy_bound=0.5, nfe=2)
    bad = [{"entropy_bound": value} for value in (-1.0, math.nan, "1", True)]
    for options in (*bad, {"entropy_bound": 0.5, "unmask": "random"}):
        with pytest.raises(ModelError, match="0 or more nats"):
            model.distribution(**options)


@pytest.mark.parametrize("code", ["lehmer", "left-lehmer", "fisher-yates", "insertion", "inline"])
def test_blocks_that_are_given(code):
    """Sizes, schedules and partitions: the law is that of the blocks, by definition."""
    model = small_model(4, code)
    orders, free = all_orders(4), free_positions(model)
    total = len(free)
    growing = {3: [1, 2], 4: [1, 3]}[total]
    for options, sizes in [
        ({"nfe": [1, total - 1]}, [1, total - 1]),
        ({"nfe": (total - 1, 1)}, [total - 1, 1]),
        ({"nfe": 2, "schedule": "growing"}, growing),
        ({"nfe": total + (code != "inline")}, [1] * total),
    ]:
        for unmask in ("left-to-right", "right-to-left"):
            rest = iter(free if unmask == "left-to-right" else free[::-1])
            blocks = [list(itertools.islice(rest, size)) for size in sizes]
            law = model.distribution(unmask=unmask, **options)
            assert law.nfe == len(sizes)
            truth = partition_log_prob(model, orders, blocks)
            torch.testing.assert_close(law.log_prob(orders).detach(), truth, atol=1e-5, rtol=1e-5)
            given = model.distribution(partition=blocks)
            torch.testing.assert_close(given.log_prob(orders).detach(), truth, atol=1e-5, rtol=1e-5)
    odd = [[free[1]], [free[2], free[0]], *([[free[3]]] if total == 4 else [])]
    law = model.distribution(partition=odd)
    values = partition_log_prob(model, orders, odd)
    torch.testing.assert_close(law.log_prob(orders).detach(), values, atol=1e-5, rtol=1e-5)
    if code != "inline":
        assert_drawn_from(
            law.sample((1500,), generator=torch.Generator().manual_seed(0)), orders, values.exp()
        )
        assert values.exp().sum().item() == pytest.approx(1, abs=1e-5)


def test_nothing_is_lost_without_the_certain_position():
    """Every conditional is exact: n - 1 evaluations are as good as n."""
    model, orders = small_model(4, "lehmer"), all_orders(4)
    for unmask in ("left-to-right", "right-to-left", "confident"):
        values = [model.distribution(nfe=nfe, unmask=unmask).log_prob(orders) for nfe in (3, 4)]
        torch.testing.assert_close(*values, rtol=0, atol=0)


def test_given_blocks_are_refused_where_they_do_not_fit():
    model = small_model(4, "lehmer")
    for options, message in [
        ({"nfe": [1, 3]}, "sum to the number of free positions, which is 3, not 4"),
        ({"nfe": [1, 2], "schedule": "growing"}, "schedule makes the sizes"),
        ({"schedule": "shrinking"}, "schedule is one of equal, growing, not 'shrinking'"),
        ({"partition": [[0], [1]]}, r"which are \[0, 1, 2\], not \[0, 1\]"),
        (
            {"partition": [[0], [1, 3]]},
            r"every free position.*which are \[.*\], not \[0, 1, 3\]",
        ),
        ({"partition": [[0], [1, 1, 2]]}, "each once"),
        ({"partition": [[0], [1, 4]]}, "each once"),
        ({"partition": [[0, 1], [], [2]]}, "each once"),
        ({"partition": 3}, "each once"),
        ({"partition": [[0], [1, 2]], "nfe": 2}, "stands alone"),
        ({"entropy_bound": 0.5, "schedule": "growing"}, "schedule='growing' was given too"),
        (
            {"nfe": [1, 1], "fixed": torch.tensor([[2, -1, -1, -1], [-1, -1, -1, -1]])},
            "not the same in every",
        ),
    ]:
        with pytest.raises(ModelError, match=message):
            model.distribution(**options)
    suffix = small_model(4, "lehmer", masks="suffix")
    suffix.distribution(partition=[[0, 1], [2]])
    with pytest.raises(ModelError, match="reveal left to right"):
        suffix.distribution(partition=[[1], [0, 2]])
    padded = small_model(4, "insertion").distribution(nfe=[1, 2], unmask="left-to-right")
    with pytest.raises(ModelError, match="not the same in every"):
        padded.log_prob(torch.tensor([[1, 0, 2, -1], [1, 0, 2, 3]]))
