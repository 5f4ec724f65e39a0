"""Re-ranking: the order of a list of items for a user who has ordered some of them, with probabilities."""

from factorank.rerank.ranker import Ranker
from factorank.rerank.reranking import Reranking
from factorank.rerank.settings import Setting, preset

__all__ = ["Ranker", "Reranking", "Setting", "preset"]
