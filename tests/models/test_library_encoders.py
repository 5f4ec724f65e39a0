"""Saved models load in a fresh interpreter, whatever their encoder: nothing is imported for them first."""

import importlib
import subprocess
import sys
from pathlib import Path

import torch

import factorank as fr
from factorank.data.ratings import Ratings
from factorank.jigsaw import HintedModel, new_model, setting
from factorank.models.context import LIBRARY

WEIGHTS = Path(fr.__file__).parent / "weights"


def test_every_name_of_the_library_is_a_module_and_a_class():
    for path in LIBRARY.values():
        module, _, kind = path.partition(":")
        assert issubclass(getattr(importlib.import_module(module), kind), torch.nn.Module)


def small_ranker():
    rows = [(f"user {user}", item, (item + user) % 5 + 1.0) for user in range(20) for item in range(8)]
    ratings = Ratings.from_rows(*map(list, zip(*rows, strict=True)))
    size = {"n": 6, "shortest": 4, "width": 16, "depth": 1, "heads": 2, "rank": 2, "steps": 2}
    chosen = fr.rerank.preset("small", **size, batch_size=8, held_out=8)
    return fr.Ranker.fit(ratings, 0.2, setting=chosen, device="cpu")


def test_every_saved_model_loads_in_a_fresh_interpreter(tmp_path):
    tiny = {"grid": 2, "width": 16, "depth": 1, "heads": 2}
    hinted = new_model(setting(**tiny))
    assert isinstance(hinted, HintedModel)
    hinted.save_pretrained(tmp_path / "hinted")
    new_model(setting(**tiny, encoder="convolution", hints=0.0)).save_pretrained(tmp_path / "convolution")
    small_ranker().save(tmp_path / "ranker")
    configs = [path for path in WEIGHTS.rglob("config.json") if '"factorank-model"' in path.read_text()]
    shipped = sorted(path.parent for path in configs)
    assert len(shipped) >= 5
    folders = [*shipped, tmp_path / "hinted", tmp_path / "convolution", tmp_path / "ranker"]
    program = """
import sys
import factorank
for folder in sys.argv[1:]:
    model = factorank.PermutationModel.from_pretrained(folder)
    assert type(model) is factorank.PermutationModel
    print(type(model.context).__name__)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, folders)], check=True, capture_output=True, text=True
    )
    kinds = done.stdout.split()
    assert len(kinds) == len(folders)
    assert set(kinds) == {"PieceEncoder", "PieceConvolution", "LetterContext", "FeatureContext"}
