"""Leaderboards: who is really ahead of whom, from battles, with the uncertainty of scores and ranks."""

from factorank.arguments import guard
from factorank.leaderboard.battles import BattleTable, battle_table
from factorank.leaderboard.board import Leaderboard
from factorank.leaderboard.ranks import (
    RankSets,
    bonferroni_rank_sets,
    marginal_rank_sets,
    naive_rank_sets,
    simultaneous_rank_sets,
)
from factorank.leaderboard.reading import read_board
from factorank.leaderboard.scores import ScoreTable, score_table

__all__ = [
    "BattleTable",
    "Leaderboard",
    "RankSets",
    "ScoreTable",
    "battle_table",
    "bonferroni_rank_sets",
    "marginal_rank_sets",
    "naive_rank_sets",
    "read_board",
    "score_table",
    "simultaneous_rank_sets",
]

guard(__name__, __all__)
