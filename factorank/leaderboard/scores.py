"""Scores of items on tasks, such as benchmarks: a leaderboard whose uncertainty is that of the tasks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.errors import RankingsError
from factorank.leaderboard.columns import Place, columns_of, row_name

FEWEST_TASKS = 2


@dataclass(frozen=True)
class ScoreTable:
    """The score of each item on each task, float64 ``(items, tasks)``; larger is better."""

    items: tuple[str, ...]
    tasks: tuple[str, ...]
    scores: np.ndarray

    def mean(self) -> Tensor:
        """The mean over the tasks, less the mean over the items: ``(n,)``."""
        means = torch.from_numpy(self.scores).mean(1)
        return means - means.mean()

    def covariance(self) -> Tensor:
        """The covariance ``(n, n)`` of the means, the tasks being a sample of those there could be."""
        values = torch.from_numpy(self.scores)
        values = values - values.mean(0)  # a task that is hard for all says nothing of the order
        values = values - values.mean(1, keepdim=True)
        return values @ values.T / (values.shape[1] - 1) / values.shape[1]

    def refits(self, sets: int, generator: torch.Generator | None) -> Tensor:
        """The means ``(sets, n)`` over tasks drawn with replacement."""
        values = torch.from_numpy(self.scores)
        values = values - values.mean(0)
        tasks = values.shape[1]
        drawn = torch.randint(tasks, (sets, tasks), generator=generator)
        times = torch.zeros((sets, tasks), dtype=values.dtype)
        times.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=values.dtype))
        return times @ values.T / tasks


def score_table(table: Any, place: Place = row_name) -> ScoreTable:
    """Scores from a table: columns ``item``, ``task``, ``score``, or one row an item and one column a task.

    The first column that is not a number names the items. Every item has a score on every task.

    >>> score_table({"item": ["x", "y"], "maths": [0.5, 0.6], "law": [1.0, 0.0]}).scores
    array([[0.5, 1. ],
           [0.6, 0. ]])
    """
    columns = columns_of(table)
    lower = {name.strip().lower(): name for name in columns}
    names = {
        what: next((lower[word] for word in words if word in lower), "")
        for what, words in {
            "item": ("item", "model", "name", "player"),
            "task": ("task", "question", "benchmark", "dataset"),
            "score": ("score", "value", "accuracy"),
        }.items()
    }
    if names["item"] and names["task"] and names["score"]:
        item, task, score = (np.asarray(columns[names[what]]) for what in ("item", "task", "score"))
        return _long(item, task, score, names["score"], place)
    if len(columns) < 2:
        there = f"only {next(iter(columns))!r}" if columns else "none"
        raise RankingsError(f"a table of scores has a column of items and one a task, but there is {there}")
    key = names["item"] or next(iter(columns))
    tasks = [name for name in columns if name != key]
    items = _names(np.asarray(columns[key]), key, place)
    scores = np.column_stack([_numbers(np.asarray(columns[task]), task, place) for task in tasks])
    return _checked(items, tuple(tasks), scores)


def _long(item: np.ndarray, task: np.ndarray, score: np.ndarray, column: str, place: Place) -> ScoreTable:
    values = _numbers(score, column, place)
    items, row_of = np.unique(item.astype(str), return_inverse=True)
    tasks, column_of = np.unique(task.astype(str), return_inverse=True)
    cells = row_of.reshape(-1) * len(tasks) + column_of.reshape(-1)
    _, first, counts = np.unique(cells, return_index=True, return_counts=True)
    if (counts > 1).any():
        row = int(np.flatnonzero(cells == cells[first[(counts > 1).argmax()]])[1])
        raise RankingsError(f"{place(row)}: {str(item[row])!r} has a score on {str(task[row])!r} already")
    table = np.full(len(items) * len(tasks), np.nan)
    table[cells] = values
    missing = np.isnan(table)
    if missing.any():
        cell = int(missing.argmax())
        raise RankingsError(
            f"{str(items[cell // len(tasks)])!r} has no score on {str(tasks[cell % len(tasks)])!r}; a"
            " leaderboard compares items on the same tasks"
        )
    return _checked(tuple(items.tolist()), tuple(tasks.tolist()), table.reshape(len(items), len(tasks)))


def _names(column: np.ndarray, name: str, place: Place) -> tuple[str, ...]:
    items = tuple("" if value is None else str(value) for value in column.tolist())
    met: dict[str, int] = {}
    for row, item in enumerate(items):
        if not item:
            raise RankingsError(f"{place(row)}: column {name!r} holds no name")
        if item in met:
            raise RankingsError(f"{place(row)}: item {item!r} has a row already, {place(met[item])}")
        met[item] = row
    return items


def _numbers(column: np.ndarray, name: str, place: Place) -> np.ndarray:
    result = np.empty(len(column))
    for row, value in enumerate(column.tolist()):
        try:
            result[row] = float(value)
        except (TypeError, ValueError):
            result[row] = np.nan
        if not np.isfinite(result[row]):
            raise RankingsError(f"{place(row)}: column {name!r} holds {value!r}, not a score")
    return result


def _checked(items: tuple[str, ...], tasks: tuple[str, ...], scores: np.ndarray) -> ScoreTable:
    if len(items) < 2:
        there = f"only {items[0]!r}" if items else "none"
        raise RankingsError(f"a leaderboard ranks at least two items, but there is {there}")
    if len(tasks) < FEWEST_TASKS:
        raise RankingsError(f"ranks are compared over at least {FEWEST_TASKS} tasks; there is {len(tasks)}")
    return ScoreTable(items, tasks, scores)
