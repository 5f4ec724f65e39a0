"""Votes: the room of the statistician, who fits laws to rankings of named items.

* Read and write rankings: :func:`read_votes` for strict rankings that are ready to be fitted,
  :func:`read_rankings` and :func:`write_rankings` for any, :class:`Rankings` for those in memory.
* Fit: :func:`fit_family` fits a law of one of the :data:`FAMILIES` with :class:`FitSettings`, mixtures
  included. Top lists and rankings of subsets are fitted where the family allows it.
* Judge: :func:`compare` scores all families on held-out voters, :func:`bootstrap` refits a law to voters
  drawn with replacement, :func:`summary` gives consensus, parameters and their intervals. :func:`goodness`
  sets first places, pairs and places beside those that a law expects. :func:`likelihood_ratio` tests a law
  against a larger one, :func:`against_smaller` against the next smaller family. :func:`pairwise` and
  :func:`consensus_methods` look at the votes alone.
* Believe: :func:`mallows_posterior` and :func:`plackett_luce_posterior`.
* Use: :func:`log_prob` and :func:`bits` give the probability of rankings, partial ones included.
  :func:`open_law` opens a saved law or a trained model. :func:`training_orders` gives the orders that
  :func:`factorank.train` learns from.
* Learn: :func:`train_networks` tries networks of several codes and mixes the best into a law.

>>> import torch
>>> from factorank import Mallows, votes
>>> orders = Mallows([2, 0, 3, 1], 0.4).sample((200,), generator=torch.Generator().manual_seed(0))
>>> rankings = votes.Rankings.from_orders(orders, ["ann", "bob", "cat", "dan"])
>>> law = votes.fit_family("mallows", rankings)
>>> [rankings.items[item] for item in law.mode]
['cat', 'ann', 'dan', 'bob']
>>> refits = votes.bootstrap(law, rankings, count=20, generator=torch.Generator().manual_seed(0))
>>> (component,) = votes.summary(law, rankings, refits=refits)["components"]
>>> component["parameter"], len(component["intervals"])
('phi', 1)
"""

from factorank.arguments import guard
from factorank.data.rankings import Rankings, read_rankings, write_rankings
from factorank.votes.comparison import HeldOutScore, compare, score_family
from factorank.votes.families import FAMILIES, FitSettings, bootstrap, family_of, fit_family
from factorank.votes.goodness import Goodness, goodness
from factorank.votes.law_summary import summary
from factorank.votes.likelihood_ratio import LikelihoodRatio, against_smaller, likelihood_ratio
from factorank.votes.names import write_items
from factorank.votes.networks import Networks, open_networks, save_networks, train_networks
from factorank.votes.pairs import Pairwise, consensus_methods, pairwise
from factorank.votes.posterior import (
    MallowsPosterior,
    PlackettLucePosterior,
    mallows_posterior,
    plackett_luce_posterior,
)
from factorank.votes.probability import bits, log_prob
from factorank.votes.reading import open_law, prepared, read_votes, training_orders

__all__ = [
    "FAMILIES",
    "FitSettings",
    "Goodness",
    "HeldOutScore",
    "LikelihoodRatio",
    "MallowsPosterior",
    "Networks",
    "Pairwise",
    "PlackettLucePosterior",
    "Rankings",
    "against_smaller",
    "bits",
    "bootstrap",
    "compare",
    "consensus_methods",
    "family_of",
    "fit_family",
    "goodness",
    "likelihood_ratio",
    "log_prob",
    "mallows_posterior",
    "open_law",
    "open_networks",
    "pairwise",
    "plackett_luce_posterior",
    "prepared",
    "read_rankings",
    "read_votes",
    "save_networks",
    "score_family",
    "summary",
    "train_networks",
    "training_orders",
    "write_items",
    "write_rankings",
]

guard(__name__, __all__)
