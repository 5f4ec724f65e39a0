"""What the commands that read rankings have in common."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from factorank.errors import FactorankError

if TYPE_CHECKING:
    import torch

    from factorank.data import Rankings


@dataclass(kw_only=True)
class RankingsTable:
    """A file of rankings and how to read it."""

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """Rankings: a PrefLib file (.soc, .soi, .toc, .toi), or a CSV or parquet table."""
    format: Literal["orders", "ranks", "long", "soc", "soi", "toc", "toi", "csv", "parquet"] | None = None
    """The layout of a table or the kind of file, where suffix and columns do not tell."""
    break_ties: tyro.conf.FlagCreatePairsOff[bool] = False
    """Put tied items in a random order, drawn for each voter."""
    first_rank: int = 1
    """The rank of the best item in tables of ranks."""
    seed: int = 0
    """Decides everything random."""

    def load(self, generator: "torch.Generator") -> "Rankings":
        """The rankings as they are in the file, ties broken if that is asked for."""
        from factorank.data import read_rankings

        try:
            rankings = read_rankings(self.file, self.format, first_rank=self.first_rank)
        except FactorankError as error:
            raise FactorankError(as_options(str(error))) from None
        return rankings.break_ties(generator) if self.break_ties else rankings


@dataclass(kw_only=True)
class RankingsFile(RankingsTable):
    """A file of rankings, which may leave items out."""

    unranked: Literal["below", "incomparable"] | None = None
    """What a ranking says of items it leaves out: that they come last, or nothing."""

    def read(self, generator: "torch.Generator") -> "Rankings":
        """The rankings, strict, and complete unless ``unranked`` says what to make of it."""
        from factorank.experiments.families import ready

        rankings = self.load(generator)
        try:
            return ready(rankings, self.unranked)
        except FactorankError as error:
            raise FactorankError(f"{self.file}: {as_options(str(error))}") from None


def as_options(message: str) -> str:
    """A message of the library with its keywords as the options of the command line."""
    message = re.sub(
        r"\b(format|first_rank)='?(\w+)'?", lambda m: f"--{m[1].replace('_', '-')} {m[2]}", message
    )
    message = message.replace("say unranked 'below'", "say --unranked below")
    return message.replace(
        "break_ties(generator) puts tied items in a random order",
        "--break-ties puts tied items in a random order, --unranked below takes those tied at the bottom as"
        " left out",
    )
