"""Learning rates: a linear warm-up, then constant, a cosine over the steps, or a cosine over the time."""

import math

SCHEDULES = ("cosine", "constant", "time")


def learning_rate(
    schedule: str, step: int, *, lr: float, warmup: int, steps: int, share_of_time: float = 0.0
) -> float:
    """The learning rate of a step, counted from 0.

    The warm-up rises linearly over ``warmup`` steps. "cosine" then falls to 0 at ``steps``; "time" falls to 0
    as ``share_of_time`` goes from 0 to 1, or at ``steps`` if they end first; "constant" stays.

    >>> [round(learning_rate("cosine", i, lr=1.0, warmup=2, steps=6), 2) for i in range(7)]
    [0.5, 1.0, 1.0, 0.85, 0.5, 0.15, 0.0]
    """
    ramp = min(1.0, (step + 1) / warmup) if warmup else 1.0
    if schedule == "constant":
        return lr * ramp
    done = (step - warmup) / max(1, steps - warmup)
    if schedule == "time":
        done = max(done, share_of_time)
    return lr * ramp * 0.5 * (1.0 + math.cos(math.pi * min(max(done, 0.0), 1.0)))
