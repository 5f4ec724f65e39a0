"""Options that name a folder of ``factorank fit`` or ``factorank train`` and choose a law in it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from factorank.distributions import PermutationDistribution


@dataclass(kw_only=True)
class Saved:
    """A folder that holds a law or a model, and which law of the model is meant."""

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """What `factorank fit` saved, or the run of a trained model."""
    nfe: int | None = None
    """For a model: network evaluations per order, from 1 to n; by default n."""
    unmask: Literal["random", "left-to-right", "right-to-left", "confident"] | None = None
    """For a masked model: which positions of the code are revealed first; by default random."""

    def open(self) -> "tuple[PermutationDistribution, list[str]]":
        """The law, fitted or learnt, and the names of its items."""
        from factorank.votes import open_law

        return open_law(self.source, self.nfe, self.unmask)
