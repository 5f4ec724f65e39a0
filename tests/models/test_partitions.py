"""Blocks of positions: as many as asked for, sizes that differ by at most one; entropy-bounded steps."""

import itertools
import math

import pytest
import torch

from factorank.errors import ModelError
from factorank.models.partitions import block, bounds, entropies, listing, within_entropy
from tests.models.naive import all_orders, assert_drawn_from, block_log_probs, small_model


@pytest.mark.parametrize("length", range(12))
@pytest.mark.parametrize("nfe", range(1, 12))
def test_sizes(length, nfe):
    edges = [bounds(length, nfe, step) for step in range(nfe)]
    sizes = [stop - start for start, stop in edges]
    assert sum(sizes) == length
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(edges))
    as_tensor = [bounds(torch.tensor([length]), nfe, step) for step in range(nfe)]
    assert [(int(start), int(stop)) for start, stop in as_tensor] == edges


def test_blocks_of_rows_with_different_lengths():
    free = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 0, 1, 1], [0, 0, 0, 0, 0]]).bool()
    for nfe in range(1, 6):
        listed = listing(free, 7, "random", torch.Generator().manual_seed(0))
        met = torch.zeros(7, 3, 5, dtype=torch.int64)
        for step in range(nfe):
            positions, inside = block(listed, free.sum(-1), nfe, step)
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
    while len(shown) < model.n:
        visible = torch.full_like(row, model.n)
        visible[shown] = row[shown]
        probs = model.network.head(model.network.hidden(visible[None], None, None))[0].softmax(-1).double()
        entropy = [-sum(float(p) * math.log(p) for p in line if p > 0) for line in probs]
        rest = [i for i in range(model.n) if i not in shown]
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
        shown, blocks = shown + taken, [*blocks, taken]
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
    # The last Lehmer value is certain, so comes along with the one before or after it.
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


def test_entropy_bound_refusals():
    model = small_model(4, "lehmer")
    with pytest.raises(ModelError, match="nfe=2 was given too"):
        model.distribution(entropy_bound=0.5, nfe=2)
    for options in ({"entropy_bound": -1.0}, {"entropy_bound": 0.5, "unmask": "random"}):
        with pytest.raises(ModelError, match="0 or more nats"):
            model.distribution(**options)
