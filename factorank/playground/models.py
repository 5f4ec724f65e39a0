"""The models of the page as ONNX files, and what the page must know of them.

The network for photographs ships as a graph for every grid; its file is copied. The model of letters becomes
a graph from letters and a partly revealed code to the logits of its values.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from factorank.data.words import read_words
from factorank.errors import FactorankError
from factorank.files import write_whole
from factorank.jigsaw import PhotographModel
from factorank.jigsaw.photographs.assembly import FLOOR, WEIGHT
from factorank.jigsaw.photographs.model import WEIGHTS
from factorank.jigsaw.photographs.views import NATIVE
from factorank.models import PermutationModel
from factorank.onnx import export
from factorank.unscramble import load, usual_unmask
from factorank.unscramble.law import SHORTEST

LARGE = 1024
"""Weights of fewer values stay in single precision."""


def copy_photographs(folder: Path) -> dict[str, Any]:
    """Copy the shipped ``photographs.onnx``; what the page must know besides."""
    shutil.copy(WEIGHTS / "model.onnx", folder / "photographs.onnx")
    certainty = PhotographModel.load().certainty
    return {
        "largest": NATIVE,
        "weight": WEIGHT,
        "floor": FLOOR,
        "whole": certainty.of_whole,
        "each": certainty.of_piece,
    }


def export_letters(folder: Path, model: PermutationModel | None = None) -> dict[str, Any]:
    """Write ``letters.onnx`` and ``words.txt``; what the page must know besides."""
    model = load() if model is None else model
    known = model.code.name in ("insertion", "left-lehmer") and model.target == "order"
    if not known or model.objective != "masked":
        raise FactorankError(
            "the page draws masked insertion and left-Lehmer codes of orders, not"
            f" {model.objective} {model.code.name} codes"
        )
    letters = torch.full((2, model.n), -1)
    letters[:, :SHORTEST] = 0
    export(
        Values(model),
        folder / "letters.onnx",
        (letters, torch.full((2, model.n), -1)),
        inputs=["letters", "code"],
        outputs=["logits"],
    )
    halve(folder / "letters.onnx")
    (folder / "words.txt").write_text("\n".join(read_words()) + "\n", encoding="utf-8")
    return {
        "longest": model.n,
        "shortest": SHORTEST,
        "code": model.code.name,
        "unmask": usual_unmask(model),
        "alphabetical": getattr(model.context, "alphabetical", False),
    }


def halve(path: Path) -> None:
    """Store the large weights of a graph in half precision; the graph computes in single precision as before.

    The file is half as large. Weights saved in half precision keep their values, others are rounded.
    """
    import onnx
    from onnx import helper, numpy_helper

    proto = onnx.load(path)
    casts = []
    for weight in proto.graph.initializer:
        values = numpy_helper.to_array(weight)
        if values.dtype != np.float32 or values.size < LARGE:
            continue
        name = weight.name
        if np.abs(values).max() > np.finfo(np.float16).max:
            raise FactorankError(f"{name} holds values that are too large for half precision")
        weight.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}.half"))
        casts.append(helper.make_node("Cast", [weight.name], [name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *proto.graph.node]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    write_whole(path, proto.SerializeToString())


class Values(nn.Module):
    """The logits ``(batch, n, values)`` of a code whose masked positions are -1, given letters."""

    def __init__(self, model: PermutationModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, letters: Tensor, code: Tensor) -> Tensor:
        return self.model.logits(code, letters, check=False)
