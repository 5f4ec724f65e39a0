"""How well a ranker ranks: NDCG on users that were not trained on, calibration, leads over baselines.

A list is n of a user's ratings in random order. The first r are observed, and the rest is to be ranked. All
methods rank the same lists with the same observed items.

>>> import factorank as fr
>>> columns = zip(*[(user, item, (item + user) % 3) for user in range(60) for item in range(6)])
>>> train, _, test = fr.Ratings.from_rows(*map(list, columns)).split()
>>> setting = fr.rerank.preset("small", n=6, shortest=2, width=16, heads=2, rank=2, steps=5)
>>> ranker = fr.Ranker.fit(train, setting=setting, device="cpu")
>>> scores = fr.rerank.evaluate(ranker, test, Evaluation(ns=(6,), rs=(0, 3), ks=(5,), lists=20))
>>> [(row["n"], row["r"], row["k"], 0 < row["ndcg_unobserved"] <= 1) for row in scores.rows]
[(6, 0, 5, True), (6, 3, 5, True)]
"""

from factorank.rerank.evaluation.calibration import bits, calibration
from factorank.rerank.evaluation.protocol import Evaluation, EvaluationLists, draw_lists
from factorank.rerank.evaluation.scores import (
    Scores,
    affordable,
    evaluate,
    evaluate_baseline,
    fitted_baselines,
    lead_rows,
    leads,
    leads_over_baselines,
)

__all__ = [
    "Evaluation",
    "EvaluationLists",
    "Scores",
    "affordable",
    "bits",
    "calibration",
    "draw_lists",
    "evaluate",
    "evaluate_baseline",
    "fitted_baselines",
    "lead_rows",
    "leads",
    "leads_over_baselines",
]
