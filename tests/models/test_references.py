"""Laws relative to the reference of their model, that of their context, and both."""

import pytest
import torch

import factorank as fr
from tests.models.naive import all_orders, assert_drawn_from, small_model

REFERENCE = torch.tensor([2, 0, 3, 1])
ITEMS = torch.tensor([3, 1, 4, 0])
CODES = [("insertion", "order"), ("left-lehmer", "rank"), ("lehmer", "rank"), ("fisher-yates", "order")]
OBSERVING = CODES[:2]
every_objective = pytest.mark.parametrize("objective", ["masked", "autoregressive"])


def model_with_a_reference(code, target, objective="masked"):
    context = fr.ItemContext(9, 16)
    return small_model(4, code, objective, target=target, reference=REFERENCE, context=context)


def laws(model, **conditions):
    """Laws with an exact ``log_prob``."""
    ways = (
        [{}] if model.causal else [{"nfe": 1}, {"nfe": 2, "unmask": "confident"}, {"unmask": "left-to-right"}]
    )
    return [model.distribution(ITEMS, **conditions, **way) for way in ways]


@every_objective
@pytest.mark.parametrize(("code", "target"), CODES)
def test_the_reference_that_is_given_is_the_one_of_the_code(code, target, objective):
    model, listed = model_with_a_reference(code, target, objective), all_orders(4)
    for law, own in zip(laws(model), laws(model, reference=REFERENCE), strict=True):
        torch.testing.assert_close(law.log_prob(listed), own.log_prob(listed))
    given = torch.tensor([1, 3, 0, 2])
    start = next(model.distribution(ITEMS, reference=given).path())[1]  # the code of 0, 0, …: the reference
    first = next(small_model(4, code, objective, target=target, reference=given).distribution().path())[1]
    assert torch.equal(start, first)


@every_objective
@pytest.mark.parametrize(("code", "target"), CODES)
def test_marginals_and_conditions(code, target, objective):
    listed = all_orders(4)
    ranks = fr.inverse(listed)
    at = torch.nn.functional.one_hot(ranks, 4).float()
    for law in laws(model_with_a_reference(code, target, objective), reference=torch.tensor([1, 3, 0, 2])):
        probabilities = law.log_prob(listed).exp().detach()
        torch.testing.assert_close(law.marginals(), (probabilities[:, None, None] * at).sum(0))
        for observed in ([3, 1], [0, 2, 3]):
            agrees = (ranks[:, observed].diff(dim=-1) > 0).all(-1)
            expected = torch.where(agrees, probabilities, 0) / probabilities[agrees].sum()
            conditioned = law.condition(observed).log_prob(listed[agrees]).exp()
            torch.testing.assert_close(conditioned, expected[agrees], rtol=1e-3, atol=1e-5)


@every_objective
@pytest.mark.parametrize("observed", [[3, 1], [1, 3], [0, 2, 1], [2, 0, 1, 3]])
@pytest.mark.parametrize(("code", "target"), OBSERVING)
def test_observed_items_have_the_order_that_was_observed(code, target, observed, objective):
    model, listed = model_with_a_reference(code, target, objective), all_orders(4)
    agrees = (fr.inverse(listed)[:, observed].diff(dim=-1) > 0).all(-1)
    for law in laws(model, observed=observed):
        probabilities = law.log_prob(listed).exp().detach()
        assert (probabilities[~agrees] == 0).all()
        assert probabilities.sum().item() == pytest.approx(1, abs=1e-5)
        drawn = law.sample((2000,), generator=torch.Generator().manual_seed(0))
        assert_drawn_from(drawn, listed, probabilities)
    # They come first, in the order that the model's reference has them: one by one this is to condition.
    item = REFERENCE.tolist()
    first = [i for i in item if i in observed] + [i for i in item if i not in observed]
    whole = model.distribution(ITEMS, reference=first, unmask="left-to-right")
    given = model.distribution(ITEMS, observed=observed, unmask="left-to-right")
    share = torch.where(agrees, whole.log_prob(listed).exp(), 0)
    torch.testing.assert_close(given.log_prob(listed).exp(), share / share.sum(), rtol=1e-3, atol=1e-5)


def test_no_item_observed_is_the_law_itself():
    for code, target in OBSERVING:
        model, listed = model_with_a_reference(code, target), all_orders(4)
        for law, same in zip(laws(model), laws(model, observed=[]), strict=True):
            torch.testing.assert_close(law.log_prob(listed), same.log_prob(listed))


def test_without_an_exchangeable_context_the_first_of_the_reference_are_observed():
    model = small_model(4, "insertion", reference=REFERENCE)
    drawn = model.distribution(observed=[0, 2]).sample((100,))
    ranks = fr.inverse(drawn)
    assert (ranks[:, 0] < ranks[:, 2]).all()
    with pytest.raises(fr.ModelError, match="only its first items can be observed; row 0"):
        model.distribution(observed=[0, 1])
