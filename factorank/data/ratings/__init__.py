"""Ratings of items by users: MovieLens, Jester or any table as compact arrays, and lists drawn from them."""

from factorank.data.ratings.frames import as_ratings
from factorank.data.ratings.joining import joined
from factorank.data.ratings.loading import load_ratings
from factorank.data.ratings.random_lists import order_of
from factorank.data.ratings.ratings import Ratings

__all__ = ["Ratings", "as_ratings", "joined", "load_ratings", "order_of"]
