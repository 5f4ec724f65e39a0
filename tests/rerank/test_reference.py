"""References that list the observed items first, at random or sorted."""

import pytest
import torch

from factorank.errors import ModelError
from factorank.rerank import Lists
from factorank.rerank.lists import list_reference, sorted_reference
from tests.rerank.small import ranker
from tests.rerank.test_objective import some_lists


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


@pytest.mark.parametrize("kind", ["sorted", "random"])
def test_the_observed_items_are_sorted_if_so_learnt(kind):
    lists = Lists(torch.tensor([[5, 6, 7, 8, 9, -1]]), torch.tensor([[3, 0, 4, -1]]))
    first = {tuple(list_reference(lists, torch.rand(6), kind=kind)[0, :3].tolist()) for _ in range(50)}
    assert first == {(3, 0, 4)} if kind == "sorted" else len(first) == 6
    for _ in range(10):
        assert list_reference(lists, torch.rand(6), kind=kind)[0, 5] == 5


def test_several_evaluations_need_references_at_random(masked):
    with pytest.raises(ModelError, match="needs a ranker with reference='random'"):
        masked.rerank([100, 103, 105], [103], nfe=2)
    answer = ranker(reference="random").rerank([100, 103, 105], [103], nfe=2)
    assert sorted(answer.items) == [100, 103, 105]
