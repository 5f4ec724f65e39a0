"""Saved models come back exactly, and what does not fit is refused."""

import json

import pytest
import torch
from torch import nn

import factorank as fr
from factorank.errors import ModelError
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
    config = json.loads((tmp_path / "config.json").read_text())

    def change(**values):
        changed = {name: value for name, value in {**config, **values}.items() if value != "drop"}
        (tmp_path / "config.json").write_text(json.dumps(changed))

    for values, match in [
        ({"version": 2}, "format version 2"),
        ({"format": "other"}, "does not describe"),
        ({"heads": "drop"}, "lacks heads"),
        ({"code": "morse"}, "no code 'morse'"),
        ({"width": 32}, "do not fit"),
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
    with pytest.raises(ModelError, match="cannot be read"):
        fr.PermutationModel.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="not JSON"):
        fr.PermutationModel.from_pretrained(tmp_path)
