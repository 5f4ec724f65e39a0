"""Write a module as an ONNX file whose batch may have any size."""

import copy
import importlib.util
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from factorank.errors import ModelError
from factorank.files import write_whole
from factorank.kernels import dispatch

LARGEST_BATCH = 2**20
NEEDED = ("onnx", "onnxscript")


@torch.no_grad()
def export(
    module: nn.Module,
    path: str | os.PathLike[str],
    examples: tuple[Any, ...],
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    shapes: tuple[Any, ...] | None = None,
) -> None:
    """Write ``module(*examples)`` to a file, whole or not at all; all tensors have the batch first.

    ``examples`` have a batch of at least two rows; of their values nothing is kept. Weights are in the file,
    as float32, and floating-point inputs are float32.
    ``shapes`` says which axes of each tensor may have another size, if not the first of each.
    """
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise ModelError(f"ONNX files need {' and '.join(missing)}: pip install 'factorank[onnx]'")
    if not Path(path).absolute().parent.is_dir():
        raise ModelError(f"there is no folder {Path(path).parent} for {{parameter}}", parameter="path")
    kinds = {weight.dtype for weight in module.parameters() if weight.is_floating_point()}
    if kinds - {torch.float32}:  # runtimes have no kernels for them
        module = copy.deepcopy(module).float()
        examples = tree_map_only(Tensor, _single, examples)
    leaves, structure = tree_flatten(examples)
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))
    if shapes is None:
        shapes = ({0: torch.export.Dim("batch", min=1, max=LARGEST_BATCH)},) * len(tensors)
    flat = _Flat(module, leaves, structure)
    was_training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        with dispatch.plain(), _quiet():
            program = torch.onnx.export(
                flat, tensors, dynamo=True, dynamic_shapes=(shapes,), verbose=False,
                input_names=list(inputs), output_names=list(outputs),
            )  # fmt: skip
    except torch.onnx.errors.OnnxExporterError as error:
        raise ModelError(f"this model cannot be written as ONNX: {error.__cause__ or error}") from error
    finally:
        for part in was_training:
            part.training = True
    assert program is not None
    proto = program.model_proto
    _strip(proto.graph)
    write_whole(Path(path), proto.SerializeToString())


def _single(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _strip(graph: Any) -> None:
    """Take out what torch notes of its source: lines of code and paths of the machine."""
    for part in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _strip(attribute.g)


class _Flat(nn.Module):
    """The module as a function of the tensors among its inputs, however these are nested."""

    def __init__(self, module: nn.Module, leaves: list[Any], structure: Any) -> None:
        super().__init__()
        self.module, self.structure = module, structure
        self.others = [None if isinstance(leaf, Tensor) else (leaf,) for leaf in leaves]

    def forward(self, *tensors: Tensor) -> Any:
        rest = iter(tensors)
        leaves = [next(rest) if other is None else other[0] for other in self.others]
        return self.module(*tree_unflatten(leaves, self.structure))


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch says on the way what it misses and what it will change; none of it is about the model."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
