"""``factorank fit``: a law that describes rankings."""

import re
import textwrap
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from factorank.commands._options import Family, RankingsFile, check_least, options_for
from factorank.commands._text import command_line, counted, shorten, table


@dataclass(kw_only=True)
class Fit(RankingsFile):
    """Fit a law to rankings: a report, a picture, and the law saved."""

    model: Literal["mallows", "generalized-mallows", "rim", "plackett-luce", "mixture"] = "mallows"
    """The family of laws."""
    components: int = 2
    """How many laws a mixture has."""
    family: Family = "mallows"
    """The family of a mixture's components."""
    restarts: int = 5
    """Starts of a mixture, of which the best is kept."""
    smoothing: float = 0.0
    """Added to every count of a RIM, so that slots no vote used stay possible."""
    penalty: float = 0.0
    """On the squared logits of Plackett-Luce, which keeps them finite."""
    bootstrap: int | None = None
    """Refits to voters drawn with replacement, for the intervals; by default 100, none for Mallows
    laws of rankings that leave items out, where each refit is slow."""
    out: Path | None = None
    """The folder to save law, report and picture in; by default runs/fit/FILE-MODEL."""
    picture: bool = True
    """Whether to draw the picture."""

    def run(self) -> None:
        import torch

        from factorank import votes
        from factorank.distributions import FitWarning
        from factorank.distributions.saving import check_place, write_law
        from factorank.files import folder_made_whole, write_json

        check_least("bootstrap", self.bootstrap, 0)
        out = self.out or Path("runs") / "fit" / f"{self.file.stem}-{self.model}"
        check_place(out)
        generator = torch.Generator().manual_seed(self.seed)
        rankings = self.read(generator)
        settings = votes.FitSettings(**options_for(self, votes.FitSettings), progress=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # the report says it, with the names of the items
            law = votes.fit_family(self.model, rankings, settings, generator)
        refits = votes.bootstrap(law, rankings, settings, count=self.bootstrap, generator=generator)
        title = rankings.metadata.get("TITLE")
        facts: dict[str, Any] = {"experiment": "fit", "file": self.file.name, "title": title}
        facts |= {"model": self.model, "seed": self.seed, "unranked": self.unranked}
        facts |= {"command": command_line()}
        facts |= votes.summary(law, rankings, self.unranked, refits, generator)
        print(rankings.read_as + "\n")
        print(report(facts))
        with folder_made_whole(out) as folder:
            write_law(law, folder, rankings.items)
            write_json(folder / "fit.json", facts)
            if self.picture:
                from factorank.figures import fit_figure

                fit_figure(facts, folder / "fit.png")
        files = "law.json, law.safetensors, fit.json" + (", fit.png" if self.picture else "")
        print(f"\nsaved in {out}: {files}")


def report(facts: dict[str, Any]) -> str:
    """A summary as text of at most 80 columns."""
    from factorank.votes.families import FEWEST_VOTERS

    items, parts = facts["items"], facts["components"]
    source = facts["file"] + (f" ({facts['title']})" if facts.get("title") else "")
    size = f"{counted(facts['voters'], 'ranking')} of {counted(len(items), 'item')}"
    lines = textwrap.wrap(f"{facts['family']}, fitted to {size} from {source}", 79)
    lines += ["", _consensus(facts) if len(parts) == 1 else _components(facts), ""]
    gain = facts["uniform_bits"] - facts["bits"]
    estimated = f" ± {facts['bits_se']:.3f}, estimated" if facts["bits_se"] else ""
    rounds = f", after {counted(facts['iterations'], 'iteration')}" if facts["iterations"] else ""
    figures = {
        "bits a ranking": f"{_number(facts['bits'])}{estimated} ({_number(gain)} fewer than the uniform law)",
        "log-likelihood": f"{_number(facts['log_likelihood'])} nats",
        "free parameters": facts["parameters"],
        "AIC, BIC": f"{facts['aic']:.3f}, {facts['bic']:.3f}",
        "converged": ("yes" if facts["converged"] else "NO") + rounds,
    }
    if (exact := facts["consensus_exact"]) is not None:
        figures["consensus"] = "proven best" if exact else "a local optimum, not proven best"
    lines += [f"  {name:<15}  {value}" for name, value in figures.items()]
    for text in facts["warnings"]:
        lines += textwrap.wrap("warning: " + name_items(text, items), 79, subsequent_indent="  ")
    if facts["refits"]:
        refits = counted(facts["refits"], "refit")
        lines += ["", f"Intervals hold 95% of {refits} to voters drawn with replacement."]
    elif facts["voters"] < FEWEST_VOTERS:
        there = "there is 1 voter" if facts["voters"] == 1 else f"there are {facts['voters']} voters"
        lines += ["", f"No intervals: {there}, and fewer than {FEWEST_VOTERS} say nothing of others."]
    return "\n".join(lines)


def name_items(text: str, items: list[str]) -> str:
    """A message with the names of items beside their numbers, and components counted from 1 as above."""
    text = re.sub(r"\bcomponent (\d+)", lambda match: f"component {int(match[1]) + 1}", text)

    def named(match: re.Match[str]) -> str:
        numbers = [int(number) for number in match[2].split(", ")]
        return f"{match[1]} {', '.join(f'{number} ({items[number]})' for number in numbers)}"

    return re.sub(r"\b(items?) (\d+(?:, \d+)*)", named, text)


def _consensus(facts: dict[str, Any]) -> str:
    part, items = facts["components"][0], facts["items"]
    order, name, values, intervals = (part[k] for k in ("consensus", "parameter", "values", "intervals"))
    columns: dict[str, Any] = {"place": range(1, len(order) + 1)}
    columns["item"] = [shorten(items[item], 30) for item in order]
    columns["mean place"] = [f"{part['mean_places'][item]:.2f}" for item in order]
    if part["place_intervals"] is not None:
        columns["places 95%"] = ["{:.0f}–{:.0f}".format(*part["place_intervals"][item]) for item in order]
    many = len(values) > 1
    if many:
        columns[name] = [_number(values[item]) for item in order]
        if intervals is not None:
            columns["95%"] = [_range(intervals[item] if values[item] is not None else None) for item in order]
    text = table(list(columns), list(zip(*columns.values(), strict=True)), "rl")
    if many:
        return text + (f"\n\n  {NOTES[name]}" if name in NOTES else "")
    shown = f" ({_range(intervals[0])})" if intervals else ""
    return text + (f"\n\n  {name} {_number(values[0])}{shown}" if name else "")


NOTES = {
    "overtakes": "overtakes: items before it in the reference that it passes, on average.",
    "logit": "logit: a difference of d between two items means odds of e^d.",
    "phi": "phi: the factor in probability for each item passed; 0 sure, 1 uniform.",
}
"""The meaning of parameters that each item has."""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}".replace("-0.000", "0.000")


def _range(interval: list[float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.3f} – {interval[1]:.3f}"


def _components(facts: dict[str, Any]) -> str:
    items, parts = facts["items"], facts["components"]
    name, intervals, align = parts[0]["parameter"], parts[0]["intervals"], "r" + "l" * len(parts)
    most = max(6, 68 // len(parts) - 2)
    header = [shorten(f"component {number}", most) for number in range(1, len(parts) + 1)]

    def value_rows(title: str, i: int) -> list[list[str]]:
        """The i-th parameter of each component, and its interval."""
        rows = [[title] + [_number(part["values"][i]) for part in parts]]
        if intervals:
            ranges = [part["intervals"][i] if part["values"][i] is not None else None for part in parts]
            rows.append(["95%", *map(_range, ranges)])
        return rows

    rows = [["weight"] + [f"{part['weight']:.3f}" for part in parts]]
    if parts[0].get("weight_interval"):
        rows.append(["95%"] + [_range(part["weight_interval"]) for part in parts])
    one_value = len(parts[0]["values"]) == 1
    rows += value_rows(name, 0) if one_value else []
    for place in range(len(items)):
        rows.append([str(place + 1)] + [shorten(items[part["consensus"][place]], most) for part in parts])
    text = table(["place", *header], rows, align)
    if one_value:
        return text
    rows = [row for i, item in enumerate(items) for row in value_rows(shorten(item, most), i)]
    return f"{text}\n\n{table([name, *header], rows, align)}\n\n  {NOTES[name]}"
