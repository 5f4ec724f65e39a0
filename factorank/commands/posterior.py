"""``factorank posterior``: what rankings say of a Mallows law, as a distribution over its parameters."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from factorank.commands._options import RankingsTable
from factorank.commands._text import counted, shorten, table


@dataclass(kw_only=True)
class Posterior(RankingsTable):
    """Compute the posterior of a Mallows law: dispersion and centre, exactly, up to 20 items."""

    distance: Literal["kendall", "footrule"] = "kendall"
    """Between rankings: pairs ordered otherwise, or places apart."""
    rate: float = 0.001
    """Of the exponential prior of alpha, which is n times theta = -log phi."""
    draws: int = 1000
    """Of the centre."""
    out: Path | None = None
    """A file for the numbers, as a row of results."""

    def run(self) -> None:
        import torch

        from factorank import votes
        from factorank.experiments.record import provenance, write_results

        generator = torch.Generator().manual_seed(self.seed)
        rankings = self.read(generator)
        posterior = votes.mallows_posterior(
            rankings, distance=self.distance, rate=self.rate, draws=self.draws, generator=generator
        )
        n, (low, high) = rankings.n, posterior.interval()
        median = posterior.quantile(0.5)
        facts: dict[str, Any] = {"experiment": "posterior", "data": self.file.stem, "n": n}
        facts |= {"voters": rankings.voters, "distance": self.distance, "rate": self.rate, "seed": self.seed}
        facts |= {"alpha": n * posterior.mean, "alpha_median": n * median}
        facts |= {"alpha_low": n * low, "alpha_high": n * high}
        print(f"{counted(rankings.voters, 'ranking')} of {counted(n, 'item')} from {self.file.name}\n")
        print(f"  alpha = n theta  {n * posterior.mean:.3f} (95%: {n * low:.3f} to {n * high:.3f})")
        shown = [math.exp(-value) for value in (posterior.mean, high, low)]
        print(f"  phi              {shown[0]:.4f} (95%: {shown[1]:.4f} to {shown[2]:.4f})\n")
        places = posterior.place_probabilities()
        means = places @ torch.arange(1, n + 1, dtype=torch.float64)
        rows = []
        for item in means.argsort().tolist():
            mass = places[item].cumsum(0)
            first, last = int((mass > 0.025).int().argmax()) + 1, int((mass >= 0.975).int().argmax()) + 1
            rows.append([shorten(rankings.items[item], 40), f"{means[item]:.2f}", f"{first}–{last}"])
        print(table(["item", "mean place", "95%"], rows, "lrr"))
        if self.out is not None:
            command = f"factorank posterior {self.file.name} --distance {self.distance} --rate {self.rate}"
            write_results(self.out, [facts | provenance(command)])
            print(f"\nwritten to {self.out}")
