"""Laws given the relative order of some items; ``rules`` chooses among the ways to condition."""
