"""``factorank score``: how probable rankings are under a saved law or model."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from factorank.commands._options import RankingsFile, Saved
from factorank.commands._text import counted, shorten, table

if TYPE_CHECKING:
    from torch import Tensor

    from factorank.data import Rankings


@dataclass(kw_only=True)
class Score(RankingsFile, Saved):
    """Score rankings under a saved law or a trained model: bits of each, and the mean."""

    partitions: int = 16
    """For a model that unmasks at random, where there is only a bound: how many partitions it averages."""
    out: Path | None = None
    """The CSV file to write the bits to, a row for each ranking of the file in its order, with the number of
    voters; by default they are printed for each different ranking. A column bits_bound holds upper bounds."""

    def run(self) -> None:
        import torch

        from factorank import votes

        generator = torch.Generator().manual_seed(self.seed)
        rows = self.read(generator, merge=False)
        law, items = self.open()
        rows = rows.with_items(items, sources=(self.file, self.source))
        rankings = rows.distinct()
        bits, exact = votes.bits(
            law, rankings, self.unranked, partitions=self.partitions, generator=generator
        )
        print(rankings.read_as + "\n")
        if self.out is None:
            scored = zip(rankings.counts.tolist(), bits.tolist(), texts(rankings), strict=True)
            lines = [[count, f"{value:.3f}", shorten(text, 60)] for count, value, text in scored]
            print(table(["voters", "bits" if exact else "bits ≤", "ranking"], lines, "rrl") + "\n")
        else:
            self.write(self.out, rows, rankings, bits, exact)
        mean = float((bits * rankings.weights).sum()) / rankings.voters
        how = "exact" if exact else "an upper bound, the mean over random partitions"
        print(f"mean of {counted(rankings.voters, 'ranking')}: {mean:.3f} bits ({how})")
        if rankings.complete:
            print(f"the uniform law: {math.lgamma(rankings.n + 1) / math.log(2):.3f} bits")

    def write(self, out: Path, rows: "Rankings", rankings: "Rankings", bits: "Tensor", exact: bool) -> None:
        """Write the bits of the distinct ``rankings``, a line for each of ``rows``."""
        from factorank.data.rankings.tables import csv_text
        from factorank.files import write_whole

        scored = zip(bits.tolist(), texts(rankings), strict=True)
        score_of = dict(zip(map(tuple, rankings.ranks.tolist()), scored, strict=True))
        counts = zip(rows.counts.tolist(), rows.ranks.tolist(), strict=True)
        lines = [[count, *score_of[tuple(ranks)]] for count, ranks in counts]
        write_whole(out, csv_text(["voters", "bits" if exact else "bits_bound", "ranking"], lines))
        each = "each different one, ties broken" if self.break_ties else f"each of {self.file}, in its order"
        print(f"bits written to {out}: {counted(len(rows), 'ranking')}, a row for {each}")


def texts(rankings: "Rankings") -> list[str]:
    """Each row as text: the names of the ranked items, best first."""
    orders = rankings.to_padded_orders().tolist()
    return [" > ".join(rankings.items[item] for item in row if item >= 0) for row in orders]
