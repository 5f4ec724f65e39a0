"""``factorank votes``: the classical families on real votes."""

from dataclasses import dataclass
from pathlib import Path

from factorank.commands._text import table


@dataclass
class Votes:
    """Compare the classical families and their mixtures on real votes, held out."""

    data: Path
    """The folder that holds preflib/ (00001-00000002.soi, 00009-0000000[12].soc) and jester/."""
    sets: tuple[str, ...] = ()
    """Only these: courses-2003, courses-2004, dublin-west-2002, jester."""
    out: Path = Path("runs/votes")
    """The folder for votes.jsonl and votes.png."""

    def run(self) -> None:
        import torch
        from tqdm import tqdm

        from factorank.experiments import votes
        from factorank.experiments.record import provenance, write_results
        from factorank.figures import votes_figure

        torch.set_num_threads(1)
        about = provenance("factorank votes --data DIR" + "".join(f" --sets {name}" for name in self.sets))
        listed = votes.jobs(self.data, self.sets)
        rows = [job.row() | about for job in tqdm(listed, unit=" laws", disable=None)]
        write_results(self.out / "votes.jsonl", rows)
        votes_figure(self.out / "votes.jsonl", self.out / "votes.png")
        print(votes_table(rows))
        print(f"\nwritten to {self.out}: votes.jsonl, votes.png")


def votes_table(rows: list[dict[str, object]]) -> str:
    """Held-out bits for each set and family, a column for each number of components."""
    from factorank.figures import votes_means

    means = votes_means(rows)
    most = max(components for *_, components in means)
    lines = []
    for data, family in dict.fromkeys((data, family) for data, family, _ in means):
        found = [means.get((data, family, k)) for k in range(1, most + 1)]
        best = min(value[0] for key, value in means.items() if key[0] == data)
        cells = ["" if v is None else f"{v[0]:.2f}{'*' if v[0] == best else ' '}" for v in found]
        lines.append([data, family, *cells])
    header = ["votes", "family", *(f"k = {k} " for k in range(1, most + 1))]
    return table(header, lines, "ll")
