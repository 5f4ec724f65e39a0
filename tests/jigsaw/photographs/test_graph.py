"""The ONNX graph of the network for photographs says what torch says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from factorank.jigsaw.photographs import PhotographModel
from factorank.jigsaw.photographs.graph import PhotographGraph
from factorank.jigsaw.photographs.model import WEIGHTS
from factorank.jigsaw.photographs.network import PhotographNetwork
from factorank.jigsaw.photographs.solving import read_pieces

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def loose_pieces(n: int, height: int, width: int) -> torch.Tensor:
    """Pieces of a smooth picture in disorder."""
    g = torch.Generator().manual_seed(n)
    rough = 255 * torch.rand(1, 3, 5, 5, generator=g)
    smooth = torch.nn.functional.interpolate(rough, (height, n * width), mode="bicubic").clamp(0, 255)
    pieces = smooth[0].to(torch.uint8).unflatten(-1, (n, width)).permute(2, 1, 3, 0)
    return pieces[torch.randperm(n, generator=g)].contiguous()


def same_evidence(
    graph: PhotographGraph, network: PhotographNetwork, pieces, grid, places: float = 1e-4
) -> None:
    by_graph, by_torch = graph.read_pieces(pieces, grid), read_pieces(network, [pieces], grid)[0]
    for name in ("right", "below"):
        np.testing.assert_allclose(getattr(by_graph, name), getattr(by_torch, name), atol=1e-3)
    np.testing.assert_allclose(np.exp(by_graph.places), np.exp(by_torch.places), atol=places)


@pytest.mark.parametrize(
    ("grid", "n", "size"),
    [((1, 2), 2, (9, 7)), ((3, 3), 9, (32, 32)), ((4, 5), 17, (20, 45)), ((6, 6), 36, (200, 30))],
    ids=["two pieces", "3x3", "with missing pieces", "large pieces"],
)
def test_the_shipped_graph_says_what_the_shipped_weights_say(grid, n, size):
    same_evidence(
        PhotographGraph(WEIGHTS / "model.onnx"), PhotographModel.load().network, loose_pieces(n, *size), grid
    )


def test_a_network_is_written_without_a_word_of_where(tmp_path: Path):
    torch.manual_seed(0)
    small = {"context": 8, "width": 8, "features": 4, "channels": 4, "hidden": 8}
    model = PhotographModel(PhotographNetwork(**small).eval())
    model.export_onnx(tmp_path / "small.onnx")
    same_evidence(PhotographGraph(tmp_path / "small.onnx"), model.network, loose_pieces(12, 10, 12), (3, 4))
    written = onnx.load(tmp_path / "small.onnx")
    loops = [a.g for node in written.graph.node for a in node.attribute if a.HasField("g")]
    assert loops
    assert not any(node.metadata_props for graph in (written.graph, *loops) for node in graph.node)


def test_the_graph_starts_when_it_pays_off():
    model = PhotographModel.load()
    assert model.graph is not None
    graph = PhotographGraph(model.graph.path)
    asked = replace(model, graph=graph)
    pieces = loose_pieces(60, 10, 12)
    asked.solve([pieces], (6, 10))
    assert "_session" not in vars(graph)
    asked.solve([pieces], (6, 10))
    asked.solve([pieces], (6, 10))
    assert "_session" in vars(graph)
    # Rounds of beliefs make more of rounding where no piece of this blurred picture has a certain place.
    same_evidence(graph, model.network, pieces, (6, 10), places=2e-2)
    assert not graph.pays_off(400), "too many pairs for one graph"
