"""Laws on disk: a folder with ``law.json``, which describes the law, and ``law.safetensors``, its numbers.

``law.json`` vouches for both files (:mod:`factorank.sealed`). Nothing is pickled: reading a law runs no code
from the file, and the numbers are checked as those of a new law are.
"""

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

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
from factorank.errors import FactorankError
from factorank.files import folder_made_whole, restored
from factorank.reading import expect, fields_of, read_tensors
from factorank.sealed import read_sealed, write_sealed

Law = PermutationDistribution | ComparisonLaw | DavidsonLuce
"""What can be saved: laws of orders, of comparisons of two items, and of rankings with ties."""
FORMAT, VERSION = "factorank law", 2
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
    path = restored(path)
    about, files = _about(path)
    tensors = read_tensors(files.get(TENSORS, b""), path / TENSORS, LawFileError)
    try:
        law = _rebuild(about["law"], tensors, path / JSON)
    except (KeyError, TypeError, ValueError, RuntimeError, MemoryError) as error:
        if isinstance(error, LawFileError):
            raise
        raise LawFileError(f"{path}: the law cannot be rebuilt: {error}") from None
    if law.n != about["n"]:
        raise LawFileError(f"{path / JSON}: the law ranks {law.n} items, but the file says {about['n']}")
    return law


def law_items(path: str | os.PathLike[str]) -> tuple[str, ...] | None:
    """The names of the items of a saved law, or None if it was saved without."""
    path = restored(path)
    about, _ = _about(path)
    items = expect(list[str] | None, about.get("items"), path / JSON, LawFileError)
    if items is not None and (fault := _fault_of_names(items, about["n"])):
        raise LawFileError(f"{path / JSON}: {fault}")
    return None if items is None else tuple(items)


def _fault_of_names(items: Sequence[str], n: int) -> str | None:
    """What is wrong with the names of n items: there is one for each, and each is of one item alone."""
    if len(items) != n:
        return f"the law ranks {n} items, but there are {len(items)} names"
    counts = Counter(items)
    twice = next((name for name, count in counts.items() if count > 1), None)
    return None if twice is None else f"two items are called {twice!r}"


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

    if items is not None and not all(isinstance(name, str) for name in items):
        raise LawFileError("{parameter} are the names of the items, as text", parameter="items")
    if items is not None and (fault := _fault_of_names(items, law.n)):
        raise LawFileError(fault)
    tensors: dict[str, Tensor] = {}
    described = _describe(law, "", tensors)
    data = save({name: value.detach().to("cpu").contiguous().clone() for name, value in tensors.items()})
    about = {"format": FORMAT, "version": VERSION, "law": described, "n": law.n}
    write_sealed(folder, JSON, about | {"items": None if items is None else list(items)}, {TENSORS: data})


DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
DTYPES |= {"float32": torch.float32, "float64": torch.float64}
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


def _rebuild(described: Any, tensors: dict[str, Tensor], where: Path) -> Law:
    parts = dict(expect(dict[str, Any], described, where, LawFileError))
    family, report = parts.pop("family", None), parts.pop("report", None)
    kinds = {kind.__name__: kind for kind in FAMILIES}
    if family not in kinds:
        raise LawFileError(f"the law is of an unknown family, {family!r}; known are {', '.join(kinds)}")
    names = (*FAMILIES[kinds[family]], "coefficients")
    if unknown := [name for name in parts if name not in names]:
        raise LawFileError(f"{where}: a {family} has {', '.join(names)}, and no {unknown[0]!r}")
    for name, value in parts.items():
        if name == "components":
            components = expect(list[dict[str, Any]], value, where, LawFileError)
            parts[name] = [_rebuild(each, tensors, where) for each in components]
        elif name == "dtype":
            parts[name] = DTYPES[value]
        elif name in ("n", "batch_shape"):
            parts[name] = expect(int if name == "n" else list[int], value, where, LawFileError)
        else:
            parts[name] = tensors[expect(dict[str, str], value, where, LawFileError)["tensor"]]
    coefficients = parts.pop("coefficients", None)
    make: Any = kinds[family]
    checks = {"validate_args": True} if issubclass(make, PermutationDistribution) else {}
    law = make(**parts, **checks)
    if coefficients is not None:
        law.coefficients = coefficients
    # As they were saved: normalising them again would round.
    if isinstance(law, RIM):
        law._logits = _normalised(parts["logits"], law.logits, where)
    elif isinstance(law, Mixture):
        law.weights = _normalised(parts["weights"], law.weights, where)
    if report is not None:
        law.report = _report(report, where)
    return law


def _normalised(saved: Tensor, again: Tensor, where: Path) -> Tensor:
    """Saved numbers, refused unless normalising them again changes no more than their last digits."""
    if saved.shape != again.shape or not torch.allclose(saved.exp(), again.exp(), rtol=1e-3):
        raise LawFileError(f"{where}: the probabilities of the law do not sum to one")
    return saved


def _plain(value: Any) -> Any:
    """The value for JSON, which has no infinity: such numbers become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def _report(plain: Any, where: Path) -> FitReport:
    expect(dict[str, Any], plain, where, LawFileError)
    names = {field.name for field in fields(FitReport)}
    facts = {name: value for name, value in plain.items() if name in names}
    for name, value in facts.items():
        if isinstance(value, list):
            facts[name] = list(value) if name in ("warnings", "items") else [float(each) for each in value]
        elif isinstance(value, str) and name not in ("family", "parameter"):
            facts[name] = float(value)
    return FitReport(**fields_of(FitReport, facts, where, LawFileError))


def _about(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What ``law.json`` says, and the files beside it."""
    if path.is_dir() and not (path / JSON).exists():
        raise LawFileError(f"{path}: there is no {JSON} in this folder, so it holds no law")
    about, files = read_sealed(path, JSON, LawFileError, "a law", format=FORMAT, version=VERSION)
    if "law" not in about or type(about.get("n")) is not int:
        raise LawFileError(f"{path / JSON}: not the description of a law")
    return about, files
