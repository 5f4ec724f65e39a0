"""The training loss is the law's, in the reference with the observed items sorted."""

import pytest
import torch

from factorank.rerank.lists import Lists
from factorank.rerank.objective import SortedPrefix, sorted_reference
from factorank.rerank.place_probabilities import list_law, reference_of
from factorank.rerank.training import preference_order
from tests.rerank.small import ranker, ratings


def some_lists(n, rows=40, shortest=3):
    generator = torch.Generator().manual_seed(0)
    items, relevance = ratings().draw(n, rows, generator, shortest=shortest)
    return items, preference_order(items, relevance, generator)


def test_sorting_the_observed_items_changes_the_reference_only():
    items, order = some_lists(8)
    length = (items >= 0).sum(-1)
    for r in (0, 1, 3, 8):
        observed = length.clamp(max=r)
        reference, new_order = sorted_reference(order, observed)
        new_items = items.gather(-1, reference)
        for row in range(len(items)):
            end, here = int(length[row]), int(observed[row])
            before, after = (
                i[row][o[row, :end]].tolist() for i, o in ((items, order), (new_items, new_order))
            )
            assert before == after  # the same items, best first
            assert new_items[row, here:].tolist() == items[row, here:].tolist()
            assert new_items[row, :here].tolist() == [i for i in before if i in items[row, :here].tolist()]
            assert new_order[row, end:].tolist() == [-1] * (8 - end)


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_the_loss_is_that_of_the_law_given_the_observed_items(objective):
    model = ranker(objective, steps=20).model
    items, order = some_lists(8)
    length = (items >= 0).sum(-1)
    training = SortedPrefix(model).eval()
    for r in (1, 2, 5):
        free = (length - r).clamp(min=1)
        strata = (free - 0.5) / (length - 1)  # what chooses that many free items
        losses = training.loss(order, items, noise=(strata, torch.zeros(len(items), 8)))
        observed = [[p for p in row if 0 <= p < end - f] for row, end, f in
                    zip(order.tolist(), length.tolist(), free.tolist(), strict=True)]  # fmt: skip
        padded = torch.tensor([row + [-1] * (8 - len(row)) for row in observed])
        lists = Lists(items, padded)
        reference = reference_of(lists, torch.arange(8) / 8, kind="sorted")
        law = list_law(model, lists, reference, None if model.causal else 1)
        place_of = reference.argsort(-1)
        renamed = torch.where(order < 0, -1, place_of.gather(-1, order.clamp(min=0)))
        torch.testing.assert_close(losses, -law.log_prob(renamed) * length / free)


def test_every_number_of_observed_items_is_as_likely():
    model = ranker("autoregressive").model
    drawn = SortedPrefix(model).noise(torch.Size([7000]), device="cpu", generator=torch.Generator())[0]
    counts = torch.bincount((drawn * 7).long(), minlength=7)
    assert counts.tolist() == pytest.approx([1000] * 7, abs=1)


@pytest.mark.parametrize("kind", ["sorted", "random"])
def test_the_observed_items_are_sorted_if_so_learnt(kind):
    lists = Lists(torch.tensor([[5, 6, 7, 8, 9, -1]]), torch.tensor([[3, 0, 4, -1]]))
    first = {tuple(reference_of(lists, torch.rand(6), kind=kind)[0, :3].tolist()) for _ in range(50)}
    assert first == {(3, 0, 4)} if kind == "sorted" else len(first) == 6
    for _ in range(10):
        assert reference_of(lists, torch.rand(6), kind=kind)[0, 5] == 5
