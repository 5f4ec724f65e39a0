"""``factorank posterior``: what rankings say of a law, as a distribution over its parameters."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from factorank.commands._options import RankingsFile, check_least
from factorank.commands._text import counted, shorten, table

if TYPE_CHECKING:
    import torch

    from factorank.data import Rankings


@dataclass(kw_only=True)
class Posterior(RankingsFile):
    """Compute the posterior of a Mallows law, exactly, up to 20 items, or of Plackett-Luce."""

    model: Literal["mallows", "plackett-luce"] = "mallows"
    """The law; Mallows takes complete rankings."""
    distance: Literal["kendall", "footrule"] = "kendall"
    """Of Mallows: pairs ordered otherwise, or places apart."""
    rate: float = 0.001
    """Of the exponential prior of Mallows' alpha, which is n times theta = -log phi."""
    penalty: float = 0.1
    """The precision of the normal prior of Plackett-Luce's logits."""
    draws: int = 4000
    """From the posterior."""
    out: Path | None = None
    """A file for the numbers, as a row of results."""

    def run(self) -> None:
        import torch

        from factorank.experiments.record import provenance, write_results

        check_least("draws", self.draws)
        generator = torch.Generator().manual_seed(self.seed)
        rankings = self.read(generator)
        size = f"{counted(rankings.voters, 'ranking')} of {counted(rankings.n, 'item')}"
        print(f"{rankings.read_as}\n\nposterior of {self.model}, {size} from {self.file.name}\n")
        facts: dict[str, Any] = {"experiment": "posterior", "data": self.file.stem, "n": rankings.n}
        facts |= {"voters": rankings.voters, "model": self.model, "seed": self.seed}
        parts = self._mallows if self.model == "mallows" else self._plackett_luce
        facts |= parts(rankings, generator)
        if self.out is not None:
            prior = ["--rate", self.rate] if self.model == "mallows" else ["--penalty", self.penalty]
            chosen = ["--model", self.model, "--distance", self.distance, *prior, "--draws", self.draws]
            command = " ".join(map(str, ["factorank posterior", self.file.name, *chosen]))
            write_results(self.out, [facts | provenance(command)])
            print(f"\nwritten to {self.out}")

    def _mallows(self, rankings: "Rankings", generator: "torch.Generator") -> dict[str, Any]:
        import torch

        from factorank import votes

        posterior = votes.mallows_posterior(
            rankings, distance=self.distance, rate=self.rate, draws=self.draws, generator=generator
        )
        n, (low, high) = rankings.n, posterior.interval()
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
        print(table(["item", "mean place in the centre", "95%"], rows, "lrr"))
        facts: dict[str, Any] = {"distance": self.distance, "rate": self.rate, "alpha": n * posterior.mean}
        facts |= {"alpha_median": n * posterior.quantile(0.5)}
        return facts | {"alpha_low": n * low, "alpha_high": n * high}

    def _plackett_luce(self, rankings: "Rankings", generator: "torch.Generator") -> dict[str, Any]:
        from factorank import votes

        posterior = votes.plackett_luce_posterior(
            rankings, unranked=self.unranked, penalty=self.penalty, draws=self.draws, generator=generator
        )
        means, best, ends = posterior.mean, posterior.p_best(), posterior.intervals()
        print(posterior)
        print(
            f"\n{counted(self.draws, 'draw')} from the normal law at the mode,"
            f" worth {posterior.effective:,.0f} of the posterior"
        )
        facts: dict[str, Any] = {"penalty": self.penalty, "effective": posterior.effective}
        facts |= {"items": list(rankings.items), "logits": means.tolist(), "p_best": best.tolist()}
        return facts | {"low": [low for low, _ in ends], "high": [high for _, high in ends]}
