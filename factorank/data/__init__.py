"""Data: votes and other rankings from files."""

from factorank.data.rankings.rankings import Rankings, read_rankings, write_rankings

__all__ = ["Rankings", "read_rankings", "write_rankings"]
