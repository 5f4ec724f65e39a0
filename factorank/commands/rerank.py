"""``factorank rerank``: learn from ratings how users order items, and rank lists for a user."""

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from factorank.commands._options import check_least
from factorank.commands._rerank_fit import RerankFit
from factorank.commands._rerank_text import answer_table, scores_table, write_answer
from factorank.commands._text import command_line
from factorank.errors import FactorankError


@dataclass(kw_only=True)
class RerankPredict:
    """Rank items for a user, or for all users of a parquet table."""

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The folder of a trained ranker."""
    user: Path | None = None
    """The user's preferences: a CSV with the columns item and rating, empty where the item is to be ranked;
    or a column item alone, in the user's order, best first. Items are ids or titles."""
    items: tuple[str, ...] = ()
    """More items to rank."""
    k: int | None = None
    """For the probability of being among the first k; 10 unless given, half of the list if it is shorter
    than 20."""
    by: Literal["gain", "place", "mode", "sample"] = "gain"
    """What the list is sorted by: expected gain, expected place, the likeliest order, or one sample."""
    references: int | None = None
    """Random references to average over, 4 unless given; more is better and slower."""
    nfe: int | None = None
    """Network evaluations; 1 unless given, n for autoregressive rankers."""
    seed: int = 0
    """Decides ties and references."""
    users: Path | None = None
    """Many users: a parquet table with a row for each, the columns user, items and observed (lists), perhaps
    ratings (a list beside observed); without items the answers are recommendations. Needs --out."""
    rows: int = 8192
    """Of --users: the rows of a part of the answers. A run that was stopped goes on with the next part."""
    workers: int = 0
    """Of --users: processes of Ray that make parts of the answers at the same time, on this machine or on the
    cluster that RAY_ADDRESS names; 0 for none."""
    out: Path | None = None
    """Write the answer to this file as well, by its suffix .csv or .json; for --users the folder for it."""

    def run(self) -> int:
        if (self.user is None) == (self.users is None):
            raise FactorankError("either --user or --users is needed, and not both")
        return self._for_one() if self.users is None else self._for_many()

    def _for_many(self) -> int:
        from factorank.rerank import Ranker
        from factorank.rerank.reranking import REFERENCES
        from factorank.rerank.streaming import faulty_rows, predict_table

        if self.out is None:
            raise FactorankError("--users needs --out, a folder for the answers")
        assert self.users is not None
        started, references = time.perf_counter(), self.references or REFERENCES
        k = 10 if self.k is None else self.k
        asked: dict[str, Any] = {"k": k, "rows": self.rows, "references": references}
        if self.workers:
            from factorank.rerank.cluster import predict_on_ray

            parts = predict_on_ray(self.source, self.users, self.out, workers=self.workers, **asked)
        else:
            parts = predict_table(Ranker.load(self.source), self.users, self.out, **asked)
        for done, total in parts:
            rate = done / (time.perf_counter() - started)
            print(f"{done:,} of {total:,} users, {rate:,.0f} a second", file=sys.stderr, flush=True)
        faulty = faulty_rows(self.out)
        print(f"written to {self.out}" + (f"; rows with an error: {faulty:,}" if faulty else ""))
        return 0

    def _for_one(self) -> int:
        import torch

        from factorank.rerank import Ranker, read_user
        from factorank.rerank.reranking import REFERENCES

        if self.out is not None and self.out.suffix not in (".csv", ".json"):
            raise FactorankError(f"--out is a file .csv or .json, not {self.out}")
        if self.out is not None and not self.out.parent.is_dir():
            raise FactorankError(f"there is no folder {self.out.parent} for --out {self.out}")
        ranker = Ranker.load(self.source)
        assert self.user is not None
        observed = read_user(self.user)
        length = len({*self.items, *observed})
        answer = ranker.rerank(
            list(self.items),
            observed,
            k=min(10, max(1, length // 2)) if self.k is None else self.k,
            by=self.by,
            nfe=self.nfe,
            references=self.references or REFERENCES,
            samples=256,
            generator=torch.Generator().manual_seed(self.seed),
        )
        names = ranker.catalogue.names(answer.items)
        print(answer_table(answer, names, self.by))
        if self.out is not None:
            write_answer(self.out, answer, names)
            print(f"\nwritten to {self.out}")
        return 0


USUAL_BASELINES = ("popularity", "uniform-rim", "mean-rating", "matrix-factorisation", "ease")


@dataclass(kw_only=True)
class RerankEval:
    """Measure a ranker and the baselines on users that it was not trained on."""

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The folder of a ranker that `factorank rerank fit` has trained."""
    n: tuple[int, ...] = ()
    """Lengths of the lists, unless given 10, 20 and 50 as far as the ranker has learnt them. Longer ones, up
    to 500, are ranked in chunks."""
    r: tuple[int, ...] = ()
    """Numbers of observed items; a range from 0 to n - 2 unless given."""
    baselines: tuple[str, ...] | None = None
    """Baselines to compare with, none if empty; unless given popularity, uniform-rim, mean-rating,
    matrix-factorisation and, for up to 10,000 items, ease."""
    by: Literal["gain", "place", "mode", "sample"] = "gain"
    """What the list is sorted by: expected gain, mean place, the likeliest order, or one sample."""
    references: int | None = None
    """Random references to average over, 4 unless given; more is better and slower."""
    lists: int = 1000
    """Lists to measure on, at least."""
    fillers: tuple[float, ...] = (0.0, 0.5)
    """Shares of a list that are items which the user has not rated. Each is measured: that an item was rated
    says something already."""
    by_time: tyro.conf.FlagCreatePairsOff[bool] = False
    """Observe the items that the user rated first, and not any."""
    on: Literal["test", "validation"] | None = None
    """The users to measure on: test users, unless the run has none. Settings are chosen on validation users,
    so that a run looks a little better on them than it is."""
    out: Path | None = None
    """The folder for rerank.jsonl and the figures; RUN/eval unless given."""

    def run(self) -> int:
        from factorank.baselines.rankers import RANKERS
        from factorank.experiments.record import provenance, write_results
        from factorank.experiments.rerank import baseline_rows, evaluate
        from factorank.figures.rerank import BASE, calibration_figure, rerank_figure
        from factorank.rerank import Query, Ranker
        from factorank.rerank.evaluation import Evaluation, affordable
        from factorank.rerank.reranking import REFERENCES
        from factorank.rerank.users import load_users

        named = USUAL_BASELINES if self.baselines is None else self.baselines
        if unknown := [name for name in named if name not in RANKERS]:
            raise FactorankError(f"there is no baseline {unknown[0]!r}; there are {', '.join(RANKERS)}")
        ranker = Ranker.load(self.source)
        users = load_users(self.source)
        on = self.on or ("test" if "test" in users else "validation")
        baselines = affordable(named, users["train"]) if self.baselines is None else list(named)
        if len(baselines) < len(named):
            items = users["train"].item_count
            print(f"ease is left out: {items:,} items would take it hours; --baselines ease measures it\n")
        if baselines and "validation" not in users:
            raise FactorankError(
                f"{self.source}: the run has no validation users to tune baselines on; name none",
                parameter="baselines",
            )
        if on not in users:
            raise FactorankError(f"{self.source}: the run has no {on} users; it has {', '.join(users)}")
        if self.on is None and on == "validation":
            print("the run has no test users; measured on the validation users, which chose its weights\n")
        seed = 0 if ranker.setting is None else ranker.setting.seed
        query = Query(by=self.by, references=self.references or REFERENCES, samples=None)
        evaluation = Evaluation(
            self.n,
            self.r,
            lists=self.lists,
            fillers=self.fillers,
            by_time=self.by_time,
            query=query,
            seed=seed,
        )
        rows, bins = evaluate(ranker, users[on], evaluation, on=on)
        sizes = tuple(dict.fromkeys(row["n"] for row in rows))
        for name in baselines:
            rows += baseline_rows(name, users, replace(evaluation, ns=sizes), on=on, seeds=(seed,))
        source = provenance(command_line())
        out = self.out or self.source / "eval"
        write_results(out / "rerank.jsonl", [row | source for row in rows])
        write_results(out / "rerank-calibration.jsonl", [row | source for row in bins])
        drawn = any(row["method"] == BASE for row in rows)  # the figure is of leads over it
        if drawn:
            rerank_figure(out / "rerank.jsonl", out / "rerank.png")
        calibration_figure(out / "rerank-calibration.jsonl", out / "rerank-calibration.png")
        print(scores_table(rows))
        if left := [str(n) for n in self.n if n not in sizes]:
            print(
                f"\nno lists of {', '.join(left)}: the ranker does not take them, or nobody has rated so many"
            )
        for share in self.fillers:
            if not any(row["fillers"] == share for row in rows):
                print(f"\nno lists with a share of {share:g} not rated: nobody has left enough items unrated")
        without = "" if drawn else f"; rerank.png is drawn where {BASE} is among the baselines"
        print(f"\nwritten to {out}: rerank and rerank-calibration, .jsonl and .png{without}")
        return 0


@dataclass(kw_only=True)
class RerankServe:
    """Serve a ranker over HTTP: POST /rerank and /recommend, GET /health and /metrics."""

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The folder of a trained ranker."""
    host: str = "127.0.0.1"
    """The address to listen at; 0.0.0.0 for all of this machine's."""
    port: int = 8000
    batch: int = 32
    """Requests that are answered together, at most."""
    wait: float = 0.002
    """Seconds that a request waits for others to share its batch."""
    queue: int = 1024
    """Requests that wait, at most; further ones get status 503."""
    threads: int | None = None
    """Threads of the computation; unless given, one fewer than the cores, so that one reads and writes."""

    def run(self) -> int:
        try:
            from factorank.rerank.service import Limits, create_app
            from factorank.rerank.serving import Server, compute_threads, listen, settle
        except ImportError:
            raise FactorankError("a service needs FastAPI: pip install 'factorank[serve]'") from None
        import torch

        from factorank.rerank import Ranker

        for name in ("batch", "queue", *(["threads"] if self.threads is not None else [])):
            check_least(name, getattr(self, name))
        limits = Limits(batch=self.batch, wait=self.wait, queue=self.queue)
        torch.set_num_threads(compute_threads() if self.threads is None else self.threads)
        ranker = Ranker.load(self.source)
        settle(ranker)
        server = Server(create_app(ranker, limits))
        sockets = listen(self.host, self.port)
        print(f"serving {self.source} at http://{self.host}:{self.port}; Ctrl-C stops it", flush=True)
        server.run(sockets)
        return 0


class Rerank:
    """Rank lists for users who have ordered some items: train on ratings, predict, measure, or serve."""

    actions: ClassVar = {
        "fit": RerankFit,
        "predict": RerankPredict,
        "eval": RerankEval,
        "serve": RerankServe,
    }
