"""Trained models on disk: those that ship with the package, and what is saved."""

import json

import pytest
import torch

import factorank as fr
from factorank.jigsaw import (
    load,
    new_model,
    setting,
    setting_of,
    shipped_models,
)
from tests.jigsaw.small import SMALL


def test_shipped_models_are_found_by_grid(tmp_path):
    for grid in (3, 2):
        new_model(setting(**(SMALL | {"grid": grid}))).save_pretrained(tmp_path / f"{grid}x{grid}")
    (tmp_path / "4x4").mkdir()
    assert list(shipped_models(tmp_path)) == [2, 3]
    assert load(3, tmp_path / "3x3").n == 9
    with pytest.raises(
        fr.FactorankError,
        match=r"for a grid of 9×9 \(there are 2×2, 3×3, 4×4, 5×5\); `factorank jigsaw train",
    ):
        load(9)
    chosen = setting_of(load(2, tmp_path / "2x2"))
    assert (chosen.grid, chosen.code, chosen.encoder, chosen.masks) == (2, "lehmer", "mlp+neighbours", "all")


def test_weights_are_saved_in_half_the_size_and_read_back(tmp_path):
    model = new_model(setting(**SMALL))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.save_pretrained(tmp_path / "whole")
    model.save_pretrained(tmp_path / "half", torch.bfloat16)
    sizes = [(tmp_path / way / "model.safetensors").stat().st_size for way in ("whole", "half")]
    assert sizes[1] < 0.6 * sizes[0]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    loaded = load(2, tmp_path / "half")
    for name, tensor in loaded.state_dict().items():
        assert tensor.dtype == before[name].dtype
        torch.testing.assert_close(tensor, before[name], rtol=0.01, atol=1e-3)


def test_the_models_that_come_with_the_package_say_how_they_were_trained():
    for grid, folder in shipped_models().items():
        training, chosen = json.loads((folder / "training.json").read_text()), setting_of(load(grid), folder)
        assert chosen.label == "shipped"
        assert (chosen.grid, chosen.seed, chosen.steps) == (grid, training["seed"], training["steps"])
        assert f"--optimizer {chosen.optimizer} --lr {chosen.lr}" in training["command"]
        assert new_model(chosen).config() == load(grid).config()
