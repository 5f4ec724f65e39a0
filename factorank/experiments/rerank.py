"""Re-ranking from partial preferences (the paper's third experiment): MovieLens, Jester, any ratings.

A list is n of a user's ratings in random order; the first r are observed, that is, their order is known, and
the rest is to be ranked. Users are split into those trained on, those that settings are chosen by, and those
tested on. All methods see the same lists and the same observed items.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from factorank.data.ratings import Ratings
from factorank.errors import FactorankError
from factorank.experiments.record import provenance, write_results
from factorank.experiments.rerank_files import fingerprint, gather, measured_already, write_rows
from factorank.rerank import Ranker, Setting, preset
from factorank.rerank import evaluation as rerank_scores
from factorank.rerank.catalogue import Catalogue
from factorank.rerank.evaluation import KS, Asked, default_rs, make_lists
from factorank.rerank.settings import PRESETS
from factorank.rerank.training_lists import mean_gains

__all__ = ["Evaluation", "evaluate", "evaluate_baselines", "learn", "parts", "preset", "run"]


ASKED = Asked()


@dataclass(frozen=True)
class Evaluation:
    """What is measured of every method."""

    ns: tuple[int, ...] = (10, 20, 50)
    rs: tuple[int, ...] = ()
    """Numbers of observed items; a range from 0 to n - 2 unless given."""
    ks: tuple[int, ...] = KS
    on: str = "test"
    """The users to measure on: "test", or "validation" to choose settings by."""
    lists: int = 1000
    """How many lists at least, as many of each user."""
    asked: Asked = ASKED
    calibrate: bool = True


def parts(data: Ratings | str | Path, seed: int = 0) -> tuple[Ratings, Ratings, Ratings]:
    """Training, validation and test users of ratings, or of a file that ``Ratings.save`` wrote."""
    ratings = data if isinstance(data, Ratings) else Ratings.load(data)
    return ratings.split(validation=0.1, test=0.1, seed=seed)


def learn(
    setting: Setting, data: Ratings | str | Path, out: str | Path | None = None, **options: Any
) -> Ranker:
    """Train a ranker on the training users; the weights are those that are best on validation users.

    ``options`` go to ``train``: ``max_seconds``, ``device``, ``compile``, … The same call resumes the run in
    ``out``.
    """
    train, validation, _ = parts(data)
    setting = replace(setting, precision=options.get("precision", setting.precision))
    if len(validation.users_with(setting.n)):
        options = {"watch": watcher(setting, train, validation)} | options
    return Ranker.fit(train, validation, setting=setting, out=out, **options)


def watcher(setting: Setting, train: Ratings, validation: Ratings) -> Callable[[Any], dict[str, float]]:
    """Measures a model in training: NDCG of the unobserved items on lists of n of validation users."""
    gains = mean_gains(train, setting.n, torch.Generator().manual_seed(0))
    lists = make_lists(validation, setting.n, lists=256)
    rs = [0, setting.n // 4, setting.n // 2] if setting.code == "insertion" else [0]
    asked = Asked(references=2, samples=32)
    k = 10 if setting.n > 10 else 5

    def watch(trained: Any) -> dict[str, float]:
        model = getattr(trained, "model", trained)  # a ranker's model may train inside of its objective
        ranker = Ranker(model, Catalogue(train.ids), gains, setting)
        seen = {}
        for r in rs:
            with narrow(ranker):
                order = rerank_scores.ranked(ranker, lists, r, asked)[0]
            (row,) = rerank_scores.score_row(lists, order, r, [k])
            seen[f"ndcg_r{r}"] = row["ndcg_unobserved"]
        return seen

    return watch


def evaluate(
    ranker: Ranker,
    data: Ratings | str | Path,
    measured: Evaluation | None = None,
    *,
    scored: dict[str, Tensor] | None = None,
    **about: Any,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of a ranker, and rows of its calibration; ``about`` is added to each.

    Sizes n that the model has not learnt are left out, and those that nobody has ratings for. ``scored`` is
    filled with what each user got: see :mod:`factorank.experiments.rerank_leads`.
    """
    measured = Evaluation() if measured is None else measured
    ratings = parts(data)[1 if measured.on == "validation" else 2]
    model, asked = ranker.model, measured.asked
    setting = ranker.setting
    common = {
        "experiment": "rerank",
        "data": ratings.source,
        "method": "factorank",
        "layout": None if setting is None else setting.layout,
        "code": model.code.name,
        "objective": model.objective,
        "unmask": "left-to-right" if model.causal else None,
        "reads": ranker.told,
        "by": asked.by,
        "references": asked.references,
        "on": measured.on,
        "seed": asked.seed,
        "parameters": beside_items(ranker),
    }
    rows, bins = [], []
    for n in _sizes(measured, ranker.lengths, ratings):
        lists = make_lists(ratings, n, seed=asked.seed, lists=measured.lists)
        nfe = n if model.causal else asked.nfe or 1
        here = common | {"nfe": nfe} | about
        rs = _rs(measured, n, ordered=model.code.name == "insertion")
        started = time.perf_counter()
        some = {0, rs[len(rs) // 2], rs[-1]} if measured.calibrate else ()
        with narrow(ranker):
            found, binned = rerank_scores.score_ranker(ranker, lists, rs, measured.ks, asked, tuple(some))
        seconds = round(time.perf_counter() - started, 2)
        rows += [here | row | {"seconds": seconds} for row in found]
        bins += [here | row | {"experiment": "rerank-calibration"} for row in binned]
        if scored is not None:
            scored |= {f"{asked.seed}/{cell}": values for cell, values in lists.scored.items()}
    return rows, bins


def narrow(ranker: Ranker) -> torch.autocast:
    """The precision that the ranker was trained in."""
    in_bf16 = ranker.setting is not None and ranker.setting.precision == "bf16"
    return torch.autocast(ranker.device.type, torch.bfloat16, enabled=in_bf16)


def beside_items(ranker: Ranker) -> int:
    """The number of parameters beside the table of items."""
    total = sum(parameter.numel() for parameter in ranker.model.parameters())
    return total - ranker.model.context.embedding.weight.numel()  # type: ignore[union-attr,operator]


def run(
    settings: Sequence[Setting],
    data: Ratings | str | Path,
    out: str | Path,
    *,
    measured: Evaluation | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Train and evaluate rankers one after the other, and write what was found.

    ``out/<name>`` is the run of each setting, with its ``rows.jsonl`` and ``calibration.jsonl`` once it is
    evaluated: such a setting is not run again, and refused if the setting, the data or what is measured is
    another now. ``out/rerank.jsonl`` and ``out/rerank-calibration.jsonl`` hold all of them, and
    ``out/rerank-leads.jsonl`` how far rankers are ahead of baselines, user by user. A run that
    ``max_seconds`` ended is evaluated as it stands.
    """
    measured = Evaluation() if measured is None else measured
    names = [setting.name for setting in settings]
    if twice := [name for name in names if names.count(name) > 1]:
        raise FactorankError(f"two settings are called {twice[0]}; give them labels")
    ratings = data if isinstance(data, Ratings) else Ratings.load(data)
    out = Path(out)
    for name, setting in zip(names, settings, strict=True):
        folder = out / name
        about = provenance(call_of(setting, measured))
        asked = replace(measured.asked, seed=setting.seed)
        facts = {
            "setting": setting,
            "data": fingerprint(ratings),
            "measured": replace(measured, asked=asked),
        }
        if measured_already(folder, facts):
            continue
        started = time.perf_counter()
        ranker = learn(setting, ratings, folder, **options)
        if ranker.result is not None and ranker.result.stopped == "interrupted":
            break
        trained = trained_facts(setting, ranker, time.perf_counter() - started)
        scored: dict[str, Tensor] = {}
        rows, bins = evaluate(ranker, ratings, replace(measured, asked=asked), scored=scored, **trained)
        write_results(folder / "calibration.jsonl", [row | about for row in bins])
        write_rows(folder, facts, [row | about for row in rows], scored)
    return gather(out)


def call_of(setting: Setting, measured: Evaluation) -> str:
    """The call that makes the rows of a setting, in terms of the preset that it differs from least.

    >>> call_of(preset("paper", seed=1), Evaluation(ns=(20,)))
    "factorank.experiments.rerank.run([preset('paper', seed=1)], data, out, measured=Evaluation(ns=(20,)))"
    """
    changes = {name: _changes(setting, base) for name, base in PRESETS.items()}
    if setting.objective == "autoregressive":  # preset() adds these masks by itself
        changes = {name: [one for one in some if one != "masks='any'"] for name, some in changes.items()}
    nearest = min(changes, key=lambda name: len(changes[name]))
    words = ", ".join([repr(nearest), *changes[nearest]])
    return f"factorank.experiments.rerank.run([preset({words})], data, out{_measured(measured)})"


def _measured(measured: Evaluation) -> str:
    """What is measured, as a last argument, if it is not as usual."""
    how = _changes(replace(measured, asked=ASKED), Evaluation())
    if asked := _changes(replace(measured.asked, seed=ASKED.seed), ASKED):
        how.append(f"asked=Asked({', '.join(asked)})")
    return f", measured=Evaluation({', '.join(how)})" if how else ""


def _changes(some: Any, base: Any) -> list[str]:
    """The fields of a dataclass that differ from those of another, as keywords."""
    both = ((one.name, getattr(some, one.name), getattr(base, one.name)) for one in fields(some))
    return [f"{name}={value!r}" for name, value, usual in both if value != usual]


def trained_facts(setting: Setting, ranker: Ranker, seconds: float) -> dict[str, Any]:
    """What belongs in each row of how the ranker was trained."""
    kept = (
        "label",
        "known",
        "masks",
        "width",
        "depth",
        "heads",
        "dropout",
        "item_dropout",
        "features",
        "rank",
        "shortest",
    )
    facts = {name: value for name, value in asdict(setting).items() if name in kept}
    facts["features"] = "+".join(setting.features)
    facts["trained_n"] = setting.n
    result = ranker.result
    if result is not None:
        facts |= {
            "trained_steps": result.steps,
            "train_seconds": round(result.seconds, 1),
            "held_out_nats": result.held_out,
        }
    return facts


def evaluate_baselines(
    names: Sequence[str],
    data: Ratings | str | Path,
    out: str | Path,
    *,
    measured: Evaluation | None = None,
    seeds: Sequence[int] = (0,),
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Measure baselines as :func:`run` does rankers; those whose rows are in ``out`` are not run again.

    ``options`` are of their classes, by name: ``{"score-and-sort": {"steps": 20_000, "width": 128}}``.
    """
    measured = Evaluation() if measured is None else measured
    ratings = data if isinstance(data, Ratings) else Ratings.load(data)
    for name in names:
        folder, own = Path(out) / f"baseline-{name}", dict((options or {}).get(name, {}))
        facts = {
            "options": own,
            "data": fingerprint(ratings),
            "measured": measured,
            "seeds": list(seeds),
        }
        if not measured_already(folder, facts):
            scored: dict[str, Tensor] = {}
            words = f"[{name!r}], data, out, seeds={list(seeds)}" + (
                f", options={{{name!r}: {own}}}" if own else ""
            )
            command = f"factorank.experiments.rerank.evaluate_baselines({words}{_measured(measured)})"
            how: dict[str, Any] = {"seeds": seeds, "options": own, "command": command, "scored": scored}
            write_rows(folder, facts, baseline_rows(name, ratings, measured, **how), scored)
    return gather(out)


def baseline_rows(
    name: str,
    data: Ratings | str | Path,
    measured: Evaluation | None = None,
    *,
    seeds: Sequence[int] = (0,),
    options: Mapping[str, Any] | None = None,
    command: str = "factorank.experiments.rerank.baseline_rows",
    scored: dict[str, Tensor] | None = None,
) -> list[dict[str, Any]]:
    """Fit a baseline for each n, tuned on validation users, and measure it on the same lists as rankers."""
    from factorank.baselines import rankers

    measured = Evaluation() if measured is None else measured
    train, validation, test = parts(data)
    tested = validation if measured.on == "validation" else test
    about = provenance(command)
    rows = []
    for n in _sizes(measured, None, tested):
        started = time.perf_counter()
        own = dict(options or {})
        baseline = rankers.ranker(name, **own).fit(
            train, validation, n=n, observed=tuned_rs(n), k=10 if n > 10 else 5
        )
        fit_seconds = round(time.perf_counter() - started, 2)
        for seed in seeds:
            lists = make_lists(tested, n, seed=seed, lists=measured.lists)
            started = time.perf_counter()
            found = list(rerank_scores.score_baseline(baseline, lists, _rs(measured, n), measured.ks))
            here = {
                "experiment": "rerank",
                "data": tested.source,
                "method": name,
                "layout": None,
                "code": None,
                "objective": None,
                "unmask": None,
                "nfe": None,
                "on": measured.on,
                "seed": seed,
                "reads": baseline.reads,
                "settings": json.dumps(own | baseline.settings),
                "fit_seconds": fit_seconds,
                "seconds": round(time.perf_counter() - started, 2),
            }
            rows += [here | row | about for row in found]
            if scored is not None:
                scored |= {f"{seed}/{cell}": values for cell, values in lists.scored.items()}
    return rows


def tuned_rs(n: int) -> list[int]:
    """Numbers of observed items that baselines are tuned at: from 1 to n - 5, as far as they are compared.

    >>> tuned_rs(50), tuned_rs(10)
    ([1, 5, 10, 25, 45], [1, 2, 5])
    """
    return sorted({max(1, r) for r in (1, n // 10, n // 5, n // 2, n - 5) if r <= n - 5}) or [1]


def _sizes(measured: Evaluation, lengths: range | None, ratings: Ratings) -> list[int]:
    longest = int(ratings.lengths.max())
    sizes = [n for n in measured.ns if n <= longest and (lengths is None or n in lengths)]
    if not sizes:
        raise FactorankError(
            f"none of the sizes n = {measured.ns} can be measured: users have up to {longest} ratings"
            + ("" if lengths is None else f", the model takes {lengths.start}..{lengths.stop - 1}")
        )
    return sizes


def _rs(measured: Evaluation, n: int, ordered: bool = True) -> list[int]:
    rs = [r for r in measured.rs if 0 <= r <= n - 2] if measured.rs else default_rs(n)
    if not rs:
        raise FactorankError(f"of n = {n} items 0 to {n - 2} can be observed, not r = {measured.rs}")
    return rs if ordered else [r for r in rs if r <= 1]
