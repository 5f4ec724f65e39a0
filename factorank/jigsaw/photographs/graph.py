"""The network for photographs as an ONNX graph, which runs without torch and is quicker on a CPU.

One graph takes pieces of any number and size up to :data:`factorank.jigsaw.photographs.views.NATIVE` and a
board of any rows and columns. It is of upright pieces; turned ones are torch's.
"""

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from factorank.jigsaw.photographs.network import PhotographNetwork, rounds_for
from factorank.jigsaw.photographs.placing import upright_neighbours
from factorank.jigsaw.photographs.solving import Evidence, upright_evidence
from factorank.jigsaw.photographs.views import scaled_down, views_of
from factorank.onnx import export

INPUTS = ("pieces", "board", "rounds")
OUTPUTS = ("logits", "after_right", "before_left", "after_bottom", "before_top")
MOST_PIECES = 150
"""A graph compares all pairs of borders at once; puzzles with more pieces would take gigabytes."""

PAIRS_TO_PAY_OFF = 100**2


def export_graph(network: PhotographNetwork, path: str | os.PathLike[str]) -> None:
    """Write the graph.

    Inputs: ``pieces`` float32 ``(n, height, width, 3)`` of 0 to 255, ``board`` float32 ``(rows, columns)``,
    of which only the shape counts, and the number of ``rounds``, int64, from
    :func:`factorank.jigsaw.photographs.network.rounds_for`. Outputs: ``logits`` ``(n, slots)``, and of each
    border the log-probabilities ``(n, n + 1)`` of the piece that meets it; the last one is of none.
    """
    any_size = torch.export.Dim.DYNAMIC
    examples = torch.zeros(12, 40, 50, 3), torch.zeros(3, 4), torch.tensor(5)
    shapes = {0: any_size, 1: any_size, 2: any_size}, {0: any_size, 1: any_size}, None
    export(_Graph(network), path, examples, inputs=INPUTS, outputs=OUTPUTS, shapes=shapes)


class _Graph(nn.Module):
    def __init__(self, network: PhotographNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, pieces: Tensor, board: Tensor, rounds: Tensor) -> tuple[Tensor, ...]:
        from torch._higher_order_ops.while_loop import while_loop

        views, placing = views_of(pieces), self.network.placing
        content = self.network.look(views.turned)
        read = [(m.after_first(), m.before_second()) for m in self.network.matching.upright(views, content)]
        neighbours = upright_neighbours(*read)
        grid = board.shape[0], board.shape[1]
        state, slots = placing.begin(neighbours, content[..., 0, :], grid)

        def left(step: Tensor, state: Tensor) -> Tensor:
            return step < rounds

        def one_round(step: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            return step + 1, placing.round(state, slots, neighbours, grid)

        _, state = while_loop(left, one_round, (torch.zeros((), dtype=torch.int64), state))
        return placing.logits(state), *read[0], *read[1]


class PhotographGraph:
    """A graph in a file, run by onnxruntime."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pairs_asked = 0

    def pays_off(self, pieces: int) -> bool:
        """Whether a puzzle of so many pieces is solved sooner by the graph than by torch.

        To start it takes as long as it saves in a puzzle of 10×10, so it pays off from as many pairs of
        pieces on, in one puzzle or in several.
        """
        self._pairs_asked += pieces**2
        return self._pairs_asked >= PAIRS_TO_PAY_OFF and pieces <= MOST_PIECES

    @cached_property
    def _session(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(self.path, options, providers=["CPUExecutionProvider"])

    def read_pieces(self, pieces: Tensor, grid: tuple[int, int]) -> Evidence:
        """The evidence of one puzzle, uint8 ``(n, height, width, 3)``."""
        inputs = scaled_down(pieces).numpy(), np.zeros(grid, np.float32), np.array(rounds_for(grid))
        outputs = self._session.run(OUTPUTS, dict(zip(INPUTS, inputs, strict=True)))
        logits, *borders = (torch.from_numpy(output)[None] for output in outputs)
        return upright_evidence(logits, (borders[0], borders[1]), (borders[2], borders[3]), grid)[0]
