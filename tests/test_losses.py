"""The listwise losses against a loop over places, the law itself, and gradients by differences."""

import itertools

import pytest
import torch

import factorank as fr
from factorank.errors import FactorankError


def by_loop(scores, order, top_k=None, below=False):
    """One row, written as the definition."""
    items = [item for item in order.tolist() if item >= 0]
    others = [item for item in range(len(scores)) if item not in items] if below else []
    total = 0.0
    for place, item in enumerate(items[:top_k]):
        total = total + torch.logsumexp(scores[items[place:] + others], 0) - scores[item]
    return total


@pytest.mark.parametrize("top_k", [None, 1, 3])
@pytest.mark.parametrize("below", [False, True])
def test_it_is_the_sum_over_places_with_its_gradient(top_k, below):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(6, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    order = torch.stack([torch.randperm(5, generator=generator) for _ in range(6)])
    order[1, 3:] = -1
    order[2, 1:] = -1
    order[3, :] = -1
    loss = fr.losses.plackett_luce(scores, order, top_k, unranked="below" if below else "incomparable")
    rows = [by_loop(scores[row], order[row], top_k, below) for row in range(6)]
    wanted = torch.stack([torch.as_tensor(row, dtype=torch.float64) for row in rows])
    torch.testing.assert_close(loss, wanted)
    (ours,) = torch.autograd.grad(loss.sum(), scores)
    (theirs,) = torch.autograd.grad(wanted.sum(), scores)
    torch.testing.assert_close(ours, theirs)
    assert torch.autograd.gradcheck(lambda s: fr.losses.plackett_luce(s, order, top_k), scores)


def test_it_is_the_likelihood_of_the_law():
    orders = torch.tensor(list(itertools.permutations(range(4))))
    scores = torch.tensor([0.3, -1.0, 2.0, 0.0])
    loss = fr.losses.plackett_luce(scores, orders)
    torch.testing.assert_close(-loss, fr.PlackettLuce(scores).log_prob(orders))
    assert (-loss).exp().sum().item() == pytest.approx(1)
    assert loss.dtype == torch.float32


def test_scores_far_apart_stay_finite():
    scores = torch.tensor([[2000.0, 0.0, -2000.0], [0.0, 300.0, 600.0]], requires_grad=True)
    loss = fr.losses.plackett_luce(scores, torch.tensor([0, 1, 2]))
    torch.testing.assert_close(loss, torch.tensor([0.0, 900.0]))
    loss.sum().backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("wrong", [float("inf"), float("-inf"), float("nan")])
def test_scores_that_are_not_finite_are_refused(wrong):
    scores, order = torch.tensor([[0.0, 1.0, 2.0], [0.0, wrong, 2.0]]), torch.tensor([0, 2, 1])
    with pytest.raises(FactorankError, match=f"scores holds finite numbers alone, not {wrong}") as caught:
        fr.losses.plackett_luce(scores, order)
    assert caught.value.parameter == "scores"
    with pytest.raises(FactorankError, match="finite"):
        fr.losses.listwise_dpo(scores, torch.zeros(3), order)


def test_the_order_of_tied_items_does_not_matter():
    scores = torch.tensor([0.5, 1.0, -0.3, 0.0])
    ties = torch.tensor([False, True, False, False])
    one = fr.losses.plackett_luce(scores, torch.tensor([1, 0, 2, 3]), ties=ties)
    two = fr.losses.plackett_luce(scores, torch.tensor([1, 2, 0, 3]), ties=ties)
    torch.testing.assert_close(one, two)
    rest = torch.logsumexp(scores[[0, 2, 3]], 0)
    wanted = torch.logsumexp(scores, 0) - scores[1] + 2 * rest - scores[0] - scores[2]
    torch.testing.assert_close(one, wanted)


def test_ties_of_every_place():
    """Each way to tie six places: what is tied is chosen from all that is not before the first of them."""
    scores, order = torch.randn(6, generator=torch.Generator().manual_seed(2)).double(), torch.randperm(6)
    ways = list(itertools.product([False, True], repeat=5))
    ties = torch.tensor([[*way, False] for way in ways])
    wanted = []
    for way in ways:
        firsts = [0]
        for place, tied in enumerate(way, start=1):
            firsts.append(firsts[-1] if tied else place)
        left = torch.stack([torch.logsumexp(scores[order[first:]], 0) for first in firsts])
        wanted.append((left - scores[order]).sum())
    loss = fr.losses.plackett_luce(scores, order.expand(32, 6), ties=ties)
    torch.testing.assert_close(loss, torch.stack(wanted))


def test_compiled_and_refused():
    scores, order = torch.randn(3, 5), torch.tensor([[4, 1, 0, 2, 3], [1, 2, -1, -1, -1], [0, 1, 2, 3, 4]])
    compiled = torch.compile(fr.losses.plackett_luce, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(scores, order), fr.losses.plackett_luce(scores, order))
    with pytest.raises(FactorankError, match="top_k is at least 1, not 0"):
        fr.losses.plackett_luce(scores, order, 0)
    with pytest.raises(FactorankError, match="unranked is"):
        fr.losses.plackett_luce(scores, order, unranked="above")


def test_preferences_of_pairs_are_the_usual_dpo():
    ours, theirs = torch.randn(8, 2), torch.randn(8, 2)
    order = torch.tensor([1, 0]).expand(8, 2)
    lead = 0.1 * ((ours[:, 1] - theirs[:, 1]) - (ours[:, 0] - theirs[:, 0]))
    torch.testing.assert_close(
        fr.losses.listwise_dpo(ours, theirs, order), -torch.nn.functional.logsigmoid(lead)
    )


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([0, 1, 1], "each item once, but item 1 is there twice"),
        ([0, -1, 1], "-1 stands after the end"),
        ([0, 1, 3], r"items of 0\.\.2, and -1 after its end, but there is 3"),
        ([0.0, 1.0, 2.0], "an integer tensor"),
    ],
)
def test_orders_that_are_none_are_refused(order, message):
    with pytest.raises(FactorankError, match=message):
        fr.losses.plackett_luce(torch.zeros(3), torch.tensor([[0, 1, 2], order]))


def test_scores_are_no_whole_numbers():  # their loss was rounded to whole nats
    with pytest.raises(FactorankError, match="floating-point tensor, not torch"):
        fr.losses.plackett_luce(torch.tensor([0, 1]), torch.tensor([0, 1]))
