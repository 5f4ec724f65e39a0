"""Files to tensors: rankings, ratings, pictures, words and downloads."""

from factorank.data.rankings import Rankings, read_rankings, write_rankings
from factorank.data.ratings import Ratings, load_ratings

__all__ = ["Rankings", "Ratings", "load_ratings", "read_rankings", "write_rankings"]
