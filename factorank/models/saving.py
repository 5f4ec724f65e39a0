"""Models on disk: ``model.safetensors`` beside a ``config.json`` that says what it is; no pickles.

``config.json`` vouches for both files (:mod:`factorank.sealed`): a change of either is noticed.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from factorank.codes import Code
from factorank.codes.reversed import Reversed
from factorank.errors import FactorankError, ModelError
from factorank.files import write_whole
from factorank.hub import fetched, model_card, push
from factorank.models import orders
from factorank.models.context import build_context, context_config, encode_context, opened
from factorank.onnx import export
from factorank.reading import expect, read_tensors
from factorank.sealed import read_sealed, sealed_head, write_sealed

FORMAT, VERSION = "factorank-model", 2
CONFIG, WEIGHTS = "config.json", "model.safetensors"
M = TypeVar("M", bound=nn.Module)
SETTINGS = ("n", "code", "objective", "width", "depth", "heads", "dropout", "context", "reference", "masks")
LATER = ("target", "reveal", "norm")
"""Settings that have a default and that models saved earlier lack."""


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
    reveal: str
    norm: str

    def config(self) -> dict[str, Any]:
        """What rebuilds the model, without its weights, as JSON can hold it."""
        settings: dict[str, Any] = {name: getattr(self, name) for name in SETTINGS}
        return settings | {
            "code": self.code.code.name if isinstance(self.code, Reversed) else self.code.name,
            "context": None if self.context is None else context_config(self.context),
            "reference": None if self.reference is None else self.reference.tolist(),
            **{name: getattr(self, name) for name in LATER},
        }

    def save_pretrained(self, folder: str | os.PathLike[str], dtype: torch.dtype | None = None) -> None:
        """Write ``model.safetensors`` and ``config.json`` into a folder, both or neither.

        ``dtype`` is that of the weights in the file, such as ``torch.bfloat16`` for half the size; the
        model's own by default.
        """
        write_module(self, folder, FORMAT, VERSION, self.config(), dtype)

    def files(self) -> dict[str, bytes]:
        """The contents of the files that :meth:`save_pretrained` writes."""
        weights = {WEIGHTS: module_bytes(self)}
        facts = {"format": FORMAT, "version": VERSION, **self.config()}
        return weights | {CONFIG: sealed_head(facts, weights).encode()}

    def export_onnx(self, path: str | os.PathLike[str], context: Any = None) -> None:
        """Write an ONNX file, for runtimes without torch; needs ``factorank[onnx]``. Its batch has any size.

        A masked model decides at one evaluation: ``order (batch, n)``, the mode of ``distribution(context,
        nfe=1)``, and its ``log_prob (batch,)``, from the context, or without an encoder from ``fixed (batch,
        n)``: fixed values of the code, -1 where free. An autoregressive model predicts ``logits (batch, n,
        n)`` from ``code (batch, n)``, whose masked positions are -1, and the context.

        Weights and floating-point inputs are float32, whatever the model's own type is.

        ``context`` is an example, batch first, of which only shapes and types are kept. The library's own
        encoders have one. The inputs of a context that is no tensor are called by the keys of the dictionary,
        or ``context_0``, ``context_1`` and so on.
        """
        causal = self.objective == "autoregressive"
        code = torch.full((2, self.n), -1)
        device = next(self.parameters()).device
        examples: tuple[Any, ...] = (code.to(device),)
        inputs = ["code" if causal else "fixed"]
        if self.context is not None:
            context = tree_map_only(Tensor, lambda leaf: leaf.to(device), _example(self, context))
            examples = (code.to(device) if causal else None, context)
            inputs = [*(inputs if causal else []), *_names(context)]
        elif context is not None:
            raise ModelError("this model was made without a context encoder, so it takes no context")
        module = Prediction(self) if causal else Decision(self)
        export(module, path, examples, inputs=inputs, outputs=["logits"] if causal else ["order", "log_prob"])

    def push_to_hub(
        self,
        repo_id: str,
        *,
        run: str | os.PathLike[str] | None = None,
        private: bool | None = None,
        token: str | None = None,
        commit_message: str = "Upload a factorank model",
    ) -> str:
        """Upload the model to ``user/name`` on the Hugging Face Hub; needs ``factorank[hub]``.

        ``run`` is the folder that ``train`` wrote: the model's card says what is recorded there, and without
        it nothing of training. The address of the commit is returned; ``from_pretrained("user/name")`` loads
        the model.
        """
        weights = sum(weight.numel() for weight in self.parameters())
        card = model_card(repo_id, self.config(), weights, run)

        def save(folder: Path) -> None:
            self.save_pretrained(folder)
            write_whole(folder / "README.md", card.encode())

        return push(save, repo_id, private=private, token=token, commit_message=commit_message)

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        context: nn.Module | None = None,
        *,
        revision: str | None = None,
    ) -> Self:
        """Load what :meth:`save_pretrained` wrote, in eval mode.

        ``folder`` may also be the name "user/name" of a model on the Hugging Face Hub, where there is no such
        folder; ``revision`` is then a branch, tag or commit. A context encoder is rebuilt from its registered
        name, or passed in. The model is in float32, or in float64 where its file is.
        """
        folder = fetched(folder, revision)
        config, weights = read_module(folder, FORMAT, VERSION, SETTINGS, "a factorank model")
        where = folder / CONFIG
        settings = {name: config[name] for name in SETTINGS}
        settings |= {name: config[name] for name in LATER if name in config}
        n, width, depth = (
            expect(int, settings[name], f"{where}: {name}", ModelError) for name in ("n", "width", "depth")
        )
        stored = sum(weight.numel() for weight in weights.values())
        if max(n * width, depth * width**2) > stored:  # before they fill the memory
            raise ModelError(f"the weights in {folder} do not fit its {CONFIG}: there are too few of them")
        if settings["context"] is None and context is not None:
            raise ModelError(f"the model in {folder} was saved without a context encoder, but one was passed")
        if settings["reference"] is not None:
            reference = expect(list[int], settings["reference"], f"{where}: reference", ModelError)
            settings["reference"] = torch.tensor(reference, dtype=torch.int64)

        described = settings.pop("context")

        def encoder() -> nn.Module | None:
            return context if context is not None or described is None else build_context(described)

        return rebuilt(lambda: cls(**settings, context=encoder()), weights, folder)


def _example(model: SavedModel, context: Any) -> Any:
    """A context of two rows, which are the same."""
    if context is None:
        make = getattr(model.context, "example", None)
        if make is None:
            raise ModelError(
                f"the graph of a model with a {type(model.context).__name__} is traced with an example of a"
                " context: pass one, batch first, or give the encoder a method example(n)",
                parameter="context",
            )
        context = make(model.n)
    if not all(isinstance(leaf, Tensor) and leaf.ndim for leaf in tree_leaves(opened(context))):
        raise ModelError("an example of a context holds tensors, batch first, alone", parameter="context")
    return tree_map_only(Tensor, lambda leaf: leaf[[0, 0]], context)


def _names(context: Any) -> list[str]:
    """What the inputs of a context are called: by their keys in a dictionary, or numbered."""
    if isinstance(context, Tensor):
        return ["context"]
    if isinstance(context, dict) and all(isinstance(leaf, Tensor) for leaf in context.values()):
        return [str(key) for key in context]
    return [f"context_{i}" for i in range(len(tree_leaves(context)))]


class Decision(nn.Module):
    """What a masked model decides at one evaluation: the most likely order, and its log-probability."""

    def __init__(self, model: SavedModel) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, fixed: Tensor | None, context: Any = None) -> tuple[Tensor, Tensor]:
        """``(batch, n)`` and ``(batch,)``; ``fixed (batch, n)`` holds -1 where the code is free."""
        model = self.model
        encoded = encode_context(model.context, context, model.n, model.width)
        present = None if encoded is None or not (encoded.aligned and model.padded) else encoded.present
        if fixed is None:
            assert encoded is not None
            fixed = encoded.tokens.new_full((encoded.tokens.shape[0], model.n), -1, dtype=torch.int64)
        start = torch.where(fixed < 0, model.network.mask_value, fixed)
        if present is not None:
            start = torch.where(present, start, model.first_values)
        log_probs = model.network.head(model.network.hidden(start, encoded, present)).log_softmax(-1)
        best, value = log_probs.max(-1)
        free = start == model.network.mask_value
        order = orders.decoded(model, torch.where(free, value, start), present)
        return order, torch.where(free, best, 0).sum(-1)


class Prediction(nn.Module):
    """The logits of a model."""

    def __init__(self, model: SavedModel) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, code: Tensor, context: Any = None) -> Tensor:
        return self.model.logits(code, context, check=False)


def write_module(
    module: nn.Module,
    folder: str | os.PathLike[str],
    kind: str,
    version: int,
    config: dict[str, Any],
    dtype: torch.dtype | None = None,
) -> None:
    """Write both files, or neither.

    ``kind`` is the format's name. ``dtype`` is that of the floating-point weights in the file, by default the
    module's own. A module that reads them keeps its own.
    """
    files = {WEIGHTS: module_bytes(module, dtype)}
    write_sealed(folder, CONFIG, {"format": kind, "version": version, **config}, files)


def module_bytes(module: nn.Module, dtype: torch.dtype | None = None) -> bytes:
    """The weights of a module as the content of a file."""
    from safetensors.torch import save as serialized

    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
    if dtype is not None:
        weights = {name: w.to(dtype) if w.is_floating_point() else w for name, w in weights.items()}
    return serialized(weights, {"format": "pt"})


def read_module(
    folder: Path, kind: str, version: int, wanted: Iterable[str], what: str
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What ``config.json`` says, without format and version, and the weights; both checked.

    The configuration is refused unless it has all that is wanted. ``what`` is what messages call a module of
    that kind.
    """
    config, files = read_facts(folder, CONFIG, kind, version, wanted, what)
    if WEIGHTS not in files:
        raise ModelError(f"{folder} does not hold {what}: {WEIGHTS} is missing")
    return config, read_tensors(files[WEIGHTS], folder / WEIGHTS, ModelError)


def read_facts(
    folder: Path, file: str, kind: str, version: int, wanted: Iterable[str], what: str
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What the head of a sealed folder says of a kind of thing, and its files."""
    facts, files = read_sealed(folder, file, ModelError, what, format=kind, version=version)
    if missing := [name for name in wanted if name not in facts]:
        raise ModelError(f"{folder / file} lacks {', '.join(missing)}")
    del facts["format"], facts["version"]
    return facts, files


def rebuilt(make: Callable[[], M], weights: dict[str, Tensor], folder: Path) -> M:
    """The module that ``make`` builds from its configuration, with the weights, in eval mode."""
    with torch.inference_mode(False):  # whose tensors could not be changed afterwards
        try:
            module = make()
        except FactorankError:
            raise
        except (TypeError, ValueError, RuntimeError, MemoryError, LookupError, AttributeError) as error:
            raise ModelError(f"{folder / CONFIG} describes no such model: {error}") from None
        try:
            if any(weight.dtype == torch.float64 for weight in weights.values()):
                module = module.double()
            module.load_state_dict({name: weight.clone() for name, weight in weights.items()})
        except RuntimeError as error:
            raise ModelError(f"the weights in {folder} do not fit its {CONFIG}: {error}") from None
    return module.eval()
