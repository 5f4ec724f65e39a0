"""Laws of no list, of one item, and of codes that are known already; and the types of what they give."""

import pytest
import torch

import factorank as fr
from factorank.models.unmasking import UNMASK
from tests.models.naive import all_orders, small_model

NO_LISTS = torch.empty((0, 4), dtype=torch.int64)
every_objective = pytest.mark.parametrize("objective", ["masked", "autoregressive"])


LISTED = [{"entropy_bound": 0.2}, {"nfe": [1, 2]}, {"partition": [[1], [2, 0]]}]


@pytest.mark.parametrize("options", [*({"nfe": 3, "unmask": unmask} for unmask in UNMASK), *LISTED])
def test_a_batch_of_no_lists(options):
    model = small_model(4, "lehmer", context=fr.ItemContext(9, 16))
    for fixed in (None, NO_LISTS):
        law = model.distribution(NO_LISTS, fixed=fixed, **options)
        assert [order.shape for _, order in law.path((2,))] == [(2, 0, 4)] * len(list(law.path((2,))))
        assert law.sample((2,)).shape == law.stratified(2).shape == (2, 0, 4)
        assert law.mode.shape == (0, 4)
        assert law.nfe_of(law.sample((2,))).shape == (2, 0)


@pytest.mark.parametrize("unmask", UNMASK)
def test_what_is_known_takes_no_evaluation(unmask, monkeypatch):
    one, known = small_model(1, "lehmer"), small_model(4, "lehmer")
    for law in (
        one.distribution(unmask=unmask),
        known.distribution(fixed=[1, 0, 1, 0], unmask=unmask, nfe=2),
    ):
        monkeypatch.setattr(law.model.network, "hidden", None)
        order, nfe = law.sample_with_nfe((3,))
        assert nfe.tolist() == law.nfe_of(order).tolist() == [0, 0, 0]
        assert torch.equal(law.mode, order[0])
        assert (law.log_prob_bound(order) == 0).all()


@every_objective
def test_a_model_in_float64_gives_float64_of_no_orders_and_of_known_ones(objective):
    options = {"unmask": "left-to-right"} if objective == "masked" else {}
    for law in (
        small_model(4, "lehmer", objective).double().distribution(**options),
        small_model(4, "lehmer", objective).double().distribution(fixed=[1, 0, 1, 0], **options),
        small_model(1, "lehmer", objective).double().distribution(**options),
    ):
        for orders in (torch.empty((0, law.n), dtype=torch.int64), all_orders(law.n)):
            assert law.log_prob(orders).dtype == torch.float64


@every_objective
def test_a_model_in_float64_is_saved_and_loaded_as_such(objective, tmp_path):
    model, orders = small_model(4, "lehmer", objective).double(), all_orders(4)
    options = {"unmask": "left-to-right"} if objective == "masked" else {}
    model.save_pretrained(tmp_path / "wide")
    loaded = fr.PermutationModel.from_pretrained(tmp_path / "wide")
    log_prob = loaded.distribution(**options).log_prob(orders)
    assert log_prob.dtype == torch.float64
    assert torch.equal(log_prob, model.distribution(**options).log_prob(orders))
    model.save_pretrained(tmp_path / "half", dtype=torch.bfloat16)
    assert fr.PermutationModel.from_pretrained(tmp_path / "half").network.places.dtype == torch.float32


def test_noise_of_a_shape():
    model = small_model(4, "lehmer")
    strata, scores = model.noise((2, 3), device="cpu")
    assert (strata.shape, scores.shape) == ((2, 3), (2, 3, 4))
    with pytest.raises(fr.ModelError, match="a shape is a tuple of whole numbers"):
        model.noise((2, -3), device="cpu")
    with pytest.raises(fr.ModelError, match=r"such as \(16,\), not 16"):
        model.noise(16, device="cpu")  # type: ignore[arg-type]
