"""``factorank fit``: a law that describes rankings."""

import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from factorank.commands._fit_report import report
from factorank.commands._options import Family, RankingsFile, check_least, options_for
from factorank.commands._text import command_line
from factorank.errors import FactorankError


@dataclass(kw_only=True)
class Fit(RankingsFile):
    """Fit a law to rankings: a report, a picture, and the law saved."""

    model: Literal["mallows", "generalized-mallows", "rim", "plackett-luce", "mixture"] = "mallows"
    """The family of laws."""
    components: int = 2
    """How many laws a mixture has."""
    family: Family = "mallows"
    """The family of a mixture's components."""
    restarts: int = 50
    """Starts of a mixture: short runs, of which the best tenth are taken to the end."""
    iterations: int | None = None
    """Iterations of EM or of a sampler, at most."""
    tolerance: float | None = None
    """At which they stop: nats a ranking for EM, a change of phi for the sampler."""
    samples: int | None = None
    """Draws for each voter where the fit needs any; more make its error smaller."""
    smoothing: float = 0.0
    """Added to every count of a RIM, so that slots no vote used stay possible."""
    penalty: float = 0.0
    """On the squared logits of Plackett-Luce, which keeps them finite."""
    bootstrap: int | None = None
    """Refits to voters drawn with replacement, for the intervals of places and of mixtures; by
    default 100, none where a fit draws samples, which makes it slow."""
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
        for name in ("iterations", "samples"):
            check_least(name, getattr(self, name))
        out = self.out or Path("runs") / "fit" / f"{self.file.stem}-{self.model}"
        check_place(out)
        generator = torch.Generator().manual_seed(self.seed)
        rankings = self.read(generator)
        options = options_for(self, votes.FitSettings) | {"max_iterations": self.iterations}
        settings = votes.FitSettings(**options, progress=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # the report says it, with the names of the items
            law = votes.fit_family(self.model, rankings, settings, generator)
        refits = votes.bootstrap(law, rankings, settings, count=self.bootstrap, generator=generator)
        title = rankings.metadata.get("TITLE")
        facts: dict[str, Any] = {"experiment": "fit", "file": self.file.name, "title": title}
        facts |= {"model": self.model, "seed": self.seed, "unranked": self.unranked}
        facts |= {"command": command_line()}
        facts |= votes.summary(law, rankings, self.unranked, refits, generator)
        test = votes.against_smaller(law, rankings, settings, generator)
        facts["likelihood_ratio"] = None if test is None else asdict(test)
        files, problem = "law.json, law.safetensors, fit.json", ""
        with folder_made_whole(out) as folder:
            write_law(law, folder, rankings.items)
            write_json(folder / "fit.json", facts)
            if self.picture:
                from factorank.figures import fit_figure, goodness_figure

                try:
                    fit_figure(facts, folder / "fit.png")
                    goodness_figure(facts, folder / "goodness.png")
                    files += ", fit.png, goodness.png"
                except FactorankError as error:  # what was fitted is kept all the same
                    problem = f"; no pictures: {error}"
        print(rankings.read_as + "\n")
        print(report(facts))
        print(f"\nsaved in {out}: {files}{problem}")
