"""What is compiled when a model is first trained on a CPU, which takes a while and shows nothing."""

from pathlib import Path

from factorank.commands._processes import say


def mention_compiling() -> None:
    """Say that the first steps will take long, where nothing has been compiled before."""
    import torch

    if not torch.cuda.is_available() and not compiled_before():
        say("compiling for this processor first, once, which takes about a minute")


def compiled_before() -> bool:
    """Whether numba finds the kernels of a training step on the disk, or has nothing to compile."""
    from factorank.models import cpu_blocks

    if not cpu_blocks.available:
        return True
    from factorank.models import cpu_kernels

    cache = cpu_kernels.forward._cache
    return any(Path(cache.cache_path).glob(f"{cache._impl.filename_base}*"))
