"""RandomGrades against a list of all grades."""

import itertools

import pytest
import torch

import factorank as fr
from tests.distributions.draws import all_orders


@pytest.mark.parametrize(("n", "grades"), [(1, 3), (3, 2), (3, 4), (4, 3)])
def test_probabilities_are_sums_over_all_grades(n, grades):
    logits = torch.randn(n, grades, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    probs, sums = logits.softmax(-1), {}
    for drawn in itertools.product(range(grades), repeat=n):
        order = tuple(sorted(range(n), key=lambda item: drawn[item]))  # Python's sort is stable
        chance = float(torch.stack([probs[item, grade] for item, grade in enumerate(drawn)]).prod())
        sums[order] = sums.get(order, 0.0) + chance
    wanted = torch.tensor([sums.get(tuple(order), 0.0) for order in all_orders(n).tolist()])
    torch.testing.assert_close(fr.RandomGrades(logits).log_prob(all_orders(n)).exp(), wanted.double())


def test_orders_that_need_more_grades_are_impossible():
    law = fr.RandomGrades(torch.zeros(3, 2))
    assert law.log_prob(torch.tensor([2, 1, 0])) == -torch.inf
    assert law.log_prob(torch.tensor([0, 1, 2])).exp() == pytest.approx(0.5)


def test_small_probabilities_do_not_vanish():
    """Two hundred items, each all but certain of a grade that is wrong for the order."""
    law = fr.RandomGrades(60.0 * torch.nn.functional.one_hot(torch.arange(199, -1, -1), 200).double())
    assert law.log_prob(torch.arange(200)).isfinite()
    assert law.log_prob(law.sorted_by_likely_grades) == pytest.approx(0, abs=1e-9)
    assert torch.equal(law.sorted_by_likely_grades, torch.arange(199, -1, -1))


def test_ties_keep_the_order_of_the_items():
    law = fr.RandomGrades(torch.tensor([[0.0, 50.0], [50.0, 0.0], [50.0, 0.0]]))
    assert law.sorted_by_likely_grades.tolist() == [1, 2, 0]
    assert law.mode.tolist() == [1, 2, 0]


def test_logits_have_grades():
    with pytest.raises(fr.DistributionError, match=r"takes logits \(\*batch, n, grades\), not \(3,\)"):
        fr.RandomGrades(torch.zeros(3))


def test_drawn_ties_keep_the_order_of_the_items():
    law = fr.RandomGrades(torch.zeros(300, 2, dtype=torch.float64))
    draws = law.sample((20,), generator=torch.Generator().manual_seed(0))
    assert law.log_prob(draws).isfinite().all()  # an order that steps down twice would be impossible
