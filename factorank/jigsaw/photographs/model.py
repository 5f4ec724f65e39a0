"""The model for photographs: the network, how sure it is, its files, and what it does with puzzles."""

import importlib.util
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from factorank.jigsaw.photographs.certainty import Certainty
from factorank.jigsaw.photographs.graph import PhotographGraph, export_graph
from factorank.jigsaw.photographs.network import PhotographNetwork
from factorank.jigsaw.photographs.solving import Evidence, Placed, read_pieces, settle
from factorank.jigsaw.photographs.way_up import WayUp, assembled
from factorank.models.saving import read_module, rebuilt, write_module
from factorank.reading import fields_of
from factorank.sealed import is_sealed

FORMAT, VERSION = "factorank-photographs", 3
WEIGHTS = Path(__file__).parents[2] / "weights" / "photographs"
LARGEST = 400
"""The most pieces of a puzzle: those of 20×20."""

Mapper = Callable[[Callable[[Evidence], Placed], Iterable[Evidence]], Iterable[Placed]]


@dataclass(frozen=True, eq=False)
class PhotographModel:
    """One model for puzzles of any grid."""

    network: PhotographNetwork
    certainty: Certainty = field(default_factory=Certainty)
    way_up: WayUp | None = None
    """Says which way up turned pieces lie once they are together. Without it they lie as the first does."""
    graph: PhotographGraph | None = None
    """The same network as an ONNX graph, which is quicker on a CPU; see :meth:`load`."""

    @property
    def parameters(self) -> int:
        """How many numbers the networks have learned."""
        return sum(weight.numel() for weight in _Learned(self.network, self.way_up).parameters())

    def solve(
        self,
        puzzles: Sequence[Tensor],
        grid: tuple[int, int],
        *,
        turned: bool = False,
        search: bool = True,
        workers: Mapper = map,
    ) -> list[Placed]:
        """Solve puzzles, each uint8 ``(n, height, width, 3)`` with the same n, in one evaluation.

        With ``turned`` pieces may lie in any of four ways; they are square then. With fewer pieces than
        slots, some slots stay empty. Without ``search`` the assignment of one evaluation is the answer.
        """
        work = partial(settle, certainty=self.certainty, search=search)
        on_cpu = next(self.network.parameters()).device.type == "cpu"
        if self.graph is not None and on_cpu and not turned and self.graph.pays_off(len(puzzles[0])):
            return list(workers(work, (self.graph.read_pieces(pieces.cpu(), grid) for pieces in puzzles)))
        placed = list(workers(work, read_pieces(self.network, puzzles, grid, turned=turned)))
        if not turned:
            return placed
        if grid[0] != grid[1]:
            # The first piece lies as the picture does, or across it.
            across = [torch.rot90(pieces, -1, (1, 2)) for pieces in puzzles]
            others = list(workers(work, read_pieces(self.network, across, grid, turned=True)))
            placed = [
                max(first, replace(second, turns=(second.turns + 1) % 4), key=lambda each: each.score)
                for first, second in zip(placed, others, strict=True)
            ]
        return [self._upright(pieces, each, grid) for pieces, each in zip(puzzles, placed, strict=True)]

    @torch.no_grad()
    def _upright(self, pieces: Tensor, placed: Placed, grid: tuple[int, int]) -> Placed:
        """The solution turned as a whole the way it most likely stands, and as probable as that is."""
        if self.way_up is None:
            return placed
        device = next(self.network.parameters()).device
        slots, turns = (torch.from_numpy(values).to(device) for values in (placed.slots, placed.turns))
        picture = assembled(pieces.to(device), slots, turns, grid)
        count, chance = self.way_up.to(device).turns_of(picture)
        placed = turned_whole(placed, grid, count)
        return replace(placed, probability=placed.probability * chance, upright=chance)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the weights in bfloat16, and what they are, into a folder, both or neither."""
        config = {
            "network": self.network.options,
            "way_up": self.way_up and self.way_up.options,
            "certainty": asdict(self.certainty),
        }
        write_module(_Learned(self.network, self.way_up), folder, FORMAT, VERSION, config, torch.bfloat16)

    def export_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the network as one ONNX graph for every grid: see
        :func:`factorank.jigsaw.photographs.graph.export_graph`."""
        export_graph(self.network, path)

    @classmethod
    def load(cls, folder: str | os.PathLike[str] | None = None) -> "PhotographModel":
        """The model in a folder, or the one that ships with the package; on the CPU in float32.

        The latter comes with its ``graph``, which is used where onnxruntime is installed and it pays off.
        """
        return _shipped() if folder is None else _read(Path(folder))

    @staticmethod
    def is_in(folder: str | os.PathLike[str]) -> bool:
        """Whether a folder holds a model for photographs."""
        return is_sealed(folder, "config.json", format=FORMAT)


class _Learned(nn.Module):
    """All that is learned, by the names of the files."""

    def __init__(self, puzzle: PhotographNetwork, way_up: WayUp | None) -> None:
        super().__init__()
        self.puzzle, self.way_up = puzzle, way_up


def turned_whole(placed: Placed, grid: tuple[int, int], turns: int) -> Placed:
    """A solution turned clockwise as a whole; an odd number of turns is for square grids."""
    slots = placed.slots
    for _ in range(turns % 4):
        rows, columns = grid
        down, right = np.divmod(slots, columns)
        slots, grid = right * rows + rows - 1 - down, (columns, rows)
    return replace(placed, slots=slots, turns=(placed.turns + turns) % 4)


@cache
def _shipped() -> PhotographModel:
    model = _read(WEIGHTS)
    # A graph of a stranger's is not read: only the package's own.
    installed = importlib.util.find_spec("onnxruntime") is not None
    return replace(model, graph=PhotographGraph(WEIGHTS / "model.onnx")) if installed else model


def _read(folder: Path) -> PhotographModel:
    wanted = ("network", "way_up", "certainty")
    config, weights = read_module(folder, FORMAT, VERSION, wanted, "a model for photographs")

    def made() -> _Learned:
        way_up = config["way_up"]
        return _Learned(PhotographNetwork(**config["network"]), None if way_up is None else WayUp(**way_up))

    learned = rebuilt(made, weights, folder)
    certainty = Certainty(**fields_of(Certainty, config["certainty"], folder / "config.json"))
    return PhotographModel(learned.puzzle, certainty, learned.way_up)
