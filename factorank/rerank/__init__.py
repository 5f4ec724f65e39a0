"""Re-ranking: the order of a list of items for a user who has ordered or rated some of them.

:class:`Ranker` learns from a table of ratings and answers with :class:`Reranking`: an order, and for each
item its mean place, an interval for it and the probability of being among the first k.

>>> import factorank as fr
>>> columns = zip(*[(user, item, (item + user) % 3) for user in range(40) for item in range(6)])
>>> table = fr.Ratings.from_rows(*map(list, columns))
>>> setting = fr.rerank.preset("small", n=6, shortest=2, width=16, heads=2, rank=2, steps=5)
>>> ranker = fr.Ranker.fit(table, setting=setting, device="cpu")
>>> answer = ranker.rerank(items=[0, 1, 2, 3], observed=[5, 4], k=2)
>>> answer.items.index(5) < answer.items.index(4)  # the observed order is kept
True
>>> recommended = ranker.recommend([5, 4], k=2)  # of all items
>>> len(recommended.items), 5 in recommended.items
(2, False)
>>> next(iter(answer))._fields
('item', 'place', 'low', 'high', 'top', 'observed')

In the room: :class:`Setting` and :func:`preset` (the network and its training), :class:`Catalogue` (items by
id and title), :func:`read_user` (a user's preferences from a CSV file), :func:`evaluate` (NDCG with standard
errors, calibration and leads over baselines, on users that were not trained on). Below them: ``choosing``
(the setting that suits a machine and a table), ``encoder`` and ``taste`` (tokens of items), ``objective``
(the training loss), ``place_probabilities`` (the law of a list given what is observed), ``expected_gain``
(the list with the largest expected gain).
"""

from factorank.arguments import guard
from factorank.rerank import evaluation
from factorank.rerank.catalogue import Catalogue, read_user
from factorank.rerank.evaluation import Evaluation, Scores, evaluate
from factorank.rerank.lists import Lists
from factorank.rerank.ranker import Ranker
from factorank.rerank.reranking import Query, RankedItem, Reranking
from factorank.rerank.settings import PRESETS, Setting, preset

__all__ = [
    "PRESETS",
    "Catalogue",
    "Evaluation",
    "Lists",
    "Query",
    "RankedItem",
    "Ranker",
    "Reranking",
    "Scores",
    "Setting",
    "evaluate",
    "evaluation",
    "preset",
    "read_user",
]

guard(__name__, __all__)
