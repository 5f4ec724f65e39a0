"""Permutation models on disk."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from factorank.errors import ModelError
from factorank.models.context import build_context
from factorank.models.saving import read_config, read_weights, write_module

if TYPE_CHECKING:
    from factorank.models.model import PermutationModel

FORMAT, VERSION = "factorank-model", 1
WANTED = ("n", "code", "objective", "width", "depth", "heads", "dropout", "context", "reference")


def save(model: "PermutationModel", folder: str | os.PathLike[str], dtype: torch.dtype | None = None) -> None:
    """Write ``model.safetensors`` and ``config.json``; see :meth:`PermutationModel.save_pretrained`."""
    write_module(model, folder, FORMAT, VERSION, model.config(), dtype)


def load(
    cls: "type[PermutationModel]", folder: str | os.PathLike[str], context: nn.Module | None
) -> "PermutationModel":
    """Read what :func:`save` wrote; see :meth:`PermutationModel.from_pretrained`."""
    folder = Path(folder)
    config = read_config(folder, FORMAT, VERSION, WANTED, "a factorank model")
    settings = {name: config[name] for name in WANTED} | {"masks": config.get("masks", "any")}
    if settings["context"] is not None:
        settings["context"] = build_context(settings["context"]) if context is None else context
    elif context is not None:
        raise ModelError(f"the model in {folder} was saved without a context encoder, but one was passed")
    if settings["reference"] is not None:
        settings["reference"] = torch.tensor(settings["reference"], dtype=torch.int64)
    model = cls(**settings)
    read_weights(model, folder)
    return model
