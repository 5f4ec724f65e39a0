"""``factorank rerank fit``: train a ranker on a table of ratings or of choices."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from factorank.commands._options import options_for
from factorank.commands._processes import first_process, say
from factorank.commands._rerank_text import lead_text, training_line
from factorank.commands._text import counted
from factorank.signals import exit_code


@dataclass(kw_only=True)
class RerankFit:
    """Train a ranker on a table of ratings; the same command goes on with a run that was stopped."""

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TABLE")]
    """Ratings: a folder or zip of MovieLens, a Jester matrix, or a CSV or parquet table with a row for each
    user, item and rating."""
    user: str | None = None
    """The column of users, if its name does not tell."""
    item: str | None = None
    """The column of items."""
    rating: str | None = None
    """The column of ratings."""
    time: str | None = None
    """The column of times, if its name does not tell: of two ratings of an item the later one counts."""
    titles: Path | None = None
    """A table of the items: ids, titles, and columns of numbers that become features."""
    implicit: tyro.conf.FlagCreatePairsOff[bool] = False
    """The rows are choices: clicks, plays, purchases. They are counted, or a column of counts is added up
    (--rating names it); 0 is an item that was shown and not chosen. Where there are none, some are drawn."""
    missing: Literal["refuse", "drop"] = "refuse"
    """What is done about rows without a rating: refuse the table, or leave them out."""
    min_item_ratings: int = 20
    """Items with fewer ratings are left out."""
    items: int | None = None
    """Keep a random sample of so many items."""
    min_user_ratings: int = 10
    """Users with fewer ratings are left out."""
    preset: Literal["default", "paper", "small"] | None = None
    """small: minutes on a CPU, and what is trained there unless given. default: a larger network, for a GPU.
    paper: 2n tokens and the paper's network."""
    objective: Literal["masked", "autoregressive"] | None = None
    """masked (unless given): all places in one evaluation. autoregressive: one after the other."""
    told: Literal["order", "ratings"] | None = None
    """What the ranker reads of the items that a user has rated already: their order, or the ratings, which
    carry more information; such a ranker takes an order as well. Validation users decide unless given."""
    n: int | None = None
    """The longest list."""
    features: tuple[Literal["mean", "factors", "taste", "given"], ...] | None = None
    """What the ranker reads of an item beside its embedding: mean (rating), factors, taste (the rating that
    observed items predict), given (columns of the item table). Validation users decide unless given."""
    start: Path | None = None
    """The run of an earlier ranker to go on from: TABLE holds what came since, and is joined with the ratings
    of that run. New users are trained on; validation and test users stay what they are."""
    steps: int | None = None
    """Training steps, if other than the preset's."""
    max_seconds: float | None = None
    """Stop training after this much time; the same command goes on with it."""
    seed: int = 0
    """Decides the first weights and the training."""
    out: Path = Path("runs/rerank")
    """The folder for the run."""

    def run(self) -> int:
        from factorank.data.ratings import joined, load_ratings
        from factorank.data.ratings.choices import with_unchosen
        from factorank.experiments.rerank import learn
        from factorank.rerank import Ranker, Setting, preset
        from factorank.rerank.choosing import chosen_setting, preset_for, training_seconds
        from factorank.rerank.evaluation import leads_over_baselines
        from factorank.rerank.users import load_users, split_as, split_users
        from factorank.rerank.warm_start import continued_setting
        from factorank.training.processes import checked_device

        device = checked_device(None)
        start = None if self.start is None else Ranker.load(self.start)
        setting = preset(self.preset or preset_for(device), **options_for(self, Setting))
        if start is not None:
            setting = continued_setting(start, None)
            setting = setting if self.steps is None else replace(setting, steps=self.steps)
        columns = {"user": self.user, "item": self.item, "rating": self.rating, "time": self.time}
        options = {"titles": self.titles, "implicit": self.implicit, "missing": self.missing}
        read = load_ratings(self.file, **columns, **options)  # type: ignore[arg-type]
        if read.repeated:
            out = counted(read.repeated, "row")
            say(f"{self.file}: {out} left out: the user rates the item again later")
        earlier = None if self.start is None else load_users(self.start)
        for part in (earlier or {}).values():
            read = joined(part, read)
        least = {"min_item_ratings": self.min_item_ratings, "min_user_ratings": self.min_user_ratings}
        ratings = read.filter(item_count=self.items, **least)
        rows = int((ratings.values > 0).sum()) if ratings.implicit else len(ratings.items)
        counts = len(ratings), ratings.item_count, rows
        what = "items chosen" if ratings.implicit else "ratings"
        say("{}: {:,} users, {:,} items, {:,} {}".format(ratings.source or self.file, *counts, what))
        whole = with_unchosen(ratings, seed=self.seed)
        users = split_users(whole) if earlier is None else split_as(whole, earlier)
        setting = setting.fitted_to(users["train"])
        seconds = training_seconds(setting, users["train"], device)
        setting = chosen_setting(users["train"], users["validation"], setting)
        name = (self.preset or preset_for(device)) if start is None else None
        say(training_line(name, setting, seconds, device))
        ranker = learn(setting, users, self.out, start=start, max_seconds=self.max_seconds, progress="lines")
        result = ranker.result
        assert result is not None
        if result.stopped == "interrupted":
            print(f"stopped; the same command goes on from {self.out}", file=sys.stderr)
            return exit_code()
        say(str(result))
        say(f"written to {self.out}; factorank rerank eval {self.out} measures it")
        if first_process():
            print(lead_text(leads_over_baselines(ranker, users)))
        return 0
