"""Rankings of named items by voters: the data type, and PrefLib, CSV and parquet files that hold it."""

from factorank.data.rankings.files import read_rankings, write_rankings
from factorank.data.rankings.rankings import Rankings

__all__ = ["Rankings", "read_rankings", "write_rankings"]
