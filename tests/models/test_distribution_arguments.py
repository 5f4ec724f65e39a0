"""What PermutationModel.distribution takes: other libraries' numbers, lists; and what it refuses."""

import re

import numpy as np
import pytest
import torch

import factorank as fr
from tests.models.test_derivatives import small_model


@pytest.mark.parametrize("nfe", [np.int64(3), np.array([1, 2, 2]), torch.tensor([1, 2, 2]), (1, 2, 2)])
def test_whole_numbers_of_other_libraries(nfe):
    law = small_model(6, "lehmer").distribution(nfe=nfe, unmask="left-to-right")
    assert law.nfe == 3
    assert type(law.nfe) is int
    assert "np" not in repr(law)


@pytest.mark.parametrize("nfe", [np.float64(3), True, np.array([1.0, 4.0]), "3", [[1, 4]], -1, np.array(2.0)])
def test_what_is_no_number_of_evaluations(nfe):
    with pytest.raises(fr.ModelError, match="nfe is a whole number from 1 to 6"):
        small_model(6, "lehmer").distribution(nfe=nfe)


def test_lists_are_taken_as_tensors_are():
    model = small_model(5, "insertion").eval()
    order = fr.random_permutations(5, (7,), generator=torch.Generator().manual_seed(0))
    for name, values in {"observed": [1, 0], "fixed": [-1, 0, 2, -1, -1]}.items():
        both = [
            model.distribution(nfe=2, unmask="left-to-right", **{name: given}).log_prob(order)
            for given in (values, torch.tensor(values))
        ]
        assert torch.equal(*both)
    assert model.distribution(observed=[[1, 0], [0, 1]]).batch_shape == (2,)
    assert model.distribution(observed=[]).batch_shape == ()


@pytest.mark.parametrize("observed", [[1.0, 0.0], ["a"], [[1, 0], [1]], [None], [True, False], [2**70]])
def test_lists_of_something_else(observed):
    with pytest.raises(fr.ModelError, match="observed is"):
        small_model(5, "insertion").distribution(observed=observed)


@pytest.mark.parametrize("temperature", [1e-45, 1e-31, 1e31, 1e300, np.inf, np.nan, 0, -1])
def test_temperatures_that_logits_cannot_be_divided_by(temperature):
    with pytest.raises(fr.ModelError, match="temperature is a number above 0, from 1e-30 to 1e30"):
        small_model(4, "lehmer").distribution(temperature=temperature)


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
@pytest.mark.parametrize(("temperature", "certain"), [(1e-30, True), (1e30, False)])
def test_extreme_temperatures_are_their_limits(objective, temperature, certain):
    """The most likely value of every conditional, or all of them alike."""
    model = small_model(4, "lehmer", objective).eval()
    law = model.distribution(temperature=temperature, unmask="left-to-right")
    orders = fr.permutation_at(torch.arange(24), 4)
    probability = law.log_prob(orders).exp()
    torch.testing.assert_close(probability.sum(), torch.tensor(1.0))
    expected = torch.zeros(24) if certain else torch.full((24,), 1 / 24)
    if certain:
        expected[fr.index_of(law.sample())] = 1
    torch.testing.assert_close(probability, expected)


@pytest.mark.parametrize("blocks", [{"nfe": 1}, {"nfe": [4]}, {"partition": [[0, 1, 2, 3]]}])
def test_one_block_leaves_nothing_to_doubt(blocks):
    with pytest.raises(fr.ModelError, match=r"remask is for .* blocks of at least 2 evaluations"):
        small_model(5, "lehmer").distribution(**blocks, remask=1)


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_predictions_that_are_not_a_number_are_refused(objective):
    model = small_model(4, "lehmer", objective).eval()
    with torch.no_grad():
        model.network.places.fill_(torch.nan)
    law = model.distribution()
    uses = [law.sample, lambda: law.mode, lambda: law.stratified(3), lambda: model.distribution(beam=2).mode]
    for use in uses:
        with pytest.raises(fr.ModelError, match="the network predicts NaN"):
            use()
    assert model.loss(torch.arange(4)).isnan()  # training sees it as it is


class Doubled(fr.Code):
    """Two orders share a code."""

    name = "doubled"

    def sizes(self, n):
        return fr.Lehmer().sizes(n)

    def _encode(self, order):
        return torch.zeros_like(order)

    def _decode(self, code):
        return fr.Lehmer().decode(code)


def test_a_code_that_is_no_bijection_makes_no_model():
    with pytest.raises(fr.CodeError, match="doubled is not a bijection"):
        fr.PermutationModel(4, Doubled(), width=8, depth=1, heads=2)


@pytest.mark.parametrize(
    "partition",
    [
        np.arange(4).reshape(2, 2),
        torch.arange(4).view(2, 2),
        ((0, 1), (2, 3)),
        [range(2), range(2, 4)],
        [np.arange(2), torch.arange(2, 4)],
    ],
)
def test_partitions_of_other_libraries(partition):
    law = small_model(5, "lehmer").distribution(partition=partition)
    assert repr(law) == "MaskedLaw(n=5, code='lehmer', partition=[[0, 1], [2, 3]], batch_shape=())"
    assert law.nfe == 2


@pytest.mark.parametrize(
    ("partition", "match"),
    [
        ([], "lists blocks of different positions"),
        ([[0, 1], []], "lists blocks of different positions"),
        ([[0, True]], "lists blocks of different positions"),
        ([[0, 1]], r"which are \[0, 1, 2, 3\], not \[0, 1\]"),
        ([[0, 1, 2, 3, 4]], r"which are \[0, 1, 2, 3\], not \[0, 1, 2, 3, 4\]"),
    ],
)
def test_what_is_no_partition(partition, match):
    with pytest.raises(fr.ModelError, match=f"partition .*{match}"):
        small_model(5, "lehmer").distribution(partition=partition)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"temperature": np.float32(0.5), "top_p": np.float64(0.9)}, "temperature=0.5, top_p=0.9"),
        ({"entropy_bound": np.float32(0.25)}, "nfe=None, unmask='confident', entropy_bound=0.25"),
        ({"nfe": [1, 3], "remask": np.int64(2)}, r"nfe=\[1, 3\], unmask='random', remask=2"),
        ({"nfe": 2, "schedule": "growing"}, "nfe=2, unmask='random', schedule='growing'"),
        ({"beam": np.int64(3)}, "nfe=4"),
        ({"unmask": "left-to-right", "draft": "self", "ahead": np.int64(2)}, "unmask='left-to-right'"),
    ],
)
def test_what_was_asked_for_is_shown(options, shown):
    law = small_model(5, "lehmer").distribution(**options)
    assert re.search(shown, repr(law))
    assert fr.is_permutation(law.sample((3,))).all()


def test_what_would_do_nothing_is_refused():
    law = small_model(5, "lehmer").distribution(unmask="left-to-right")
    with pytest.raises(fr.ModelError, match="ahead says how far a draft goes, but none was given"):
        law.model.distribution(unmask="left-to-right", ahead=2)
    with pytest.raises(fr.ModelError, match="other is for 'kl_divergence', not for 'entropy'"):
        law.estimate("entropy", other=law)
    with pytest.raises(fr.ModelError, match="same code, target, n and reference"):
        law.model.distribution(unmask="left-to-right", draft=small_model(5, "lehmer", target="rank"))
