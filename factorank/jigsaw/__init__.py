"""Jigsaw puzzles: solve one, train a model of your own on pictures, and score it.

:func:`solve` takes the pieces of a puzzle, or a picture to make one of, and gives an :class:`Answer`. One
model for photographs at any grid (:class:`PhotographModel`) ships with the package. So do models of one grid
each, 2×2 to 5×5, that were trained on CIFAR-10 (:func:`shipped_models`); :func:`learn` trains others of that
kind.

>>> import factorank as fr
>>> fr.jigsaw.setting(grid=6).name  # a model and its training: what learn takes
'default-6x6-inline-masked-0'
>>> sorted(fr.jigsaw.shipped_models())
[2, 3, 4, 5]
"""

from factorank.arguments import guard
from factorank.data.picture_sets import Pictures, cifar10, picture_folder
from factorank.jigsaw.answer import Answer
from factorank.jigsaw.encoder import PieceConvolution, PieceEncoder
from factorank.jigsaw.evaluation import evaluate, puzzles_per_second
from factorank.jigsaw.model import HintedModel, new_model, setting_of
from factorank.jigsaw.photographs import PhotographModel
from factorank.jigsaw.puzzles import Puzzles, cut, join, scrambled
from factorank.jigsaw.settings import PRESETS, JigsawSetting, setting
from factorank.jigsaw.shipped import load, load_any, shipped_models
from factorank.jigsaw.single import solve
from factorank.jigsaw.solving import Search, solve_puzzles
from factorank.jigsaw.training import history, learn

__all__ = [
    "PRESETS",
    "Answer",
    "HintedModel",
    "JigsawSetting",
    "PhotographModel",
    "Pictures",
    "PieceConvolution",
    "PieceEncoder",
    "Puzzles",
    "Search",
    "cifar10",
    "cut",
    "evaluate",
    "history",
    "join",
    "learn",
    "load",
    "load_any",
    "new_model",
    "picture_folder",
    "puzzles_per_second",
    "scrambled",
    "setting",
    "setting_of",
    "shipped_models",
    "solve",
    "solve_puzzles",
]

guard(__name__, __all__)
