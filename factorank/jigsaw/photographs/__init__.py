"""Puzzles of photographs: one model for every grid, for pieces that are turned, and with some missing.

A puzzle is solved in three steps, each in a file of its own: the borders of all pieces are compared
(``views``, ``matching``), beliefs about the slots are passed on from slot to slot (``placing``), and the
board is assigned and, unless turned off, searched (``solving``, ``assembly``).
"""

from factorank.jigsaw.photographs.model import PhotographModel

__all__ = ["PhotographModel"]
