"""Leaderboards: who is really ahead of whom, from battles, with the uncertainty of scores and ranks."""

from factorank.leaderboard.battles import BattleTable, battle_table
from factorank.leaderboard.board import Leaderboard
from factorank.leaderboard.ranks import (
    RankSets,
    bonferroni_rank_sets,
    marginal_rank_sets,
    naive_rank_sets,
    simultaneous_rank_sets,
)

__all__ = [
    "BattleTable",
    "Leaderboard",
    "RankSets",
    "battle_table",
    "bonferroni_rank_sets",
    "marginal_rank_sets",
    "naive_rank_sets",
    "simultaneous_rank_sets",
]
