"""Re-ranking from partial preferences (the paper's third experiment): MovieLens, Jester, any ratings.

A list is n of a user's ratings in random order. The order of the first r is observed, and the rest is to be
ranked. Users are split into those trained on, those that settings are chosen by, and those tested on. All
methods rank the same lists with the same observed items (:mod:`factorank.rerank.evaluation`).
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from factorank.data.ratings import Ratings
from factorank.experiments import record
from factorank.experiments.record import changes, keywords
from factorank.files import read_json_lines, write_whole
from factorank.rerank import PRESETS, Catalogue, Query, Ranker, Setting
from factorank.rerank.evaluation import Evaluation, draw_lists, evaluate_baseline, lead_rows
from factorank.rerank.evaluation import evaluate as evaluate_ranker
from factorank.rerank.evaluation.scores import ranked, score_order, training_precision
from factorank.rerank.expected_gain import mean_gains
from factorank.rerank.users import split_users

USERS = "users.safetensors"
"""The file of a run with the NDCG of the unobserved items of each user, by ``seed/n/r/k``."""
TRAINED = ("label", "reference", "masks", "width", "depth", "heads", "dropout", "item_dropout", "rank")
"""Settings that every row of a ranker holds."""
USUAL = Evaluation()


def run(
    settings: Sequence[Setting],
    ratings: Ratings,
    out: str | Path,
    *,
    evaluation: Evaluation = USUAL,
    on: str = "test",
    **options: Any,
) -> list[dict[str, Any]]:
    """Train and evaluate rankers one after the other, and write their rows.

    ``out/<name>`` is the run of each setting, with its ``rows.jsonl`` and ``calibration.jsonl`` once it is
    evaluated: such a setting is not run again, and refused if the setting, the data or the evaluation
    differs now. ``out/rerank.jsonl`` and ``out/rerank-calibration.jsonl`` hold all of them, and
    ``out/rerank-leads.jsonl`` how far rankers are ahead of baselines, user by user. A run that
    ``max_seconds`` ended is evaluated as it stands. ``on`` names the users to measure on: "test", or
    "validation" to choose settings by.
    """
    record.check_names([setting.name for setting in settings])
    out = Path(out)
    for setting in settings:
        folder, seeded = out / setting.name, replace(evaluation, seed=setting.seed)
        facts = {"setting": setting, "data": fingerprint(ratings), "evaluation": seeded, "on": on}
        if record.measured_already(folder, facts):
            continue
        source = record.provenance(call_of(setting, evaluation, on))
        users = split_users(ratings)
        ranker = learn(setting, users, folder, **options)
        if ranker.result is not None and ranker.result.stopped == "interrupted":
            break
        user_scores: dict[str, Tensor] = {}
        rows, bins = evaluate(ranker, users[on], seeded, on=on, user_scores=user_scores)
        record.write_results(folder / "calibration.jsonl", [row | source for row in bins])
        write_whole(folder / USERS, save(user_scores))
        record.write_measured(folder, facts, [row | source for row in rows])
    return gather(out)


def learn(
    setting: Setting, users: dict[str, Ratings], out: str | Path | None = None, **options: Any
) -> Ranker:
    """Train a ranker on the training users; the weights are those that are best on validation users.

    ``options`` go to ``train``: ``max_seconds``, ``device``, ``compile``, … The same call resumes the run in
    ``out``.
    """
    setting = replace(setting, precision=options.get("precision", setting.precision))
    if len(users["validation"].users_with(setting.n)):
        options = {"watch": watcher(setting, users["train"], users["validation"])} | options
    validation, test = users["validation"], users["test"]
    return Ranker.fit(users["train"], validation, test=test, setting=setting, out=out, **options)


def watcher(setting: Setting, train: Ratings, validation: Ratings) -> Callable[[Any], dict[str, float]]:
    """Measures a model in training: NDCG of the unobserved items on lists of n of validation users."""
    gains = mean_gains(train, setting.n, torch.Generator().manual_seed(0))
    lists = draw_lists(validation, setting.n, lists=256)
    rs = [0, setting.n // 4, setting.n // 2] if setting.code == "insertion" else [0]
    k = 10 if setting.n > 10 else 5

    def watch(trained: Any) -> dict[str, float]:
        model = getattr(trained, "model", trained)  # a ranker's model may train inside of its objective
        ranker = Ranker(model, Catalogue(train.ids), gains, setting)
        scores = {}
        for r in rs:
            with training_precision(ranker):
                order = ranked(ranker, lists, r, Query(references=2, samples=32))[0]
            (row,) = score_order(lists, order, r, [k])
            scores[f"ndcg_r{r}"] = row["ndcg_unobserved"]
        return scores

    return watch


def evaluate(
    ranker: Ranker,
    ratings: Ratings,
    evaluation: Evaluation = USUAL,
    *,
    on: str = "test",
    user_scores: dict[str, Tensor] | None = None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of a ranker on the ratings of other users, which ``on`` names, and rows of its calibration."""
    scores = evaluate_ranker(ranker, ratings, evaluation)
    rows, bins = scores.rows, scores.calibration
    if user_scores is not None:
        user_scores.update(scores.by_user["factorank"])
    model, setting = ranker.model, ranker.setting
    about = {
        "data": ratings.source,
        "method": "factorank",
        "layout": None if setting is None else setting.layout,
        "code": model.code.name,
        "objective": model.objective,
        "unmask": "left-to-right" if model.causal else None,
        "reads": ranker.told,
        "by": evaluation.query.by,
        "references": evaluation.query.references,
        "on": on,
        "by_time": evaluation.by_time,
        "seed": evaluation.seed,
    } | trained_facts(ranker)
    return (
        [{"experiment": "rerank"} | about | row for row in rows],
        [{"experiment": "rerank-calibration"} | about | row for row in bins],
    )


def evaluate_baselines(
    names: Sequence[str],
    ratings: Ratings,
    out: str | Path,
    *,
    evaluation: Evaluation = USUAL,
    on: str = "test",
    seeds: Sequence[int] = (0,),
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Measure baselines as :func:`run` does rankers; those whose rows are in ``out`` are not run again.

    ``options`` are of their classes, by name: ``{"score-and-sort": {"steps": 20_000, "width": 128}}``.
    """
    for name in names:
        folder, own = Path(out) / f"baseline-{name}", dict((options or {}).get(name, {}))
        facts = {"options": own, "data": fingerprint(ratings), "evaluation": evaluation}
        facts |= {"on": on, "seeds": list(seeds)}
        if record.measured_already(folder, facts):
            continue
        words = f"[{name!r}], data, out" + _last_arguments(evaluation, on) + f", seeds={list(seeds)}"
        words += f", options={{{name!r}: {own}}}" if own else ""
        source = record.provenance(f"factorank.experiments.rerank.evaluate_baselines({words})")
        user_scores: dict[str, Tensor] = {}
        rows = baseline_rows(
            name, split_users(ratings), evaluation, on=on, seeds=seeds, options=own, user_scores=user_scores
        )
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / USERS, save(user_scores))
        record.write_measured(folder, facts, [row | source for row in rows])
    return gather(out)


def baseline_rows(
    name: str,
    users: dict[str, Ratings],
    evaluation: Evaluation = USUAL,
    *,
    on: str = "test",
    seeds: Sequence[int] = (0,),
    options: Mapping[str, Any] | None = None,
    user_scores: dict[str, Tensor] | None = None,
) -> list[dict[str, Any]]:
    """Fit a baseline for each n, tuned on validation users, and measure it on the same lists as rankers."""
    from factorank.baselines import rankers

    own, rows = dict(options or {}), []
    for n in evaluation.sizes(users[on]):
        started = time.perf_counter()
        baseline = rankers.ranker(name, **own)
        baseline.fit(users["train"], users["validation"], n=n, k=10 if n > 10 else 5)
        about = {
            "experiment": "rerank",
            "data": users["train"].source,
            "method": name,
            **dict.fromkeys(("layout", "code", "objective", "unmask", "nfe")),
            "on": on,
            "by_time": evaluation.by_time,
            "reads": baseline.reads,
            "settings": json.dumps(own | baseline.settings),
            "fit_seconds": round(time.perf_counter() - started, 2),
        }
        for seed in seeds:
            scores = evaluate_baseline(
                baseline, users[on], n, replace(evaluation, seed=seed), user_scores=user_scores
            )
            rows += [about | {"seed": seed} | row for row in scores]
    return rows


def gather(out: str | Path) -> list[dict[str, Any]]:
    """The rows of all evaluated runs of a folder, written to one file, and the leads over baselines."""
    out = Path(out)
    rows, bins = record.gather_rows(out, "rows"), record.gather_rows(out, "calibration")
    ahead = lead_rows(
        (own[0], load_file(file.with_name(USERS)))
        for file in sorted(out.glob("*/rows.jsonl"))
        if file.with_name(USERS).exists() and (own := read_json_lines(file))
    )
    for name, written in (("rerank", rows), ("rerank-calibration", bins), ("rerank-leads", ahead)):
        if written:
            record.write_results(out / f"{name}.jsonl", written)
    return rows


def call_of(setting: Setting, evaluation: Evaluation, on: str = "test") -> str:
    """The call that makes the rows of a setting, in terms of the preset that it differs from least.

    >>> from factorank.rerank import preset
    >>> call_of(preset("paper", seed=1), Evaluation(ns=(20,)))
    "factorank.experiments.rerank.run([preset('paper', seed=1)], data, out, evaluation=Evaluation(ns=(20,)))"
    """
    added = "masks='any'" if setting.objective == "autoregressive" else None  # by preset() itself
    differing = {
        name: [word for word in keywords(changes(setting, base)) if word != added]
        for name, base in PRESETS.items()
    }
    nearest = min(differing, key=lambda name: len(differing[name]))
    words = ", ".join([repr(nearest), *differing[nearest]])
    return f"factorank.experiments.rerank.run([preset({words})], data, out{_last_arguments(evaluation, on)})"


def _last_arguments(evaluation: Evaluation, on: str) -> str:
    """The evaluation and the users as last arguments, where they are not the defaults."""
    words = keywords(changes(replace(evaluation, query=USUAL.query, seed=USUAL.seed), USUAL))
    if evaluation.query != USUAL.query:
        words.append(f"query=Query({', '.join(keywords(changes(evaluation.query, Query())))})")
    arguments = f", evaluation=Evaluation({', '.join(words)})" if words else ""
    return arguments if on == "test" else f"{arguments}, {on=}"


def trained_facts(ranker: Ranker) -> dict[str, Any]:
    """The settings, the size and the results of a ranker's training, for its rows."""
    model, setting, result = ranker.model, ranker.setting, ranker.result
    table = model.context.embedding.weight  # type: ignore[union-attr]
    beside_items = sum(parameter.numel() for parameter in model.parameters()) - table.numel()  # type: ignore[operator]
    facts: dict[str, Any] = {"parameters": beside_items}
    if setting is not None:
        facts |= {name: value for name, value in asdict(setting).items() if name in TRAINED}
        facts |= {"features": "+".join(setting.features or ()), "shortest": setting.shortest}
        facts["trained_n"] = setting.n
    if result is not None:
        seconds = round(result.seconds, 1)
        facts |= {"trained_steps": result.steps, "train_seconds": seconds, "held_out_nats": result.held_out}
    return facts


def fingerprint(ratings: Ratings) -> str:
    """A digest of all ratings."""
    digest = hashlib.sha256()
    for array in (ratings.starts, ratings.items, ratings.values):
        digest.update(array.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
