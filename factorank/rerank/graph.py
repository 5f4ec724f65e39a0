"""A ranker as an ONNX file: items in, the most likely order out."""

import os
from typing import Any

import torch
from torch import Tensor, nn

from factorank.models import PermutationModel
from factorank.models.saving import Decision, Prediction
from factorank.onnx import export
from factorank.rerank.encoder import ItemList
from factorank.rerank.objective import rank_count, reads_ratings


def export_ranker(model: PermutationModel, path: str | os.PathLike[str]) -> None:
    """Write the model of a ranker as an ONNX file; needs ``factorank[onnx]``.

    Inputs: ``items (batch, n)``, numbers of items in the catalogue, observed ones first and best first,
    -1 after the end of a list; ``observed_count (batch,)``; and ``ratings (batch, n)``, the relevance of
    observed items, NaN for the others, where the ranker reads them. A masked model gives the most likely
    ``order (batch, n)``, as places in the list, and its ``log_prob``. An autoregressive one takes a
    ``code`` as well and gives ``logits``.
    """
    example: dict[str, Tensor] = {
        "items": torch.zeros((2, model.n), dtype=torch.int64),
        "observed_count": torch.ones(2, dtype=torch.int64),
    }
    if reads_ratings(model):
        example["ratings"] = torch.zeros((2, model.n))
    if model.causal:
        example["code"] = torch.full((2, model.n), -1)
    example = {name: tensor.to(model.device) for name, tensor in example.items()}
    outputs = ["logits"] if model.causal else ["order", "log_prob"]
    export(RankerGraph(model), path, (example,), inputs=list(example), outputs=outputs)


class RankerGraph(nn.Module):
    """The order of a list whose observed items come first, best first, and its log-probability."""

    def __init__(self, model: PermutationModel) -> None:
        super().__init__()
        self.graph = Prediction(model) if model.causal else Decision(model)

    def forward(self, given: dict[str, Tensor]) -> Any:
        model: Any = self.graph.model
        items, count = given["items"], given["observed_count"]
        context: Any = items
        if getattr(model.context, "ranks", None) is not None:
            context = ItemList(items, None, rank_count(count), given.get("ratings"))
        if model.causal:
            return self.graph(given["code"], context)
        if model.code.name != "insertion":
            return self.graph(None, context)
        places = torch.arange(model.n, device=items.device)
        # Items that are inserted in their order each go to the end: the value of position i is i.
        fixed = torch.where(places < count[:, None].clamp(min=1), places, -1)
        return self.graph(fixed, context)
