"""Training of the network for photographs."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from factorank.jigsaw.photographs.crops import Batch, Kind, random_batch, random_kind
from factorank.jigsaw.photographs.matching import Matches
from factorank.jigsaw.photographs.network import PhotographNetwork, Reading

IGNORED = -100
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What the optimizer keeps of each weight."""


def loss_of(network: PhotographNetwork, batch: Batch, kind: Kind) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a batch of puzzles, and its parts."""
    reading: Reading = network(batch.views, kind.grid, turned=kind.turned)
    parts = {"match": _match_loss(reading.matches, batch, kind)}
    target = batch.turns * kind.grid[0] * kind.grid[1] + batch.slots  # turn by slot
    turns, slots = (4 if kind.turned else 1), kind.grid[0] * kind.grid[1]
    losses = []
    labels = torch.arange(batch.slots.shape[1], device=target.device) * turns + batch.turns
    for logits in reading.logits:
        of_piece = logits.unflatten(-2, (-1, turns)).flatten(-2).flatten(0, 1)
        filled = logits.gather(1, labels[..., None].expand(-1, -1, slots)).gather(2, batch.slots[..., None])
        columns = logits.logsumexp(-2).gather(1, batch.slots)
        of_slot = (columns - filled[..., 0]).mean()
        losses.append(F.cross_entropy(of_piece, target.flatten()) + of_slot)
    weights = torch.linspace(0.2, 1.0, len(losses), device=target.device).square()
    parts["place"] = (torch.stack(losses) * weights).sum() / weights.sum()
    loss = parts["place"] + parts["match"]
    with torch.no_grad():
        last = reading.logits[-1].unflatten(-2, (-1, turns)).flatten(-2)
        parts["right"] = (last.argmax(-1) == target).float().mean()
    return loss, parts


def _match_loss(matches: tuple[Matches, ...], batch: Batch, kind: Kind) -> Tensor:
    """Cross-entropy of the true neighbour of each border, or of none."""
    rows, columns = kind.grid
    puzzles, pieces = batch.slots.shape
    at = torch.full((puzzles, rows + 2, columns + 2), -1, device=batch.slots.device)
    row, column = batch.slots // columns + 1, batch.slots % columns + 1
    puzzle = torch.arange(puzzles, device=at.device)[:, None]
    at[puzzle, row, column] = torch.arange(pieces, device=at.device)
    beside = {
        side: at[puzzle, row + down, column + right]
        for side, (down, right) in enumerate(((0, 1), (-1, 0), (0, -1), (1, 0)))
    }
    if not kind.turned:
        total = torch.zeros((), device=at.device)
        for match, first, second in ((matches[0], 0, 2), (matches[1], 3, 1)):
            total = total + _both_ways(match, beside[first], beside[second])
        return total / 2
    # The border of side k of piece i is that of direction (k - turn); its neighbour's is the facing one.
    sides = torch.arange(4, device=at.device)
    direction = (sides - batch.turns[..., None]) % 4  # (puzzles, pieces, 4)
    neighbour = torch.stack([beside[side] for side in range(4)], -1).gather(-1, direction)
    turn = batch.turns[puzzle[..., None], neighbour.clamp(min=0)]
    facing = 4 * neighbour + (direction + 2 + turn) % 4
    target = torch.where(neighbour >= 0, facing, -1).flatten(1)
    return _both_ways(matches[0], target, target)


def _both_ways(match: Matches, after: Tensor, before: Tensor) -> Tensor:
    """The loss of both readings, and of the drafts for borders that have a neighbour."""
    size = match.scores.shape[-1]
    total = torch.zeros((), device=after.device)
    for log_probs, draft, target in (
        (match.after_first(), match.draft, after),
        (match.before_second(), match.draft.transpose(-1, -2), before),
    ):
        truth = torch.where(target >= 0, target, size).flatten()
        total = total + F.nll_loss(log_probs.flatten(0, 1), truth)
        known = torch.where(target >= 0, target, IGNORED).flatten()
        count = (known >= 0).sum().clamp(min=1)
        early = F.cross_entropy(draft.flatten(0, 1), known, ignore_index=IGNORED, reduction="sum") / count
        total = total + 0.5 * early
    return total / 2


def train(
    network: PhotographNetwork,
    photographs: Sequence[Tensor],
    *,
    seconds: float,
    lr: float = 1.5e-3,
    budget: int = 400_000,
    ema: float = 0.999,
    seed: int = 0,
    state: dict[str, Any] | None = None,
    largest: int = 13,
    checkpoint: Callable[[dict[str, Any]], None] | None = None,
    every: float = 60.0,
    say: Callable[[str], None] = lambda text: None,
    max_steps: int | None = None,
) -> dict[str, Any]:
    """Train for a time; the learning rate falls to zero with it. Gives the state to go on from.

    The state holds the network's weights, their moving average, the optimizer's moments and the step. It
    goes to ``checkpoint`` ``every`` so many seconds.
    """
    device = photographs[0].device
    network.to(device).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=0.01)
    average = {name: value.detach().clone() for name, value in network.state_dict().items()}
    step = 0
    if state is not None:
        network.load_state_dict(state["network"])
        for name, weight in network.named_parameters():
            if f"{name}:step" in state["moments"]:  # the count of steps stays on the CPU, as torch has it
                kept = {key: state["moments"][f"{name}:{key}"] for key in MOMENTS}
                optimizer.state[weight] = {
                    key: value.to("cpu" if key == "step" else device) for key, value in kept.items()
                }
        average = {name: value.to(device) for name, value in state["average"].items()}
        step = int(state["step"])
    generator = torch.Generator().manual_seed(seed + 1000 * step)
    torch.manual_seed(seed + step)
    started, saved, said, first = time.monotonic(), time.monotonic(), time.monotonic(), step
    seen: dict[str, list[float]] = {}

    def now() -> dict[str, Any]:
        moments = {
            f"{name}:{key}": optimizer.state[weight][key]
            for name, weight in network.named_parameters()
            if weight in optimizer.state
            for key in MOMENTS
        }
        return {"network": network.state_dict(), "average": average, "moments": moments, "step": step}

    while (gone := time.monotonic() - started) < seconds and (max_steps is None or step - first < max_steps):
        part = gone / seconds
        rate = lr * min(1.0, (step - first + 1) / 200) * (0.02 + 0.98 * (1 + math.cos(math.pi * part)) / 2)
        for group in optimizer.param_groups:
            group["lr"] = rate
        # Smaller grids first: borders are learned there sooner.
        kind = random_kind(budget, generator, largest=largest if step > 800 else min(largest, 8))
        batch = random_batch(photographs, kind, generator)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss, parts = loss_of(network, batch, kind)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        if bool(torch.isfinite(norm)):
            optimizer.step()
        step += 1
        decay = min(ema, (1 + step) / (10 + step))
        with torch.no_grad():
            own = network.state_dict()
            torch._foreach_lerp_(list(average.values()), [own[name] for name in average], 1 - decay)
        for name, value in parts.items():
            seen.setdefault(name, []).append(float(value.detach()))
        if time.monotonic() - said > every / 4:
            means = ", ".join(f"{name} {sum(values) / len(values):.4f}" for name, values in seen.items())
            say(f"step {step}, {gone:.0f} s, lr {rate:.2e}: {means}")
            seen, said = {}, time.monotonic()
        if checkpoint is not None and time.monotonic() - saved > every:
            checkpoint(now())
            saved = time.monotonic()
    final = now()
    if checkpoint is not None:
        checkpoint(final)
    return final
