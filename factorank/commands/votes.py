"""``factorank votes``: the classical families on real votes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factorank.commands._text import table


@dataclass
class Votes:
    """Compare the classical families and their mixtures on real votes, held out."""

    data: Path
    """The folder that holds preflib/ (00001-00000002.soi, 00009-0000000[12].soc, 00014-00000001.soc)
    and jester/."""
    sets: tuple[str, ...] = ()
    """Only these: courses-2003, courses-2004, dublin-west-2002, sushi, jester."""
    families: tuple[str, ...] = ()
    """Only these: uniform, mallows, generalized-mallows, rim, plackett-luce."""
    out: Path = Path("runs/votes")
    """The folder for votes.jsonl and votes.png; rows of other sets and families that are there are kept."""

    def run(self) -> None:
        import torch
        from tqdm import tqdm

        from factorank.experiments import votes
        from factorank.experiments.record import provenance, write_results
        from factorank.figures import votes_figure
        from factorank.files import read_json_lines

        torch.set_num_threads(1)
        command = ["factorank votes --data DIR"]
        command += ["--sets", *self.sets] if self.sets else []
        command += ["--families", *self.families] if self.families else []
        about = provenance(" ".join(command))
        jobs = votes.jobs(self.data, self.sets, self.families)
        file = self.out / "votes.jsonl"
        rows = read_json_lines(file) if file.exists() else []
        for job in tqdm(jobs, unit=" splits", disable=None):
            for row in job.rows():
                rows = votes.with_row(rows, row | about)
            write_results(file, rows)  # after each split: a killed run keeps what it has
        votes_figure(file, self.out / "votes.png")
        print(votes_table(rows))
        print(f"\nwritten to {self.out}: votes.jsonl, votes.png")


def votes_table(rows: list[dict[str, Any]]) -> str:
    """Held-out bits for each set and family, a column for each number of components."""
    from factorank.figures import votes_means

    means = votes_means(rows)
    most = max(components for *_, components in means)
    text = []
    for data in dict.fromkeys(data for data, *_ in means):
        best = min(bits for (d, *_), (bits, _) in means.items() if d == data)
        lines = []
        for family in dict.fromkeys(family for d, family, _ in means if d == data):
            bits = [means.get((data, family, k), (None,))[0] for k in range(1, most + 1)]
            cells = ["" if value is None else f"{value:.3f}{'*' if value == best else ' '}" for value in bits]
            lines.append([family, *cells])
        header = ["components", *(f"{k} " for k in range(1, most + 1))]
        text.append(f"{data}\n{table(header, lines, 'l')}")
    return (
        "\n\n".join(text) + "\n\nHeld-out bits a ranking, mean over the splits; * marks the fewest of a set."
    )
