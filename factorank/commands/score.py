"""``factorank score``: how probable rankings are under a saved law or model."""

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from factorank.commands._options import RankingsFile
from factorank.commands._saved import Saved
from factorank.commands._text import shorten, table
from factorank.errors import FactorankError

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from factorank.data import Rankings


@dataclass(kw_only=True)
class Score(RankingsFile, Saved):
    """Score rankings under a saved law or a trained model: bits of each, and the mean."""

    partitions: int = 16
    """For a model that unmasks at random, where there is only a bound: how many partitions it averages."""
    out: Path | None = None
    """The CSV file to write the bits of each ranking to; they are printed if none is given."""

    def run(self) -> None:
        import torch

        generator = torch.Generator().manual_seed(self.seed)
        rankings, bits, exact = self.scores(self.read(generator), generator)
        texts = [
            " > ".join(rankings.items[item] for item in row if item >= 0)
            for row in rankings.to_padded_orders().tolist()
        ]
        rows = list(zip(rankings.counts.tolist(), bits.tolist(), texts, strict=True))
        if self.out is None:
            lines = [[count, f"{value:.3f}", shorten(text, 60)] for count, value, text in rows]
            print(table(["voters", "bits" if exact else "bits ≤", "ranking"], lines, "rrl") + "\n")
        else:
            from factorank.files import write_whole

            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows([["voters", "bits", "ranking"], *rows])
            write_whole(self.out, text.getvalue())
            print(f"the bits of {len(rows)} different rankings written to {self.out}")
        mean = float((bits * rankings.weights).sum()) / rankings.voters
        how = "exact" if exact else "an upper bound, the mean over random partitions"
        print(f"mean of {rankings.voters} rankings: {mean:.3f} bits ({how})")
        if rankings.complete:
            print(f"the uniform law: {math.lgamma(rankings.n + 1) / math.log(2):.3f} bits")

    def scores(self, rankings: "Rankings", generator: "Generator") -> "tuple[Rankings, Tensor, bool]":
        """The rankings with their items as the law numbers them, the bits of each row, whether exact."""
        import torch

        from factorank.distributions.base import PermutationDistribution
        from factorank.experiments.families import log_prob

        law, items = self.open()
        rankings = self.renumbered(rankings, items)
        if isinstance(law, PermutationDistribution):
            return rankings, -log_prob(law, rankings, self.unranked).double() / math.log(2), True
        if not rankings.complete:
            raise FactorankError(
                f"{self.file} leaves items out; a model scores complete rankings only (a law of factorank fit"
                " can score partial ones)"
            )
        with torch.no_grad():
            nats = law.log_prob_bound(rankings.orders(), samples=self.partitions, generator=generator)
        return rankings, -nats.double() / math.log(2), law.exact

    def renumbered(self, rankings: "Rankings", items: list[str]) -> "Rankings":
        """The same rankings of the same items, in the order of the law's."""
        from factorank.data import Rankings

        if set(rankings.items) != set(items):
            strange = sorted(set(rankings.items) - set(items)) or sorted(set(items) - set(rankings.items))
            where = self.file if strange[0] in rankings.items else self.source
            raise FactorankError(
                f"the items of {self.file} are not those of {self.source}: {strange[0]!r} is in {where} only"
            )
        columns = [list(rankings.items).index(item) for item in items]
        return Rankings(items, rankings.ranks[:, columns], rankings.counts, rankings.metadata)
