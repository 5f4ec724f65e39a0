"""The training loss is the law's, in the reference with the observed items sorted."""

import pytest
import torch

from factorank.rerank.lists import Lists, list_reference
from factorank.rerank.objective import WITHHELD, SortedPrefix
from factorank.rerank.place_probabilities import list_law
from factorank.rerank.training import preference_order
from tests.rerank.small import ranker, ratings


def some_lists(n, rows=40, shortest=3):
    generator = torch.Generator().manual_seed(0)
    items, relevance = ratings().draw(n, rows, generator, shortest=shortest)
    return items, preference_order(items, relevance, generator)


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
        reference = list_reference(lists, torch.arange(8) / 8, kind="sorted")
        law = list_law(model, lists, reference, None if model.causal else 1)
        place_of = reference.argsort(-1)
        renamed = torch.where(order < 0, -1, place_of.gather(-1, order.clamp(min=0)))
        torch.testing.assert_close(losses, -law.log_prob(renamed) * length / free)


def test_every_number_of_observed_items_is_as_likely():
    model = ranker("autoregressive").model
    drawn = SortedPrefix(model).noise(torch.Size([7000]), device="cpu", generator=torch.Generator())[0]
    counts = torch.bincount((drawn * 7).long(), minlength=7)
    assert counts.tolist() == pytest.approx([1000] * 7, abs=1)


def test_a_fifth_of_the_lists_is_learnt_without_ratings():
    training = SortedPrefix(ranker(told="ratings", steps=1).model)
    drawn = training.noise(torch.Size([4000]), device="cpu", generator=torch.Generator().manual_seed(0))
    assert float((drawn[-1] < WITHHELD).float().mean()) == pytest.approx(0.2, abs=0.03)
