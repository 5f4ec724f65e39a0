"""Options that the commands on rankings share."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    import torch

    from factorank.data import Rankings


@dataclass(kw_only=True)
class RankingsTable:
    """A file of complete rankings and how to read it."""

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """Rankings: a PrefLib file (.soc, .soi, .toc, .toi), or a CSV or parquet table."""
    format: Literal["orders", "ranks", "long", "soc", "soi", "toc", "toi", "csv", "parquet"] | None = None
    """The layout of a table or the kind of file, where suffix and columns do not say it."""
    break_ties: tyro.conf.FlagCreatePairsOff[bool] = False
    """Put tied items in a random order, drawn for each voter."""
    first_rank: int = 1
    """The rank of the best item in tables of ranks."""
    seed: int = 0
    """Decides everything random."""

    def read(self, generator: "torch.Generator", **options: Any) -> "Rankings":
        """The rankings, complete and strict; ``options`` are those of :func:`factorank.votes.read_votes`."""
        from factorank.votes import read_votes

        return read_votes(
            self.file,
            self.format,
            first_rank=self.first_rank,
            break_ties=self.break_ties,
            generator=generator,
            **{"complete": True} | options,
        )


@dataclass(kw_only=True)
class RankingsFile(RankingsTable):
    """A file of rankings, which may leave items out."""

    unranked: Literal["below", "incomparable"] | None = None
    """What a ranking says of items it leaves out: that they come last, or nothing."""

    def read(self, generator: "torch.Generator", **options: Any) -> "Rankings":
        """The rankings, strict, and complete unless ``--unranked`` says how items left out are ranked."""
        return super().read(generator, unranked=self.unranked, complete=False, **options)
