"""Contexts as tokens: the protocol of context encoders, two of them, and their registry.

A context encoder is any module that maps a context to tokens ``(*batch, tokens, width)``, or to a pair of
those and a bool ``(*batch, tokens)`` that is false at padding. The context may have any structure: a
tensor, a tuple, a dictionary, a dataclass, nested as the encoder likes. Some attributes, all optional, say
more:

* ``aligned = True``: there are n tokens and token i belongs to position i of the code. They then share one
  token of the transformer; otherwise the tokens are put before those of the code. Position i of an insertion
  code is item i; of other codes it is place i, and item i with ``target="rank"``.
* ``exchangeable = True``: token i depends on item i alone, so items may be reordered (``observed`` needs it).
* ``example(n)``: a context of two rows, of the right shapes; ``export_onnx`` needs one, or is given one.
* ``config()``: the keyword arguments that rebuild it, for classes given to :func:`register_context`.
"""

import contextlib
import dataclasses
import importlib
import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import register_dataclass, tree_leaves

from factorank.errors import ModelError, warn
from factorank.permutations import cannot_check
from factorank.reading import expect

if TYPE_CHECKING:
    from factorank.models.model import PermutationModel


class ItemContext(nn.Module):
    """The items to be ordered, by id: an embedding for each, aligned with the code.

    Takes ids ``(*batch, n)`` of 0..items-1, -1 after the end of a shorter list.

    >>> import factorank as fr
    >>> model = fr.PermutationModel(3, "insertion", width=8, depth=1, heads=2, context=ItemContext(100, 8))
    >>> model.distribution(torch.tensor([[42, 7, 99], [3, 5, -1]]), nfe=1).sample((10,)).shape
    torch.Size([10, 2, 3])
    """

    aligned = True
    exchangeable = True

    def __init__(self, items: int, width: int) -> None:
        super().__init__()
        self.items, self.width = items, width
        self.embedding = nn.Embedding(items, width)
        nn.init.normal_(self.embedding.weight, std=0.5)

    def forward(self, items: Tensor) -> tuple[Tensor, Tensor]:
        if not isinstance(items, Tensor) or items.is_floating_point() or items.dtype == torch.bool:
            raise ModelError(
                f"a context of items is an integer tensor (*batch, n) of ids, not {_described(items)}"
            )
        if items.device.type == "cpu" and items.numel() and not cannot_check(items):
            low, high = (int(x) for x in items.aminmax())
            if low < -1 or high >= self.items:
                wrong = low if low < -1 else high
                raise ModelError(
                    f"item ids are 0..{self.items - 1}, or -1 for padding, but the context holds {wrong}"
                )
        present = items >= 0
        return self.embedding(items.long().clamp(min=0)) * present[..., None], present

    def example(self, n: int) -> Tensor:
        """Two lists of n items."""
        return torch.zeros((2, n), dtype=torch.int64)

    def config(self) -> dict[str, Any]:
        return {"items": self.items, "width": self.width}


class TokenContext(ItemContext):
    """Symbols of a vocabulary, such as letters, to be ordered: aligned with the code.

    >>> letters = TokenContext("abcdefghijklmnopqrstuvwxyz", 8)
    >>> letters.ids(["osftre", "cat"])
    tensor([[14, 18,  5, 19, 17,  4],
            [ 2,  0, 19, -1, -1, -1]])
    """

    def __init__(self, vocabulary: Sequence[str], width: int) -> None:
        self.vocabulary = list(vocabulary)
        self._index = {symbol: i for i, symbol in enumerate(self.vocabulary)}
        if len(self._index) < len(self.vocabulary):
            raise ModelError(
                f"a vocabulary holds each symbol once, but this one is {''.join(self.vocabulary)!r}"
            )
        super().__init__(len(self.vocabulary), width)

    def ids(self, texts: Iterable[Sequence[str]], n: int | None = None) -> Tensor:
        """The symbols of each text as ids ``(texts, n)``, padded with -1 to the longest or to n."""
        texts = list(texts)
        longest = max((len(text) for text in texts), default=0)
        n = longest if n is None else n
        if longest > n:
            raise ModelError(f"a text has {longest} symbols but there is room for {n}")
        for text in texts:
            for symbol in text:
                if symbol not in self._index:
                    raise ModelError(
                        f"{symbol!r} in {text!r} is not in the vocabulary {''.join(self.vocabulary)!r}"
                    )
        rows = [[self._index[symbol] for symbol in text] + [-1] * (n - len(text)) for text in texts]
        return torch.tensor(rows, dtype=torch.int64).view(len(texts), n)

    def config(self) -> dict[str, Any]:
        return {"vocabulary": self.vocabulary, "width": self.width}


LIBRARY = {
    "items": "factorank.models.context:ItemContext",
    "tokens": "factorank.models.context:TokenContext",
    "item-features": "factorank.rerank.encoder:FeatureContext",
    "pieces": "factorank.jigsaw.encoder:PieceEncoder",
    "piece-convolution": "factorank.jigsaw.encoder:PieceConvolution",
    "letters": "factorank.unscramble.encoder:LetterContext",
}
"""The library's own encoders, by the names that saved models give them. A module is imported when a model
needs it, so that a saved model loads without its application being imported first."""
_registered: dict[str, type[nn.Module]] = {}


def register_context(name: str, encoder: type[nn.Module]) -> None:
    """Let saved models rebuild a context encoder of your own: a class with ``config()``, under a name.

    Register it before saving, and again in the program that loads the model.
    """
    if not (isinstance(encoder, type) and issubclass(encoder, nn.Module)):
        raise ModelError(
            "what is registered is the class of an encoder, a subclass of nn.Module, not"
            f" {_described(encoder)}"
        )
    if not callable(getattr(encoder, "config", None)):
        raise ModelError(
            f"saved models rebuild an encoder from what its config() returns, the keyword arguments of"
            f" {encoder.__name__}(…), but {encoder.__name__} has no such method"
        )
    if name in LIBRARY or _registered.get(name, encoder) is not encoder:
        raise ModelError(f"there is a context encoder {name!r} already")
    _registered[name] = encoder


def context_config(encoder: nn.Module) -> dict[str, Any]:
    """What rebuilds an encoder: its registered name and arguments, or its class if it has no name."""
    kind = type(encoder)
    names = [name for name, path in LIBRARY.items() if path == f"{kind.__module__}:{kind.__qualname__}"]
    names += [name for name, registered in _registered.items() if registered is kind]
    if names and hasattr(encoder, "config"):
        options = cast(Any, encoder).config()
        _check_options(kind, options)
        return {"name": names[0], "options": options}
    return {"name": None, "class": f"{kind.__module__}.{kind.__qualname__}"}


def _check_options(kind: type[nn.Module], options: Any) -> None:
    """Refuse a config() from which the encoder cannot be made again, before anything is saved with it."""
    try:
        json.dumps(options, allow_nan=False)
        inspect.signature(kind).bind(**options)
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelError(
            f"config() of {kind.__name__} returns the keyword arguments of {kind.__name__}(…), as JSON can"
            f" hold them, but here it is {options!r}: {error}"
        ) from None


def build_context(config: dict[str, Any]) -> nn.Module:
    """The encoder that :func:`context_config` described."""
    name = expect(dict[str, Any], config, "context", ModelError).get("name")
    if name is None:
        raise ModelError(
            f"the model was saved with a context encoder of class {config.get('class')}, which is not"
            " registered; pass one as context=, or call register_context before saving and loading"
        )
    if name in LIBRARY:
        module, _, kind = LIBRARY[name].partition(":")
        encoder: Callable[..., nn.Module] = getattr(importlib.import_module(module), kind)
    elif name in _registered:
        encoder = _registered[name]
    else:
        raise ModelError(
            f"there is no context encoder {name!r}; there are {', '.join([*LIBRARY, *_registered])}"
        )
    return encoder(**expect(dict[str, Any], config.get("options"), "options of the context", ModelError))


@dataclasses.dataclass
class EncodedContext:
    """An encoded context: ``tokens (*batch, tokens, width)``, ``present (*batch, tokens)`` or None."""

    tokens: Tensor
    present: Tensor | None
    aligned: bool

    def each(self, change: Callable[[Tensor], Tensor]) -> "EncodedContext":
        """The same with its tensors changed."""
        present = None if self.present is None else change(self.present)
        return EncodedContext(change(self.tokens), present, self.aligned)


def check_encoder(encoder: Any) -> None:
    """Refuse a context encoder that is no module: its weights would be neither trained nor saved."""
    if encoder is not None and not isinstance(encoder, nn.Module):
        what = f"the class {encoder.__name__}" if isinstance(encoder, type) else f"a {type(encoder).__name__}"
        raise ModelError(
            f"{{parameter}} is a module that maps a context to tokens, such as ItemContext(items, width), not"
            f" {what}",
            parameter="context",
        )


def may_be_items(encoder: nn.Module | None) -> bool:
    """Whether the tokens of an encoder are aligned, and those of items as far as can be told."""
    path = f"{type(encoder).__module__}:{type(encoder).__qualname__}"
    own = path not in LIBRARY.values()
    return bool(getattr(encoder, "aligned", False)) and (own or bool(getattr(encoder, "exchangeable", False)))


def warn_of_mismatch(model: "PermutationModel") -> None:
    """Say once for each model, before it is trained, that tokens may stand at the wrong positions."""
    if model.warned or torch.compiler.is_compiling():
        return
    model.warned = True
    if (advice := mismatch(model)) is not None:
        warn(advice)


def mismatch(model: "PermutationModel") -> str | None:
    """Why the tokens of the context may stand at the wrong positions of the code; None if they do not."""
    of_items = (model.code.positions == "items") == (model.target == "order")
    if of_items or not may_be_items(model.context):
        return None
    if model.target_given:
        if model.target == "order" or not getattr(model.context, "exchangeable", False):
            return None
        return (
            f"token i of the {type(model.context).__name__}, which is exchangeable and so that of item i,"
            f" goes to position i of the {model.code.name} code, which is place i with target='rank': the"
            " default target='order' learns more"
        )
    better = "target='rank' or code='insertion'" if model.code.factorized else "code='insertion'"
    return (
        f"token i of the {type(model.context).__name__} goes to position i of the {model.code.name} code,"
        f" which is place i of the order; if it is the token of item i, {better} learns more;"
        " target='order' says that it is not"
    )


def opened(context: Any) -> Any:
    """The context, after torch has been told to take its dataclasses apart as it does dictionaries."""
    for leaf in tree_leaves(context):
        if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            register_dataclass(type(leaf))
            return opened(context)
    return context


def joint_batch(context: "EncodedContext | None", batch: torch.Size, *, wider: bool = True) -> torch.Size:
    """The batch shape of orders or codes and a context; ``wider``: the context may have more rows."""
    if context is None:
        return batch
    rows = context.tokens.shape[:-2]
    with contextlib.suppress(RuntimeError):
        joint = torch.broadcast_shapes(batch, rows)
        if wider or joint == batch:
            return joint
    raise ModelError(
        f"orders, or codes, of batch shape {tuple(batch)} do not go with a context of batch shape"
        f" {tuple(rows)}: each has a context of its own, or shares that of a batch of 1"
    )


def encode_context(encoder: nn.Module | None, context: Any, n: int, width: int) -> EncodedContext | None:
    """Run a model's encoder on a context and check what it says."""
    if encoder is None:
        if context is not None:
            raise ModelError("this model was made without a context encoder, so it takes no context")
        return None
    if context is None:
        raise ModelError(
            f"this model is conditional on a context for its {type(encoder).__name__}; none was given"
        )
    encoded = encoder(context)
    tokens, present = encoded if isinstance(encoded, tuple) and len(encoded) == 2 else (encoded, None)
    whole = isinstance(tokens, Tensor) and tokens.is_floating_point()
    if not whole or not (present is None or isinstance(present, Tensor)):
        gave = _described(tokens) if not whole else f"{_described(present)} for the second"
        raise ModelError(
            f"{type(encoder).__name__} maps a context to tokens, a floating-point tensor (*batch, tokens,"
            f" {width}), or to a pair of those and a bool (*batch, tokens); it gave {gave}"
        )
    aligned = bool(getattr(encoder, "aligned", False))
    if tokens.ndim < 2 or tokens.shape[-1] != width or (aligned and tokens.shape[-2] != n):
        wanted = f"(*batch, {n if aligned else 'tokens'}, {width})"
        raise ModelError(f"{type(encoder).__name__} gave tokens of shape {tuple(tokens.shape)}, not {wanted}")
    if present is not None and (present.dtype != torch.bool or present.shape != tokens.shape[:-1]):
        raise ModelError(
            f"{type(encoder).__name__} gave {present.dtype} {tuple(present.shape)} for the padding of tokens"
            f" {tuple(tokens.shape)}, which is a bool {tuple(tokens.shape[:-1])}"
        )
    return EncodedContext(tokens, present, aligned)


def _described(value: object) -> str:
    return f"{value.dtype}" if isinstance(value, Tensor) else type(value).__name__
