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

    def load(self, generator: "torch.Generator", partial: bool) -> "tuple[Rankings, list[str]]":
        """The rankings, a row for each in the file, and where each stands.

        If it is asked for, ties are broken, for each voter alone, and no row is one of the file's then; but
        not where items are left out that may not be (``partial``), so that this can be refused at its place.
        """
        from factorank.data.rankings.files import read_rows

        try:
            rankings, places = read_rows(self.file, self.format, first_rank=self.first_rank)
        except FactorankError as error:
            raise FactorankError(as_options(str(error))) from None
        if self.break_ties and (partial or rankings.complete):
            return rankings.distinct().break_ties(generator), []
        return rankings, places

    def located(self, error: FactorankError, places: list[str]) -> str:
        """The message of an error about a row, with the place of that row in the file."""
        message = as_options(str(error))
        found = re.match(r"row (\d+) ", message)
        if found is None or not places:
            return f"{self.file}: {message}"
        return f"{places[int(found[1])]}: the ranking {message[found.end() :]}"


@dataclass(kw_only=True)
class RankingsFile(RankingsTable):
    """A file of rankings, which may leave items out."""

    unranked: Literal["below", "incomparable"] | None = None
    """What a ranking says of items it leaves out: that they come last, or nothing."""

    def read(self, generator: "torch.Generator") -> "Rankings":
        """The rankings, strict, and complete unless ``unranked`` says what to make of it."""
        return self.read_rows(generator).distinct()

    def read_rows(self, generator: "torch.Generator") -> "Rankings":
        """The same with a row for each in the file, unless ties were broken."""
        from factorank.votes.families import checked

        rankings, places = self.load(generator, partial=self.unranked is not None)
        try:
            return checked(rankings, self.unranked)
        except FactorankError as error:
            raise FactorankError(self.located(error, places)) from None


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
