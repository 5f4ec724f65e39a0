"""Speed beside what others offer, as ratios within one run: ``./run bench NAME``."""
