"""Ratings of items by users: MovieLens, Jester or any table as compact arrays, and lists drawn from them."""

from factorank.data.ratings.core import Ratings
from factorank.data.ratings.lists import order_of
from factorank.data.ratings.load import load_ratings

__all__ = ["Ratings", "load_ratings", "order_of"]
