"""Answers for many users on a cluster: the parts of :mod:`factorank.rerank.streaming` on the workers of Ray.

Each worker holds the ranker and makes whole parts, one after the other. The table of users and the folder of
answers are on a file system that all machines share. A run that was stopped goes on with the parts that are
missing, with or without Ray.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from factorank.errors import FactorankError
from factorank.rerank.ranker import Ranker
from factorank.rerank.reranking import REFERENCES
from factorank.rerank.streaming import begin_answers, predict_table


def predict_on_ray(
    run: str | os.PathLike[str],
    users: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    workers: int = 2,
    threads: int = 1,
    k: int = 10,
    rows: int = 8192,
    references: int = REFERENCES,
) -> Iterator[tuple[int, int]]:
    """Answer for the users of a parquet table on ``workers`` processes of Ray, each with so many ``threads``.

    Ray must be running or startable: ``ray.init(address=…)`` before the call chooses a cluster, and otherwise
    one starts on this machine. The rest is as for :func:`predict_table`: it yields the rows done and all
    rows, after each part, and the answers are the same.
    """
    try:
        import ray
        import ray.data
    except ImportError:
        raise FactorankError("answers on a cluster need Ray: pip install 'factorank[ray]'") from None
    if workers < 1 or threads < 1:
        raise FactorankError(f"at least one worker and one thread are needed, not {workers} and {threads}")
    run, users, out = (str(Path(path).resolve()) for path in (run, users, out))
    plan = begin_answers(Ranker.load(run), users, out, k=k, rows=rows, references=references)
    done = sum(plan.size(part) for part in plan.made)
    if done:
        yield done, plan.total
    if not plan.missing:
        return
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    asked = {"k": k, "rows": rows, "references": references}
    parts = ray.data.from_items(
        [{"part": part} for part in plan.missing], override_num_blocks=len(plan.missing)
    )
    answered = parts.map_batches(
        _Worker,
        fn_constructor_args=(run, users, out, asked, threads),
        batch_size=1,
        num_cpus=threads,
        concurrency=min(workers, len(plan.missing)),
    )
    for row in answered.iter_rows():
        done += plan.size(int(row["part"]))
        yield done, plan.total


class _Worker:
    """Loads the ranker once and makes the parts that it is given."""

    def __init__(self, run: str, users: str, out: str, asked: dict[str, Any], threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.ranker, self.users, self.out, self.asked = Ranker.load(run), users, out, asked

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        parts = [int(part) for part in batch["part"]]
        for _ in predict_table(self.ranker, self.users, self.out, parts=parts, **self.asked):
            pass
        return batch
