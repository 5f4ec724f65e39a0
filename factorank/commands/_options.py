"""Options: those that commands share, how tyro reads them, and their names in error messages."""

import dataclasses
import types
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from factorank.errors import FactorankError

if TYPE_CHECKING:
    import torch

    from factorank.data import Rankings
    from factorank.distributions import PermutationDistribution

Family = Literal["mallows", "generalized-mallows", "rim", "plackett-luce"]
Format = Literal[
    "orders", "ranks", "scores", "long", "pairs", "csv", "semicolons", "tsv", "bars", "parquet",
    "soc", "soi", "toc", "toi",
]  # fmt: skip
Unmask = Literal["random", "left-to-right", "right-to-left", "confident"]


@dataclass(kw_only=True)
class RankingsTable:
    """A file of complete rankings and how to read it."""

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """Rankings: a PrefLib file (.soc, .soi, .toc, .toi), or a table (.csv, .tsv, .txt, .parquet)."""
    format: Annotated[Format | None, tyro.conf.arg(name="as")] = None
    """Overrules what suffix and columns say: the layout of a table, its separator, or the kind of file."""
    break_ties: tyro.conf.FlagCreatePairsOff[bool] = False
    """Put tied items in a random order, drawn for each voter."""
    first_rank: int = 1
    """The rank of the best item in tables of ranks."""
    seed: int = 0
    """Decides everything random."""

    def read(self, generator: "torch.Generator", **options: Any) -> "Rankings":
        """The rankings, complete and strict; ``options`` are those of :func:`factorank.votes.read_votes`."""
        from factorank.votes import read_votes

        options = {"first_rank": self.first_rank, "break_ties": self.break_ties, "complete": True} | options
        return read_votes(self.file, self.format, generator=generator, **options)


@dataclass(kw_only=True)
class RankingsFile(RankingsTable):
    """A file of rankings, which may leave items out."""

    unranked: Literal["below", "incomparable"] | None = None
    """What a ranking says of items it leaves out: that they come last, or nothing."""

    def read(self, generator: "torch.Generator", **options: Any) -> "Rankings":
        """The rankings, strict, and complete unless ``--unranked`` says how items left out are ranked."""
        return super().read(generator, unranked=self.unranked, complete=False, **options)


@dataclass(kw_only=True)
class Saved:
    """A folder that holds a law or a model, and which law of the model is meant."""

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """What `factorank fit` saved, or the run of a trained model."""
    nfe: int | None = None
    """For a model: network evaluations per order, from 1 to n; by default n."""
    unmask: Unmask | None = None
    """For a masked model: which positions of the code are revealed first; by default random."""

    def open(self) -> "tuple[PermutationDistribution, list[str]]":
        """The law, fitted or learnt, and the names of its items."""
        from factorank.votes import open_law

        return open_law(self.source, self.nfe, self.unmask)


def options_for(command: Any, settings: type) -> dict[str, Any]:
    """The options of a command that are fields of a class of settings."""
    names = {field.name for field in dataclasses.fields(settings)}
    return {name: value for name, value in vars(command).items() if name in names}


def check_least(parameter: str, value: int | None, least: int = 1) -> None:
    """Refuse a number below ``least``."""
    if value is not None and value < least:
        raise FactorankError(f"{{parameter}} is at least {least}, not {value}", parameter=parameter)


def in_options(error: FactorankError, command: Any) -> str:
    """The message of an error, with its parameter as the option of the command that sets it, if one does."""
    option = None if error.parameter is None else option_name(command, error.parameter)
    return str(error) if option is None else error.with_option(option)


def option_name(command: Any, parameter: str) -> str | None:
    """The option of a command that sets a parameter, by the field of that name; None if there is none."""
    hints = get_type_hints(type(command), include_extras=True)
    if parameter not in hints:
        return None
    for mark in getattr(hints[parameter], "__metadata__", ()):
        if getattr(mark, "name", None):  # tyro.conf.arg(name=…)
            return f"--{mark.name}"
        if getattr(mark, "metavar", None):  # of a positional argument
            return mark.metavar
    return f"--{parameter.replace('_', '-')}"


registry = ConstructorRegistry()
"""For ``tyro.cli``: the help of an optional option shows the type it takes, without None."""


@registry.primitive_rule
def optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """``T | None`` is read as T."""
    parts = [part for part in get_args(info.type) if part is not types.NoneType]
    if info.type_origin not in (types.UnionType, Union) or len(parts) != 1:
        return None
    own = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(parts[0], info.markers))
    if not isinstance(own, PrimitiveConstructorSpec):
        return None
    return dataclasses.replace(
        own,
        is_instance=lambda value: value is None or own.is_instance(value),
        str_from_instance=lambda value: ["unset"] if value is None else own.str_from_instance(value),
    )
