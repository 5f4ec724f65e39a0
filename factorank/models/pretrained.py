"""Models on disk: weights as safetensors beside a small JSON that says what they are. Nothing is pickled."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from factorank.errors import ModelError
from factorank.files import write_json, write_whole
from factorank.models.context import build_context

if TYPE_CHECKING:
    from factorank.models.model import PermutationModel

FORMAT = "factorank-model"
VERSION = 1


def save(model: "PermutationModel", folder: str | os.PathLike[str]) -> None:
    """Write ``model.safetensors`` and ``config.json``; see :meth:`PermutationModel.save_pretrained`."""
    from safetensors.torch import save as to_bytes

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write_whole(folder / "model.safetensors", to_bytes(weights, {"format": "pt"}))
    write_json(folder / "config.json", {"format": FORMAT, "version": VERSION, **model.config()})


def load(
    cls: "type[PermutationModel]", folder: str | os.PathLike[str], context: nn.Module | None
) -> "PermutationModel":
    """Read what :func:`save` wrote; see :meth:`PermutationModel.from_pretrained`."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(folder)
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise ModelError(f"there is no saved model in {folder}: {name} is missing")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{folder / 'config.json'} is not JSON: {error}") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelError(f"{folder / 'config.json'} does not describe a factorank model")
    if config.get("version") != VERSION:
        raise ModelError(
            f"{folder} holds a model of format version {config.get('version')!r};"
            f" this factorank reads {VERSION}"
        )
    wanted = ["n", "code", "objective", "width", "depth", "heads", "dropout", "context", "reference"]
    if missing := [name for name in wanted if name not in config]:
        raise ModelError(f"{folder / 'config.json'} lacks {', '.join(missing)}")
    settings = {name: config[name] for name in wanted} | {"masks": config.get("masks", "any")}
    if settings["context"] is not None:
        settings["context"] = build_context(settings["context"]) if context is None else context
    elif context is not None:
        raise ModelError(f"the model in {folder} was saved without a context encoder, but one was passed")
    if settings["reference"] is not None:
        settings["reference"] = torch.tensor(settings["reference"], dtype=torch.int64)
    model = cls(**settings)
    try:
        weights = load_file(folder / "model.safetensors")
    except SafetensorError as error:
        raise ModelError(f"{folder / 'model.safetensors'} cannot be read: {error}") from None
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ModelError(f"the weights in {folder} do not fit its config.json: {error}") from None
    return model.eval()
