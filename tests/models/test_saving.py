"""Saved models come back exactly, and what does not fit is refused."""

import pytest
import torch
from torch import nn

import factorank as fr
from factorank.errors import ModelError
from factorank.sealed import read_sealed, write_sealed
from tests.models.naive import all_orders, small_model


@pytest.mark.parametrize("code", ["inline", "lehmer", "left-lehmer", "fisher-yates", "insertion"])
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_round_trip(code, objective, tmp_path):
    for context in (None, fr.ItemContext(9, 16), fr.TokenContext("abcdefghi", 16)):
        model = small_model(4, code, objective, context=context, dropout=0.1).train()
        model.save_pretrained(tmp_path / "model")
        again = fr.PermutationModel.from_pretrained(tmp_path / "model")
        assert not again.training
        assert again.config() == model.config()
        assert model.state_dict().keys() == again.state_dict().keys()
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
        items = None if context is None else torch.tensor([3, 1, 2, 7])
        unmask = "left-to-right" if objective == "masked" else None
        laws = [each.distribution(items, unmask=unmask) for each in (model, again)]
        assert torch.equal(laws[0].log_prob(all_orders(4)), laws[1].log_prob(all_orders(4)))
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


def test_reference_and_masks_are_kept(tmp_path):
    torch.manual_seed(0)
    model = fr.PermutationModel(
        4, "lehmer", width=8, depth=1, heads=1, reference=torch.tensor([2, 0, 3, 1]), masks="suffix"
    )
    model.save_pretrained(tmp_path)
    again = fr.PermutationModel.from_pretrained(tmp_path)
    assert again.reference.tolist() == [2, 0, 3, 1]
    assert again.masks == "suffix"
    values = [each.distribution(nfe=1).log_prob(all_orders(4)) for each in (model, again)]
    assert torch.equal(*values)


class Own(nn.Module):
    def __init__(self, size=3):
        super().__init__()
        self.map, self.size = nn.Linear(size, 16), size

    def forward(self, x):
        return self.map(x)

    def config(self):
        return {"size": self.size}


def test_contexts_of_the_users_own(tmp_path):
    model = small_model(4, "lehmer", context=Own(5))
    model.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="Own, which is not registered"):
        fr.PermutationModel.from_pretrained(tmp_path)
    known = torch.randn(2, 3, 5)
    law = model.distribution(known, nfe=1)
    again = fr.PermutationModel.from_pretrained(tmp_path, context=Own(5)).distribution(known, nfe=1)
    assert torch.equal(law.log_prob(torch.arange(4)), again.log_prob(torch.arange(4)))
    with pytest.raises(ModelError, match="do not fit"):
        fr.PermutationModel.from_pretrained(tmp_path, context=Own(4))
    fr.register_context("tests-own", Own)
    model.save_pretrained(tmp_path)
    rebuilt = fr.PermutationModel.from_pretrained(tmp_path)
    assert rebuilt.context.size == 5
    with pytest.raises(ModelError, match="already"):
        fr.register_context("items", Own)


def test_refusals(tmp_path):
    model = small_model(4, "lehmer")
    with pytest.raises(ModelError, match=r"config.json is missing"):
        fr.PermutationModel.from_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    config, files = read_sealed(tmp_path, "config.json", ModelError, "a model")

    def change(**values):
        changed = {name: value for name, value in {**config, **values}.items() if value != "drop"}
        write_sealed(tmp_path, "config.json", changed, files)

    for values, match in [
        ({"version": 99}, "its version is 99, and 2 is read"),
        ({"format": "other"}, "does not describe"),
        ({"heads": "drop"}, "lacks heads"),
        ({"code": "morse"}, "no code 'morse'"),
        ({"width": 32}, "do not fit"),
        ({"width": 10**9}, "do not fit"),
        ({"n": "4"}, "n: '4' is not int"),
        ({"heads": "many"}, "at least 1, not .many."),
        ({"reference": [[0, 1]]}, "reference: .* is not list"),
        ({"context": [1]}, "context: .* is not dict"),
        ({"context": {"name": "items", "options": {"items": -5, "width": 16}}}, "negative dimension"),
        ({"context": {"name": "nowhere", "options": {}}}, "no context encoder 'nowhere'"),
    ]:
        change(**values)
        with pytest.raises(fr.FactorankError, match=match):
            fr.PermutationModel.from_pretrained(tmp_path)
    change()
    with pytest.raises(ModelError, match="saved without a context"):
        fr.PermutationModel.from_pretrained(tmp_path, context=Own())
    weights = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights[:-7])
    with pytest.raises(ModelError, match="bytes and should have"):
        fr.PermutationModel.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="not JSON"):
        fr.PermutationModel.from_pretrained(tmp_path)


def test_every_changed_byte_is_noticed(tmp_path):
    model = small_model(3, "lehmer")
    model.save_pretrained(tmp_path)
    generator = torch.Generator().manual_seed(0)
    for name, tries in (("config.json", 200), ("model.safetensors", 200)):
        data = (tmp_path / name).read_bytes()
        for place in torch.randint(len(data), (tries,), generator=generator).tolist():
            (tmp_path / name).write_bytes(data[:place] + bytes([data[place] ^ 2]) + data[place + 1 :])
            if not data[place : place + 1].isspace():
                with pytest.raises(ModelError):
                    fr.PermutationModel.from_pretrained(tmp_path)
        (tmp_path / name).write_bytes(data)
    fr.PermutationModel.from_pretrained(tmp_path)


def test_models_loaded_in_inference_mode_can_be_trained_and_sampled(tmp_path):
    small_model(4, "lehmer").save_pretrained(tmp_path)
    with torch.inference_mode():
        model = fr.PermutationModel.from_pretrained(tmp_path)
        model.distribution(nfe=2).sample((3,))
    assert fr.is_permutation(model.distribution(nfe=2).sample((3,))).all()
    model.loss(torch.arange(4)[None]).sum().backward()


def test_weights_hold_the_reference_and_nothing_that_follows_from_it():
    names = small_model(4, "lehmer", reference=torch.tensor([2, 0, 3, 1])).state_dict()
    assert "reference" in names
    assert not {"place_of", "first_values", "certain"} & set(names)
