"""What the campaign calls: every public function, constructor and method, with arguments that are right."""

import inspect
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

import factorank as fr
from factorank import public

MODULES = ("metrics", "losses", "votes", "jigsaw", "rerank", "unscramble", "leaderboard", "baselines")
SKIPPED = {
    # They train, download, or take seconds: other parts of the campaign and the tests call them.
    *("train", "jigsaw.learn", "jigsaw.cifar10", "jigsaw.evaluate", "jigsaw.puzzles_per_second"),
    *("votes.train_networks", "votes.compare", "rerank.evaluate", "jigsaw.Search", "votes.bootstrap"),
    # They change the process for good.
    *("register_code", "register_context"),
}
METHODS: dict[str, dict[str, Any]] = {
    "sample": {"sample_shape": (2,)},
    "log_prob": {"order": torch.tensor([2, 0, 1, 3])},
    "condition": {"observed": [2, 0]},
    "marginals": {},
    "mean_ranks": {},
    "expand": {"batch_shape": (2,)},
    "enumerate_support": {},
}
"""What is called of a law, with arguments that are right."""


class Target(NamedTuple):
    """Something to call, the arguments that are right, and the types that it says it takes."""

    name: str
    call: Callable[..., Any]
    arguments: dict[str, Any]
    hints: dict[str, Any]


@cache
def orders() -> torch.Tensor:
    """Forty rankings of four items, all items beaten by all others somewhere."""
    return fr.random_permutations(4, (40,), generator=torch.Generator().manual_seed(0))


@cache
def folder() -> Path:
    """A folder for what functions read and write."""
    path = Path(tempfile.mkdtemp(prefix="factorank-campaign-"))
    fr.write_rankings(fr.Rankings.from_orders(orders(), items=list("abcd")), path / "votes.soc")
    fr.save_law(fr.Mallows(torch.arange(4), 0.5), path / "law", items=list("abcd"))
    (path / "ratings.csv").write_text("user,item,rating\n1,1,5\n1,2,3\n2,1,4\n")
    (path / "user.csv").write_text("item,rating\n1,3\n2,4\n")
    return path


@cache
def laws() -> dict[str, Any]:
    """A law of every family, of four items."""
    torch.manual_seed(0)
    model = fr.PermutationModel(4, "lehmer", width=8, depth=1, heads=1).eval()
    table = torch.ones(4, 4).tril()
    return {
        "Uniform": fr.Uniform(4),
        "Mallows": fr.Mallows([2, 0, 1, 3], 0.5),
        "GeneralizedMallows": fr.GeneralizedMallows([2, 0, 1, 3], [0.5, 0.2, 0.7, 1.0]),
        "RIM": fr.RIM(table / table.sum(-1, keepdim=True)),
        "PlackettLuce": fr.PlackettLuce([0.0, 1.0, -1.0, 0.5]),
        "Thurstone": fr.Thurstone([0.0, 1.0, -1.0, 0.5], torch.eye(4)),
        "Mixture": fr.Mixture([0.5, 0.5], [fr.Uniform(4), fr.Mallows([2, 0, 1, 3], 0.5)]),
        "model": model.distribution(nfe=2, unmask="left-to-right"),
    }


@cache
def right() -> dict[str, Any]:
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
    }


BY_TARGET = {
    "law_items": {"path": "law"},
    "load_law": {"path": "law"},
    "save_law": {"path": "saved"},
    "load_ratings": {"path": "ratings.csv"},
    "rerank.read_user": {"path": "user.csv"},
    "write_rankings": {"path": "written.soc"},
}
"""The files of functions whose ``path`` is no file of votes."""


@cache
def targets() -> list[Target]:
    """Every public callable whose arguments are known, and the methods of laws, codes and models."""
    listed = [target for name, value in _public() if (target := _target(name, value)) is not None]
    for name, law in laws().items():
        for method, arguments in METHODS.items():
            bound = getattr(law, method)
            listed.append(Target(f"{name}.{method}", bound, arguments, _hints(bound)))
    for code in fr.code_names():
        for method in ("encode", "decode"):
            bound = getattr(fr.code(code), method)
            rows = orders() if method == "encode" else fr.code(code).encode(orders())
            name = "order" if method == "encode" else "code"
            listed.append(Target(f"{code}.{method}", bound, {name: rows}, _hints(bound)))
        listed.append(Target(f"{code}.sizes", fr.code(code).sizes, {"n": 4}, _hints(fr.code(code).sizes)))
    for family in ("Mallows", "GeneralizedMallows", "RIM", "PlackettLuce", "Mixture"):
        fit = getattr(fr, family).fit
        own = {"orders": orders()} | ({"components": 2} if family == "Mixture" else {})
        listed.append(Target(f"{family}.fit", fit, own, _hints(fit)))
    model = fr.PermutationModel(4, "insertion", width=8, depth=1, heads=1).eval()
    calls: dict[str, dict[str, Any]] = {"distribution": {"nfe": 2}, "loss": {"order": orders()}}
    for method, arguments in calls.items():
        bound = getattr(model, method)
        listed.append(Target(f"PermutationModel.{method}", bound, arguments, _hints(bound)))
    return listed


def _public() -> Iterator[tuple[str, Any]]:
    for name in public.__all__:
        value = getattr(fr, name)
        if name in MODULES:
            names = getattr(value, "__all__", None) or [
                each for each, own in vars(value).items() if getattr(own, "__module__", "") == value.__name__
            ]
            yield from ((f"{name}.{each}", getattr(value, each)) for each in names if each[0] != "_")
        else:
            yield name, value


def _target(name: str, value: Any) -> Target | None:
    usual = callable(value) and not (inspect.isclass(value) and issubclass(value, BaseException | Warning))
    if not usual or name in SKIPPED or inspect.isabstract(value):
        return None
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    arguments = {}
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        known = BY_TARGET.get(name, {}).get(parameter.name)
        if known is not None:
            arguments[parameter.name] = folder() / known
        elif parameter.default is parameter.empty:
            if parameter.name not in right():
                return None
            arguments[parameter.name] = right()[parameter.name]
    hinted = value.__init__ if inspect.isclass(value) else value
    return Target(name, value, arguments, _hints(hinted))


def _hints(function: Any) -> dict[str, Any]:
    import typing

    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        return {}
    hints.pop("return", None)
    hints.pop("check", None)  # check=False says that the caller has checked
    hints.pop("validate_args", None)
    hints.pop("_instance", None)  # torch's own, of `expand`
    return hints
