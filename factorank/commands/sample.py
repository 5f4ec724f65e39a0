"""``factorank sample``: draws from a saved law or model."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from factorank.commands._options import Saved, check_least
from factorank.commands._text import counted
from factorank.errors import FactorankError


@dataclass(kw_only=True)
class Sample(Saved):
    """Draw orders from a saved law or a trained model."""

    count: int = 10
    """How many orders to draw."""
    out: Path | None = None
    """The file to write them to: a table (.csv, .tsv, .parquet) or PrefLib's .soc; by default they are
    printed."""
    format: Annotated[Literal["orders", "ranks", "long"] | None, tyro.conf.arg(name="as")] = None
    """With --out: the layout of a table, by default orders."""
    seed: int = 0
    """Decides the draws."""

    def run(self) -> None:
        import torch

        from factorank.data import Rankings, write_rankings
        from factorank.votes.drawing import draw_orders

        check_least("count", self.count)
        table = self.out is not None and self.out.suffix.lower() in (".csv", ".tsv", ".parquet")
        if self.format is not None and not table:
            raise FactorankError(f"--as {self.format} is the layout of a table: give --out FILE.csv, too")
        law, items = self.open()
        orders, how = draw_orders(law, self.count, torch.Generator().manual_seed(self.seed))
        if how:
            print(how, file=sys.stderr)
        if self.out is None:
            for row in orders.tolist():
                print(" > ".join(items[item] for item in row))
            return
        layout = (self.format or "orders") if table else None
        write_rankings(Rankings.from_orders(orders, items), self.out, layout)
        print(f"{counted(self.count, 'order')} of {counted(len(items), 'item')} written to {self.out}")
