"""Commands that torchrun or SLURM started in several processes: the first one prints and writes."""

import os


def first_process() -> bool:
    """Whether this process is the one that prints and writes."""
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))) == 0


def say(text: str) -> None:
    """Print a line, once for all processes."""
    if first_process():
        print(text, flush=True)


def processes() -> int:
    """How many processes run the command together."""
    return int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1")))
