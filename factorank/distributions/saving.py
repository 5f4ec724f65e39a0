"""Laws on disk: a folder with ``law.json``, which describes the law, and ``law.safetensors``, its numbers.

Nothing is pickled: reading a law runs no code from the file.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.comparisons import BradleyTerry, ComparisonLaw, Davidson, RaoKupper
from factorank.distributions.davidson_luce import DavidsonLuce
from factorank.distributions.fitting.report import FitReport
from factorank.distributions.generalized_mallows import GeneralizedMallows
from factorank.distributions.mallows import Mallows
from factorank.distributions.mixture import Mixture
from factorank.distributions.plackett_luce import PlackettLuce
from factorank.distributions.rim import RIM
from factorank.distributions.thurstone import Thurstone
from factorank.distributions.uniform import Uniform
from factorank.errors import DistributionError, FactorankError
from factorank.files import folder_made_whole, write_json, write_whole

Law = PermutationDistribution | ComparisonLaw | DavidsonLuce
"""What can be saved: laws of orders, of comparisons of two items, and of rankings with ties."""
FORMAT, VERSION = "factorank law", 1
JSON, TENSORS = "law.json", "law.safetensors"
_OURS = {JSON, TENSORS, "fit.json", "fit.png", "goodness.png"}


class LawFileError(FactorankError):
    """A folder does not hold a law that this version can read, or a law cannot be written."""


def save_law(law: Law, path: str | os.PathLike[str], *, items: Sequence[str] | None = None) -> None:
    """Write a law into a folder, whole or not at all; a law that is there already is replaced.

    ``items`` are the names of its items, kept beside it for :func:`law_items`. Parameters are kept exactly,
    in their dtype; gradients and devices are not.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> save_law(Mallows([2, 0, 1], phi=0.25), folder, items=["ann", "bob", "cat"])
    >>> load_law(folder), law_items(folder)
    (Mallows(central=[2, 0, 1], phi=0.25), ('ann', 'bob', 'cat'))
    """
    path = Path(path)
    check_place(path)
    with folder_made_whole(path) as folder:
        write_law(law, folder, items)


def load_law(path: str | os.PathLike[str]) -> Law:
    """The law that :func:`save_law` wrote, with the report of its fit, on the CPU."""
    about, path = _about(path), Path(path)
    from safetensors import SafetensorError
    from safetensors.torch import load

    data = (path / TENSORS).read_bytes()
    if hashlib.sha256(data).hexdigest() != about.get("sha256"):
        _refuse(path / TENSORS, f"it is not the file that {JSON} describes, or it is damaged")
    try:
        return _rebuild(about["law"], load(data))
    except (SafetensorError, KeyError, TypeError, DistributionError) as error:
        _refuse(path, f"the law cannot be rebuilt: {error}")


def law_items(path: str | os.PathLike[str]) -> tuple[str, ...] | None:
    """The names of the items of a saved law, or None if it was saved without."""
    items = _about(path).get("items")
    return None if items is None else tuple(items)


def is_law(path: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a law."""
    return (Path(path) / JSON).is_file()


def check_place(path: Path) -> None:
    """Raise unless a law can be written there without removing anything but a law and what its fit wrote."""
    if path.exists() and not path.is_dir():
        raise LawFileError(f"{path} is a file; a law is written into a folder")
    others = sorted({file.name for file in path.iterdir()} - _OURS) if path.is_dir() else []
    if others:
        raise LawFileError(f"{path} holds {others[0]!r}, too; a law is written into a folder of its own")


def write_law(law: Law, folder: Path, items: Sequence[str] | None = None) -> None:
    """Write the two files of a law into a folder that is there."""
    from safetensors.torch import save

    if items is not None and len(items) != law.n:
        raise LawFileError(f"the law ranks {law.n} items, but there are {len(items)} names")
    tensors: dict[str, Tensor] = {}
    described = _describe(law, "", tensors)
    data = save({name: value.detach().to("cpu").contiguous().clone() for name, value in tensors.items()})
    about = {"format": FORMAT, "version": VERSION, "law": described, "n": law.n}
    about |= {"items": None if items is None else list(items), "sha256": hashlib.sha256(data).hexdigest()}
    write_whole(folder / TENSORS, data)
    write_json(folder / JSON, about)


# The numbers and tensors that each family is taken apart into, and built from.
FAMILIES: dict[type[Law], tuple[str, ...]] = {
    Uniform: ("n", "batch_shape", "dtype"),
    Mallows: ("central", "phi", "weights"),
    GeneralizedMallows: ("central", "phis"),
    RIM: ("reference", "logits"),
    PlackettLuce: ("logits",),
    Mixture: ("weights", "components"),
    Thurstone: ("loc", "covariance"),
    BradleyTerry: ("scores", "effects"),
    Davidson: ("scores", "nu", "effects"),
    RaoKupper: ("scores", "kappa", "effects"),
    DavidsonLuce: ("logits", "prevalence"),
}


def _describe(law: Law, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    if type(law) not in FAMILIES:
        names = ", ".join(family.__name__ for family in FAMILIES)
        raise LawFileError(f"a {type(law).__name__} cannot be saved; these can: {names}")
    described: dict[str, Any] = {"family": type(law).__name__}
    for name in FAMILIES[type(law)]:
        value = getattr(law, name)
        if name == "components":
            described[name] = [
                _describe(each, f"{prefix}{name}.{k}.", tensors) for k, each in enumerate(value)
            ]
        elif isinstance(value, Tensor):
            described[name] = {"tensor": prefix + name}
            tensors[prefix + name] = value
        elif isinstance(value, torch.dtype):
            described[name] = str(value).removeprefix("torch.")
        elif value is not None:
            described[name] = value
    coefficients = getattr(law, "coefficients", None)
    if coefficients is not None:
        described["coefficients"] = {"tensor": f"{prefix}coefficients"}
        tensors[f"{prefix}coefficients"] = coefficients
    if law.report is not None:
        described["report"] = _plain(asdict(law.report))
    return described


def _rebuild(described: dict[str, Any], tensors: dict[str, Tensor]) -> Law:
    parts = dict(described)
    family, report = parts.pop("family"), parts.pop("report", None)
    kinds: dict[str, Callable[..., Any]] = {kind.__name__: kind for kind in FAMILIES}
    if family not in kinds:
        raise LawFileError(f"the law is of an unknown family, {family!r}; known are {', '.join(kinds)}")
    for name, value in parts.items():
        if name == "components":
            parts[name] = [_rebuild(each, tensors) for each in value]
        elif name == "dtype":
            parts[name] = getattr(torch, value)
        elif isinstance(value, dict):
            parts[name] = tensors[value["tensor"]]
    coefficients = parts.pop("coefficients", None)
    law = kinds[family](**parts)
    if coefficients is not None:
        law.coefficients = coefficients
    # As they were saved: normalising them again would round.
    if isinstance(law, RIM):
        law._logits = parts["logits"]
    elif isinstance(law, Mixture):
        law.weights = parts["weights"]
    if report is not None:
        law.report = _report(report)
    return law


def _plain(value: Any) -> Any:
    """The value for JSON, which has no infinity: such numbers become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def _report(plain: dict[str, Any]) -> FitReport:
    names = {field.name for field in fields(FitReport)}
    facts = {name: value for name, value in plain.items() if name in names}
    for name, value in facts.items():
        if isinstance(value, list):
            facts[name] = tuple(value) if name in ("warnings", "items") else tuple(map(float, value))
        elif isinstance(value, str) and name not in ("family", "parameter"):
            facts[name] = float(value)
    return FitReport(**facts)


def _about(path: str | os.PathLike[str]) -> dict[str, Any]:
    path = Path(path)
    if path.is_dir() and not (path / JSON).exists():
        _refuse(path, f"there is no {JSON} in this folder, so it holds no law")
    text = (path / JSON).read_bytes()
    try:
        about = json.loads(text)
    except ValueError as error:
        _refuse(path / JSON, f"not JSON: {error}")
    if not isinstance(about, dict) or about.get("format") != FORMAT or "law" not in about:
        _refuse(path / JSON, "not the description of a law")
    if about.get("version") != VERSION:
        version = about.get("version")
        _refuse(path / JSON, f"format version {version!r}; this factorank reads version {VERSION}")
    return about


def _refuse(path: Path, message: str) -> NoReturn:
    raise LawFileError(f"{path}: {message}")
