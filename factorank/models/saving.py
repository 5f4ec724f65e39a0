"""Models on disk: ``model.safetensors`` beside a ``config.json`` that says what it is; no pickles."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from factorank.codes import Code
from factorank.errors import ModelError
from factorank.files import write_json, write_whole
from factorank.models.context import build_context, context_config

FORMAT, VERSION = "factorank-model", 1
SETTINGS = ("n", "code", "objective", "width", "depth", "heads", "dropout", "context", "reference", "masks")


class SavedModel(nn.Module):
    """What a :class:`PermutationModel` is on disk."""

    n: int
    code: Code
    objective: str
    width: int
    depth: int
    heads: int
    dropout: float
    context: nn.Module | None
    reference: Tensor | None
    masks: str
    target: str

    def config(self) -> dict[str, Any]:
        """What rebuilds the model, without its weights, as JSON can hold it."""
        settings: dict[str, Any] = {name: getattr(self, name) for name in SETTINGS}
        return settings | {
            "code": self.code.name,
            "context": None if self.context is None else context_config(self.context),
            "reference": None if self.reference is None else self.reference.tolist(),
            "target": self.target,
        }

    def save_pretrained(self, folder: str | os.PathLike[str], dtype: torch.dtype | None = None) -> None:
        """Write ``model.safetensors`` and ``config.json`` into a folder, each whole or not at all.

        ``dtype`` is that of the weights in the file, such as ``torch.bfloat16`` for half the size; the
        model's own by default.
        """
        write_module(self, folder, FORMAT, VERSION, self.config(), dtype)

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], context: nn.Module | None = None) -> Self:
        """Load what :meth:`save_pretrained` wrote, in eval mode.

        A context encoder is rebuilt from its registered name, or passed in.
        """
        folder = Path(folder)
        config = read_config(folder, FORMAT, VERSION, SETTINGS, "a factorank model")
        settings = {name: config[name] for name in SETTINGS} | {"target": config.get("target", "order")}
        if settings["context"] is not None:
            settings["context"] = build_context(settings["context"]) if context is None else context
        elif context is not None:
            raise ModelError(f"the model in {folder} was saved without a context encoder, but one was passed")
        if settings["reference"] is not None:
            settings["reference"] = torch.tensor(settings["reference"], dtype=torch.int64)
        model = cls(**settings)
        read_weights(model, folder)
        return model


def write_module(
    module: nn.Module,
    folder: str | os.PathLike[str],
    kind: str,
    version: int,
    config: dict[str, Any],
    dtype: torch.dtype | None = None,
) -> None:
    """Write both files, each whole or not at all.

    ``kind`` is the format's name. ``dtype`` is that of the floating-point weights in the file, by default the
    module's own. A module that reads them keeps its own.
    """
    from safetensors.torch import save as serialized

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
    if dtype is not None:
        weights = {name: w.to(dtype) if w.is_floating_point() else w for name, w in weights.items()}
    write_whole(folder / "model.safetensors", serialized(weights, {"format": "pt"}))
    write_json(folder / "config.json", {"format": kind, "version": version, **config})


def read_config(
    folder: Path, kind: str, version: int, wanted: Iterable[str], what: str, file: str = "config.json"
) -> dict[str, Any]:
    """What ``config.json`` says, without format and version; refused unless it has all that is wanted.

    ``what`` is what messages call a module of that kind.
    """
    for name in (file, "model.safetensors"):
        if not (folder / name).is_file():
            raise ModelError(f"{folder} does not hold {what}: {name} is missing")
    path = folder / file
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict) or config.pop("format", None) != kind:
        raise ModelError(f"{path} does not describe {what}")
    if (stored := config.pop("version", None)) != version:
        raise ModelError(
            f"{folder} holds a model of format version {stored!r}; this factorank reads {version}"
        )
    if missing := [name for name in wanted if name not in config]:
        raise ModelError(f"{path} lacks {', '.join(missing)}")
    return config


def read_weights(module: nn.Module, folder: Path) -> None:
    """Give the module the weights of ``model.safetensors`` and put it in eval mode."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        weights = load_file(folder / "model.safetensors")
    except SafetensorError as error:
        raise ModelError(f"{folder / 'model.safetensors'} cannot be read: {error}") from None
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise ModelError(f"the weights in {folder} do not fit its config.json: {error}") from None
    module.eval()
