"""Weights of which every process holds a part (FSDP): between the parts and the whole.

A sharded weight is a ``DTensor``. Its part, the average's and the optimizer's are what a process keeps; files
hold whole tensors, so that a run goes on with any number of parts. All functions take plain weights as well,
whose part is the whole. Those that gather are called by all processes together.
"""

from typing import Any

from torch import Tensor, nn


def is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "device_mesh")


def part(weight: Tensor) -> Tensor:
    """What this process holds of a weight, sharing its memory."""
    if not is_sharded(weight):
        return weight
    held: Tensor = weight.detach().to_local()  # type: ignore[attr-defined]
    return held


def whole(value: Tensor, weight: Tensor) -> Tensor:
    """A value that lies as a weight does, gathered; one that lies whole on every process is kept."""
    if is_sharded(weight) and not is_sharded(value):
        if value.shape != part(weight).shape or value.ndim != weight.ndim:
            return value  # a count of steps, say
        value = _spread(value, weight)
    return value.full_tensor() if is_sharded(value) else value  # type: ignore[attr-defined]


def part_of(value: Tensor, weight: Tensor) -> Tensor:
    """Of a whole value the part that this process holds of the weight."""
    return part(spread(value, weight))


def spread(value: Tensor, weight: Tensor) -> Tensor:
    """A whole value, sharded as the weight is; counts and the like stay as they are."""
    if not is_sharded(weight) or value.shape != weight.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    place: Any = weight
    return distribute_tensor(value.to(weight.device), place.device_mesh, place.placements, src_data_rank=None)


def _spread(value: Tensor, weight: Any) -> Tensor:
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        value,
        weight.device_mesh,
        weight.placements,
        run_check=False,
        shape=weight.shape,
        stride=weight.stride(),
    )


def strategy(processes: int) -> Any:
    """Fabric's strategy that shards a module over all processes, the weights as one group.

    They are gathered for a pass as one: the blocks of a model go through it together.
    """
    from lightning_fabric.strategies import ModelParallelStrategy
    from torch.distributed.fsdp import fully_shard

    def shard(module: nn.Module, mesh: Any) -> nn.Module:
        fully_shard(module, mesh=mesh["data_parallel"])
        return module

    return ModelParallelStrategy(shard, data_parallel_size=processes, tensor_parallel_size=1)
