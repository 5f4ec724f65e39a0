"""The streams of random numbers of a run: each has a name, and a seed that follows from the run's."""

import hashlib

import torch

from factorank.training.processes import World


def stream_seed(seed: int, *names: object) -> int:
    """A seed of 63 bits for a named stream of random numbers.

    >>> stream_seed(0, "masks", 0) == stream_seed(0, "masks", 1)
    False
    """
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def random_streams(seed: int, world: World, *, whole_step: bool) -> dict[str, torch.Generator]:
    """The seeded generators of this process: "masks", "draws" (generated data), and torch's own (dropout).

    With ``whole_step`` every process draws the masks of the whole step, and takes its rows of them.
    """
    streams = {name: torch.Generator(world.device) for name in ("masks", "draws")}
    streams["cpu"] = torch.default_generator
    if world.device.type == "cuda":
        streams["cuda"] = torch.cuda.default_generators[world.device.index]
    for name, stream in streams.items():
        rank = 0 if name == "masks" and whole_step else world.rank
        stream.manual_seed(stream_seed(seed, name, rank))
    return streams
