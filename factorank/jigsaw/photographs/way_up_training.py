"""Training of the network that says which way up a picture stands.

It must learn from what pictures show alone. All that is done to a picture treats its four sides alike, and
noise and JPEG blocks are laid over it while it lies in a random turn.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from factorank.jigsaw.photographs.crops import spoiled, tinted
from factorank.jigsaw.photographs.views import resize
from factorank.jigsaw.photographs.way_up import GREY, READ, WayUp, as_read, read_size

SHAPES = tuple(
    read_size(*ratio) for ratio in ((2, 3), (3, 2), (3, 4), (4, 3), (1, 2), (2, 1), (5, 6), (6, 5))
)
"""Sizes of pictures that are not square."""
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What the optimizer keeps of each weight."""


def random_pictures(
    squares: Tensor, count: int, generator: torch.Generator, *, oblong: float = 0.15
) -> Tensor:
    """Upright pictures to learn from, floats of 0 to 255 ``(count, 3, height, width)``.

    ``squares`` are upright, uint8 ``(pictures, 3, side, side)``; ``generator`` is one of the CPU. A share
    ``oblong`` of the calls gives pictures that are not square.
    """
    size = read_size(1, 1)
    if float(torch.rand((), generator=generator)) < oblong:
        size = SHAPES[int(torch.randint(len(SHAPES), (), generator=generator))]
    chosen = torch.randint(len(squares), (count,), generator=generator).to(squares.device)
    windows = random_windows(count, size, generator).to(squares.device)
    pictures = F.grid_sample(
        squares[chosen].float(),
        F.affine_grid(windows, [count, 3, *size], align_corners=False),
        mode="bilinear",
        padding_mode="reflection",
        align_corners=False,
    )
    turn = int(torch.randint(4, (), generator=generator))
    lying = torch.rot90(tinted(_blurred(pictures, generator), generator), turn, (-2, -1))
    pictures = torch.rot90(spoiled(lying, 1, generator), -turn, (-2, -1)).float()
    return with_holes(pictures, generator)


def random_windows(count: int, size: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Where in a square picture to look, as affine maps ``(count, 2, 3)``.

    A third shows as much as fits. All are stretched and moved a little, some tilted, half of them mirrored.
    """

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, generator=generator)

    zoom = torch.where(uniform(0, 1) < 1 / 3, 1.0, uniform(math.log(0.55), 0).exp())
    ratio = size[0] / size[1] * uniform(-0.3, 0.3).exp()
    high, wide = zoom * ratio.clamp(max=1), zoom / ratio.clamp(min=1)
    down, right = uniform(-1, 1) * (1 - high), uniform(-1, 1) * (1 - wide)
    tilt = torch.where(uniform(0, 1) < 0.5, math.radians(4) * uniform(-1, 1), 0.0)
    mirror = torch.where(uniform(0, 1) < 0.5, -1.0, 1.0)
    first = torch.stack([wide * tilt.cos() * mirror, -high * tilt.sin(), right], -1)
    second = torch.stack([wide * tilt.sin() * mirror, high * tilt.cos(), down], -1)
    return torch.stack([first, second], 1)


def with_holes(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Pictures of which a quarter lacks some pieces of a grid."""
    count, pieces = len(pictures), int(torch.randint(2, 13, (), generator=generator))
    share = 0.25 * torch.rand((count, 1, 1, 1), generator=generator)
    share = torch.where(torch.rand((count, 1, 1, 1), generator=generator) < 0.25, share, 0.0)
    gone = torch.rand((count, 1, pieces, pieces), generator=generator) < share
    gone = F.interpolate(gone.float().to(pictures.device), pictures.shape[-2:], mode="nearest-exact") > 0.5
    return torch.where(gone, GREY, pictures)


def _blurred(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Pictures of which a quarter is less sharp."""
    chosen = torch.rand((len(pictures), 1, 1, 1), generator=generator) < 0.25
    weight = torch.where(chosen, torch.rand((len(pictures), 1, 1, 1), generator=generator), 0.0)
    soft = F.avg_pool2d(F.pad(pictures, (1, 1, 1, 1), mode="reflect"), 3, stride=1)
    return torch.lerp(pictures, soft, weight.to(pictures.device))


def way_up_loss(network: WayUp, pictures: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of upright pictures of 0 to 255, and the share that is told to be upright."""
    logits = network.logits(as_read(pictures))
    target = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
    return F.cross_entropy(logits, target), (logits.argmax(-1) == 0).float().mean().detach()


@torch.no_grad()
def shares_upright(network: WayUp, squares: Tensor, *, batch: int = 256) -> dict[str, float]:
    """Of upright pictures, uint8 ``(pictures, 3, side, side)``, those that are told to be upright.

    ``plain`` of four turns and ``mirrored``, with the mirror image besides, as the network is used; ``half``
    of no turn and half a turn. ``nats`` is the mean cross-entropy of ``mirrored``.
    """
    network.eval()
    plain, mirrored = (
        torch.cat([network.logits(as_read(some.float()), mirrored=how) for some in squares.split(batch)])
        for how in (False, True)
    )
    return {
        "plain": float((plain.argmax(-1) == 0).float().mean()),
        "mirrored": float((mirrored.argmax(-1) == 0).float().mean()),
        "half": float((mirrored[:, ::2].argmax(-1) == 0).float().mean()),
        "nats": float(-mirrored.log_softmax(-1)[:, 0].mean()),
    }


@torch.no_grad()
def fitted_temperature(network: WayUp, squares: Tensor, *, batch: int = 64) -> float:
    """The temperature at which upright pictures, uint8 ``(pictures, 3, side, side)``, are likeliest to be so.

    They are read at the size at which pictures are asked about.
    """
    network.eval()
    logits = torch.cat(
        [
            network.logits(as_read(resize(some.float(), (READ, READ))), mirrored=True)
            for some in squares.split(batch)
        ]
    )
    tried = torch.arange(0.3, 2.0, 0.02).tolist()
    nats = [float(-(logits / temperature).log_softmax(-1)[:, 0].mean()) for temperature in tried]
    return round(tried[nats.index(min(nats))], 2)


def train_way_up(
    network: WayUp,
    squares: Tensor,
    *,
    seconds: float,
    lr: float = 3e-3,
    weight_decay: float = 0.05,
    batch: int = 512,
    ema: float = 0.9995,
    seed: int = 0,
    state: dict[str, Any] | None = None,
    checkpoint: Callable[[dict[str, Any]], None] | None = None,
    every: float = 60.0,
    say: Callable[[str], None] = lambda text: None,
    max_steps: int | None = None,
    compiled: bool = False,
) -> dict[str, Any]:
    """Train on upright squares, uint8 ``(pictures, 3, side, side)``, for a time.

    ``compiled`` passes the loss of square pictures through ``torch.compile``.

    The learning rate falls to zero with the time, to which that of an earlier ``state`` counts. Gives the
    state: the network's weights, their moving average, the optimizer's moments, the step and the seconds.
    """
    device = squares.device
    network.to(device).train()
    optimizer = torch.optim.AdamW(_groups(network, weight_decay), lr=lr, betas=(0.9, 0.98))
    step, before = 0, 0.0
    average = {name: value.detach().clone() for name, value in _numbers(network)}
    if state is not None:
        network.load_state_dict(state["network"])
        for name, weight in network.named_parameters():
            kept = {key: state["moments"][f"{name}:{key}"] for key in MOMENTS}
            optimizer.state[weight] = {
                key: value.to("cpu" if key == "step" else device) for key, value in kept.items()
            }
        average = {name: value.to(device) for name, value in state["average"].items()}
        step, before = int(state["step"]), float(state["seconds"])
    generator = torch.Generator().manual_seed(seed + 1000 * step)
    torch.manual_seed(seed + step)
    started, first = time.monotonic(), step
    saved = said = started
    seen: list[Tensor] = []
    quick = torch.compile(way_up_loss, dynamic=False) if compiled else way_up_loss

    def gone() -> float:
        return before + time.monotonic() - started

    def now() -> dict[str, Any]:
        moments = {
            f"{name}:{key}": optimizer.state[weight][key]
            for name, weight in network.named_parameters()
            if weight in optimizer.state
            for key in MOMENTS
        }
        weights = network.state_dict()
        return {"network": weights, "average": average, "moments": moments, "step": step, "seconds": gone()}

    while gone() < seconds and (max_steps is None or step - first < max_steps):
        rate = lr * min(1.0, (step + 1) / 300) * (1 + math.cos(math.pi * min(1.0, gone() / seconds))) / 2
        for group in optimizer.param_groups:
            group["lr"] = rate
        pictures = random_pictures(squares, batch, generator)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            square = pictures.shape[-2] == pictures.shape[-1]
            loss, right = (quick if square else way_up_loss)(network, pictures)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        step += 1
        with torch.no_grad():
            numbers = dict(_numbers(network))
            new = 1 - min(ema, (1 + step) / (10 + step))
            torch._foreach_lerp_(list(average.values()), [numbers[name] for name in average], new)
        seen.append(torch.stack([loss.detach(), right]))
        if step == first + 1 or time.monotonic() - said > every / 4:
            mean = torch.stack(seen).mean(0).tolist()
            say(f"step {step}, {gone():.0f} s, lr {rate:.2e}: loss {mean[0]:.4f}, upright {mean[1]:.4f}")
            seen, said = [], time.monotonic()
        if checkpoint is not None and time.monotonic() - saved > every:
            checkpoint(now())
            saved = time.monotonic()
    final = now()
    if checkpoint is not None:
        checkpoint(final)
    return final


def averaged(network: WayUp, state: dict[str, Any]) -> WayUp:
    """The network with the moving average of a state, rounded as it is saved, ready for use."""
    rounded = {name: value.bfloat16().float() for name, value in state["average"].items()}
    network.load_state_dict(rounded, strict=False)
    return network.eval()


def _numbers(network: WayUp) -> Iterator[tuple[str, Tensor]]:
    """Weights and running means by name; not the counts of batches."""
    return ((name, value) for name, value in network.state_dict().items() if value.is_floating_point())


def _groups(network: WayUp, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices decay, scales and shifts do not."""
    weights = list(network.parameters())
    return [
        {"params": [w for w in weights if w.dim() > 1], "weight_decay": weight_decay},
        {"params": [w for w in weights if w.dim() <= 1], "weight_decay": 0.0},
    ]
