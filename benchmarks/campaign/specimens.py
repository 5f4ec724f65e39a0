"""What the campaign calls: every public function, constructor and method, with arguments that are right."""

import inspect
import typing
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import torch

import factorank as fr
from benchmarks.campaign.things import ARGUMENTS, SKIPPED, folder, laws, orders, ratings, things
from factorank import public

MODULES = ("metrics", "losses", "votes", "jigsaw", "rerank", "unscramble", "leaderboard", "baselines")
CHECKED_BY_CALLER = ("return", "check", "validate_args", "_instance", "_closed")
"""What says that the caller has checked, and torch's own."""


class Target(NamedTuple):
    """Something to call, the arguments that are right, and the types that it says it takes."""

    name: str
    call: Callable[..., Any]
    arguments: dict[str, Any]
    hints: dict[str, Any]


def right(name: str, parameter: str) -> Any:
    """An argument that is right for a parameter of that name."""
    if parameter not in _right():
        raise LookupError(f"no right argument is known for {parameter!r} of {name}: add it to ARGUMENTS")
    return _right()[parameter]


@cache
def _right() -> dict[str, Any]:
    """Arguments that are right, by the name of the parameter."""
    order = orders()[0]
    return {
        **dict.fromkeys(("order", "outer", "inner", "other", "value", "central", "reference"), order),
        **{name: orders() for name in ("orders", "votes", "samples")},
        "n": 4,
        "shape": (2,),
        "index": 3,
        "k": 2,
        "blocks": [2, 2],
        "name": "lehmer",
        "phi": 0.5,
        "phis": [0.5, 0.2, 0.7, 1.0],
        "logits": [0.0, 1.0, -1.0, 0.5],
        "scores": torch.rand(4),
        "relevance": torch.rand(4),
        "gains": torch.rand(4),
        "loc": [0.0, 1.0, 2.0, 3.0],
        "covariance": torch.eye(4),
        "probs": torch.ones(4, 4).tril() / torch.arange(1, 5)[:, None],
        "components": [fr.Uniform(4), fr.Uniform(4)],
        "weights": [0.5, 0.5],
        "law": fr.Uniform(4),
        "path": folder() / "votes.soc",
        "rankings": fr.read_rankings(folder() / "votes.soc"),
        "pairs": torch.tensor([[0, 1], [1, 2], [2, 0], [2, 3], [3, 1]]),
        "width": 8,
        "items": 4,
        "outcomes": torch.tensor([0, 1, 0, 0, 1]),
        "letters": "abc",
        "word": "cab",
        "grid": 2,
        "picture": torch.zeros(32, 32, 3, dtype=torch.uint8),
        "log_matrix": torch.zeros(4, 4),
        "costs": torch.rand(4, 4),
        "ids": [1, 2],
        "titles": ["a", "b"],
        "tokens": "abcd",
        "steps": 5,
        "code": torch.tensor([1, 2, 0, 0]),
        "ranks": orders()[:3],
        "sequences": orders(),
        "known": orders()[:3],
        "size": 24,
        "observed": [2, 0],
        "pictures": torch.zeros(2, 8, 8, 3, dtype=torch.uint8),
        "setting": fr.jigsaw.JigsawSetting(grid=2, width=8, depth=1, heads=1),
        "device": torch.device("cpu"),
        "folder": folder() / "written",
        "file": folder() / "written.safetensors",
        "out": folder() / "written",
        "ratings": ratings(),
        "model": fr.unscramble.load(),
        "nfe": None,
        "unmask": "left-to-right",
        "preferences": [[0, 1]],
    }


PATHS: dict[str, dict[str, str]] = {
    "law_items": {"path": "law"},
    "load_law": {"path": "law"},
    "save_law": {"path": "saved"},
    "load_ratings": {"path": "ratings.csv"},
    "rerank.read_user": {"path": "user.csv"},
    "write_rankings": {"path": "written.soc"},
    "votes.open_law": {"folder": "law"},
    "jigsaw.picture_folder": {"folder": "pictures"},
    "PermutationModel.from_pretrained": {"folder": "model"},
    "Ratings.load": {"file": "ratings.safetensors"},
    "Ranker.load": {"folder": "ranker"},
}
"""The files of calls that do not read the file of votes, or write."""


@cache
def targets() -> list[Target]:
    """Every public callable but those of ``SKIPPED``, and the public methods of everything that has some."""
    things()["Ranker"].save(folder() / "ranker")
    listed = [_target(name, value) for name, value in public_names() if _is_called(name, value)]
    for name, thing in (things() | laws()).items():
        for method in _methods(thing):
            if (full := f"{name}.{method}") not in skipped():
                listed.append(_target(full, getattr(thing, method), method))
    return listed


@cache
def skipped() -> frozenset[str]:
    """The names that are not called."""
    return frozenset(name for names in SKIPPED.values() for name in names)


def public_names() -> Iterator[tuple[str, Any]]:
    """The public names of the package and of its rooms."""
    for name in public.__all__:
        value = getattr(fr, name)
        if name in MODULES:
            names = getattr(value, "__all__", None) or [
                each for each, own in vars(value).items() if getattr(own, "__module__", "") == value.__name__
            ]
            yield from ((f"{name}.{each}", getattr(value, each)) for each in names if each[0] != "_")
        else:
            yield name, value


def _is_called(name: str, value: Any) -> bool:
    error = inspect.isclass(value) and issubclass(value, BaseException)
    return callable(value) and not error and name not in skipped()


def _methods(thing: Any) -> list[str]:
    """The public methods that the library defines."""
    own: dict[str, Any] = {}
    for parent in reversed(type(thing).__mro__):
        if parent.__module__.startswith("factorank"):
            own |= vars(parent)
    names = [name for name in own if name[0] != "_" and name not in ("forward", "check", "error")]
    return sorted(name for name in names if callable(inspect.getattr_static(thing, name, None))
                  or isinstance(own[name], classmethod | staticmethod))  # fmt: skip


def _target(name: str, value: Any, method: str = "") -> Target:
    known: dict[str, Any] = ARGUMENTS.get(method, {}) | ARGUMENTS.get(name, {})
    known = known | {each: folder() / file for each, file in PATHS.get(name, {}).items()}
    arguments = dict(known)
    for parameter in inspect.signature(value).parameters.values():
        required = parameter.default is parameter.empty
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or not required:
            continue
        if parameter.name not in known:
            arguments[parameter.name] = right(name, parameter.name)
    hinted = value.__init__ if inspect.isclass(value) else value
    return Target(name, value, arguments, _hints(hinted))


def _hints(function: Any) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        return {}
    parameters = inspect.signature(function).parameters
    for name, hint in hints.items():  # what is None unless given may be given as None
        if name in parameters and parameters[name].default is None:
            hints[name] = hint | None
    return {name: hint for name, hint in hints.items() if name not in CHECKED_BY_CALLER}
