"""The commands, one a file: see :mod:`factorank.cli`."""
