"""``factorank compare``: which family describes the rankings best."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from factorank.commands._options import Family, RankingsFile, options_for
from factorank.commands._text import counted, table

if TYPE_CHECKING:
    from factorank.votes import HeldOutScore


NOTE = (
    "bits: for a held-out ranking, the fewer the better, ± one standard error; * marks the fewest. more: bits"
    " more than these, voter by voter, ± the standard error of that difference. RIM counts"
    " are smoothed by 1, Plackett-Luce logits have a penalty of 0.1, and every law is mixed with the uniform"
    " one at the weight of one voter, so that nothing is impossible."
)
PARTIAL = "Families that cannot be fitted to rankings that leave items out are not in the table."


@dataclass(kw_only=True)
class Compare(RankingsFile):
    """Compare all families and mixtures by the bits they need for held-out rankings."""

    components: int = 3
    """Mixtures of 2 up to so many components are compared, too."""
    mixtures: tuple[Family, ...] = ("mallows", "plackett-luce")
    """The families to mix."""
    held_out: float = 0.2
    """The share of the voters to hold out."""
    restarts: int = 50
    """Starts of each mixture: short runs, of which the best tenth are taken to the end."""
    iterations: int | None = None
    """Iterations of EM, at most."""
    tolerance: float | None = None
    """The gain in nats a ranking at which EM stops."""

    def run(self) -> None:
        import torch

        from factorank import votes
        from factorank.votes.comparison import SMOOTHED

        options = options_for(self, votes.FitSettings) | {"max_iterations": self.iterations}
        settings = replace(SMOOTHED, **options, progress=True)
        generator = torch.Generator().manual_seed(self.seed)
        rankings = self.read(generator)
        train, held = rankings.split(self.held_out, generator)
        about = f"{self.file.name}: {counted(rankings.voters, 'ranking')} of {counted(rankings.n, 'item')}"
        print(f"{about}, {held.voters} of them held out")
        scores = votes.compare(train, held, settings, mixtures=self.mixtures, seed=self.seed)
        print("\n" + scores_table(scores))
        doubt = "" if all(score.converged for score in scores) else " ! marks a fit that had not converged."
        note = NOTE + doubt + ("" if rankings.complete else f" {PARTIAL}")
        print("\n" + textwrap.fill(note, 79))
        print("\n" + rankings.read_as)


def scores_table(scores: Sequence["HeldOutScore"]) -> str:
    """The scores as a table."""
    best = min(scores, key=lambda score: score.bits)
    rows = []
    for score in scores:
        bits = f"{score.bits:.3f}{'*' if score is best else ' '}"
        error = "–" if score.bits_se is None else f"{score.bits_se:.3f}"
        doubt = "" if score.converged else "!"
        more = "" if score is best or score.difference is None else f"{score.difference:.3f}"
        apart = "" if not more or score.difference_se is None else f"{score.difference_se:.3f}"
        cells = [score.family, score.components, score.parameters, bits, error, more, apart]
        rows.append([*cells, f"{score.seconds:.1f}", doubt])
    header = ["family", "laws", "parameters", "bits ", "±", "more", "±", "seconds", ""]
    return table(header, rows, "lrrrrrrrl")
