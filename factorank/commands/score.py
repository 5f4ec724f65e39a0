"""``factorank score``: how probable rankings are under a saved law or model."""

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from factorank.commands._options import RankingsFile
from factorank.commands._saved import Saved
from factorank.commands._text import counted, shorten, table
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
    """The CSV file to write the bits to, a row for each ranking of the file in its order, with the number of
    voters; printed for each different ranking if none is given. A column bits_bound holds upper bounds."""

    def run(self) -> None:
        import torch

        generator = torch.Generator().manual_seed(self.seed)
        rows = self.read_rows(generator)
        distinct = rows.distinct()
        rankings, bits, exact = self.scores(distinct, generator)
        texts = [
            " > ".join(rankings.items[item] for item in row if item >= 0)
            for row in rankings.to_padded_orders().tolist()
        ]
        if self.out is None:
            scored = zip(rankings.counts.tolist(), bits.tolist(), texts, strict=True)
            lines = [[count, f"{value:.3f}", shorten(text, 60)] for count, value, text in scored]
            print(table(["voters", "bits" if exact else "bits ≤", "ranking"], lines, "rrl") + "\n")
        else:
            from factorank.files import write_whole

            number = {tuple(ranks): i for i, ranks in enumerate(distinct.ranks.tolist())}
            lines = [["voters", "bits" if exact else "bits_bound", "ranking"]]
            for ranks, count in zip(rows.ranks.tolist(), rows.counts.tolist(), strict=True):
                i = number[tuple(ranks)]
                lines.append([count, float(bits[i]), texts[i]])
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows(lines)
            write_whole(self.out, text.getvalue())
            each = (
                "each different one, ties broken" if self.break_ties else f"each of {self.file}, in its order"
            )
            print(f"bits written to {self.out}: {counted(len(rows), 'ranking')}, a row for {each}")
        mean = float((bits * rankings.weights).sum()) / rankings.voters
        how = "exact" if exact else "an upper bound, the mean over random partitions"
        print(f"mean of {counted(rankings.voters, 'ranking')}: {mean:.3f} bits ({how})")
        if rankings.complete:
            print(f"the uniform law: {math.lgamma(rankings.n + 1) / math.log(2):.3f} bits")

    def scores(self, rankings: "Rankings", generator: "Generator") -> "tuple[Rankings, Tensor, bool]":
        """The rankings with their items as the law numbers them, the bits of each row, whether exact."""
        import torch

        from factorank.distributions.base import PermutationDistribution
        from factorank.votes.families import log_prob

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
