"""``factorank compare``: which family describes the rankings best."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from factorank.commands._options import RankingsFile
from factorank.commands._text import counted, table

if TYPE_CHECKING:
    from factorank.votes.comparison import Score


NOTE = (
    "bits: for a held-out ranking, the fewer the better, ± one standard error; * marks the fewest. RIM counts"
    " are smoothed by 1, Plackett-Luce logits have a penalty of 0.1, and every law is mixed with the uniform"
    " one at the weight of one voter, so that nothing is impossible."
)
PARTIAL = "Families that cannot be fitted to rankings that leave items out are not in the table."


@dataclass(kw_only=True)
class Compare(RankingsFile):
    """Compare all families and mixtures by the bits they need for held-out rankings."""

    components: int = 3
    """Mixtures of 2 up to so many components are compared, too."""
    mixtures: tuple[Literal["mallows", "generalized-mallows", "rim", "plackett-luce"], ...] = (
        "mallows",
        "plackett-luce",
    )
    """The families to mix."""
    held_out: float = 0.2
    """The share of the voters to hold out."""
    restarts: int = 5
    """Starts of each mixture, of which the best is kept."""

    def run(self) -> None:
        import torch
        from tqdm import tqdm

        from factorank.errors import FactorankError
        from factorank.votes.comparison import plan, score
        from factorank.votes.families import Setting

        if self.components < 1:
            raise FactorankError(f"a mixture has at least 1 component, not {self.components}")
        generator = torch.Generator().manual_seed(self.seed)
        rankings = self.read(generator)
        train, held = rankings.split(self.held_out, generator)
        about = f"{self.file.name}: {counted(rankings.voters, 'ranking')} of {counted(rankings.n, 'item')}"
        print(f"{about}, {held.voters} of them held out")
        laws = plan(rankings, self.components, self.mixtures)
        setting = Setting(unranked=self.unranked, restarts=self.restarts, smoothing=1.0, penalty=0.1)
        bar = tqdm(laws, unit=" laws", leave=False, disable=None)
        found = [score(train, held, family, components, setting, self.seed) for family, components in bar]
        print("\n" + scores_table(found))
        doubt = "" if all(score.converged for score in found) else " ! marks a fit that had not converged."
        note = NOTE + doubt + ("" if rankings.complete else f" {PARTIAL}")
        print("\n" + textwrap.fill(note, 79))


def scores_table(found: Sequence["Score"]) -> str:
    """The scores as a table."""
    best = min(found, key=lambda score: score.bits)
    rows = []
    for score in found:
        mark = "*" if score is best else " "
        doubt = "" if score.converged else "!"
        cells = [
            score.family,
            score.components,
            score.parameters,
            f"{score.bits:.3f}{mark}",
            "–" if score.bits_se is None else f"{score.bits_se:.3f}",
        ]
        rows.append([*cells, f"{score.seconds:.1f}", doubt])
    return table(["family", "components", "parameters", "bits ", "±", "seconds", ""], rows, "lrrrrrl")
