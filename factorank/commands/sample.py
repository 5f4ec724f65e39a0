"""``factorank sample``: draws from a saved law or model."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from factorank.errors import FactorankError

if TYPE_CHECKING:
    from torch import Generator, Tensor


@dataclass
class Sample:
    """Draw orders from a saved law or a trained model."""

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """What `factorank fit` saved, or the run of a trained model."""
    count: int = 10
    """How many orders to draw."""
    out: Path | None = None
    """The file to write them to: a table (.csv, .parquet) or PrefLib's .soc; printed if none is given."""
    format: Literal["orders", "ranks", "long"] = "orders"
    """The layout of a table."""
    seed: int = 0
    """Decides the draws."""
    nfe: int | None = None
    """For a model: network evaluations per order, from 1 to n; n unless given."""
    unmask: Literal["random", "left-to-right", "confident"] | None = None
    """For a model: which positions of the code are revealed first."""

    def run(self) -> None:
        import torch

        from factorank.data import Rankings, write_rankings

        if self.count < 1:
            raise FactorankError(f"--count is at least 1, not {self.count}")
        orders, items = self.draw(torch.Generator().manual_seed(self.seed))
        if self.out is None:
            for row in orders.tolist():
                print(" > ".join(items[item] for item in row))
            return
        table = self.out.suffix.lower() in (".csv", ".parquet")
        write_rankings(Rankings.from_orders(orders, items), self.out, self.format if table else None)
        print(f"{self.count} orders of {len(items)} items written to {self.out}")

    def draw(self, generator: "Generator") -> "tuple[Tensor, list[str]]":
        """The orders ``(count, n)`` and the names of the items."""
        from factorank.distributions.saving import is_law, law_items, load_law

        if is_law(self.source):
            if self.nfe is not None or self.unmask is not None:
                raise FactorankError(f"--nfe and --unmask are for models, but {self.source} holds a law")
            law, items = load_law(self.source), law_items(self.source)
            return law.sample((self.count,), generator=generator), _names(items, law.n)
        if not (self.source / "config.json").is_file():
            raise FactorankError(
                f"{self.source}: neither a law (law.json) nor a model (config.json) is there"
            )
        from factorank.models import PermutationModel

        model = PermutationModel.from_pretrained(self.source)
        learnt = model.distribution(nfe=self.nfe, unmask=self.unmask)
        return learnt.sample((self.count,), generator=generator), _names(None, model.n)


def _names(items: tuple[str, ...] | None, n: int) -> list[str]:
    return [str(item) for item in range(n)] if items is None else list(items)
