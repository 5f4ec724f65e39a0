"""Which way up photographs stand: training from packs of small pictures, on another machine if need be.

The packs (:func:`factorank.experiments.way_up_pictures.make_packs`) hold thumbnails of Tiny ImageNet, without
54 of its classes that have no way up (insects, food, small things), photographs of ImageNet, the train and
validation parts of BSDS500, and the photographs of COCO as thumbnails. Groups whose names begin with ``held``
are not trained on: other photographs of each, the validation part of BSDS500 among them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.experiments.way_up_pictures import SQUARE, TINY, enlarged, read_packs, windows
from factorank.jigsaw.photographs import PhotographModel
from factorank.jigsaw.photographs.views import resize
from factorank.jigsaw.photographs.way_up import WayUp, as_read
from factorank.jigsaw.photographs.way_up_training import (
    averaged,
    fitted_temperature,
    shares_upright,
    train_way_up,
)
from factorank.training import checkpoints

HELD = "held"
WINDOWS = 12
"""Squares that are cut out of each whole photograph to learn from."""


def train(
    packs: Sequence[str | Path],
    out: str | Path,
    *,
    seconds: float,
    device: str = "cuda",
    threads: int = 8,
    model: PhotographModel | None = None,
    network: WayUp | None = None,
    say: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> PhotographModel:
    """Train on packs and save a model, by default the shipped one, with the new network to ``out/model``.

    ``out/checkpoints`` holds what to go on from; the same call goes on. ``options`` are those of
    :func:`factorank.jigsaw.photographs.way_up_training.train_way_up`.
    """
    folder = Path(out) / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    newest = checkpoints.newest(folder)
    state = None if newest is None else {**newest.tensors, "step": newest.step, **newest.state}

    def keep(state: dict[str, Any]) -> None:
        tensors = {name: state[name] for name in ("network", "average", "moments")}
        checkpoints.write(
            folder, checkpoints.Checkpoint(state["step"], tensors, {"seconds": state["seconds"]})
        )

    with ThreadPoolExecutor(threads) as pool:
        squares, held = squares_of(read_packs(packs, pool.map), pool.map)
    out_of = ", ".join(f"{len(some)} {name}" for name, some in held.items())
    say(f"{len(squares)} squares to learn from; {out_of}")
    network = network or WayUp()
    if device == "cuda":
        torch.backends.cudnn.benchmark = True
    final = train_way_up(
        network, squares.to(device), seconds=seconds, state=state, checkpoint=keep, say=say, **options
    )
    network = averaged(network, final)
    for name, some in held.items():
        shares = shares_upright(network, some.to(device))
        say(f"{name}: " + ", ".join(f"{key} {value:.4f}" for key, value in shares.items()))
    if photographs := [some for name, some in held.items() if name.startswith(f"{HELD}-photographs")]:
        network.options["temperature"] = fitted_temperature(network, torch.cat(photographs).to(device))
        say(f"temperature {network.options['temperature']}")
    whole = replace(model or PhotographModel.load(), way_up=network.cpu())
    whole.save(Path(out) / "model")
    return whole


@torch.no_grad()
def scores_by_size(
    network: WayUp, pictures: Sequence[Tensor], sides: Iterable[int] = (64, 96, 112, 128, 160, 192)
) -> Iterator[dict[str, Any]]:
    """How often the middle squares of upright pictures, uint8 ``(height, width, 3)``, are told to stand.

    A row for each size at which they are read. ``nats`` is the cross-entropy of the logits as they are.
    """
    network.eval()
    for side in sides:
        logits = []
        for picture in pictures:
            height, width = picture.shape[:2]
            shorter = min(height, width)
            top, left = (height - shorter) // 2, (width - shorter) // 2
            square = picture[top : top + shorter, left : left + shorter].movedim(-1, 0)[None].float()
            logits.append(network.logits(as_read(resize(square, (side, side))), mirrored=True)[0])
        every = torch.stack(logits)
        yield {
            "experiment": "way-up",
            "side": side,
            "pictures": len(pictures),
            "upright": float((every.argmax(-1) == 0).float().mean()),
            "nats": float(-every.log_softmax(-1)[:, 0].mean()),
            "parameters": sum(weight.numel() for weight in network.parameters()),
        }


def squares_of(
    groups: dict[str, list[np.ndarray]], workers: Callable[..., Iterable[Any]] = map
) -> tuple[Tensor, dict[str, Tensor]]:
    """Squares to learn from and, by group, those held out, uint8 ``(pictures, 3, 96, 96)``.

    Of a photograph to learn from there are several; of one that is held out there is the middle.
    """
    learn: list[Tensor] = []
    held: dict[str, Tensor] = {}
    for name, pictures in groups.items():
        sizes = {picture.shape[:2] for picture in pictures}
        out = name.startswith(HELD)
        if sizes == {(TINY, TINY)}:
            pictures = list(workers(enlarged, pictures))
        elif sizes != {(SQUARE, SQUARE)}:
            jobs = [(picture, 1 if out else WINDOWS, seed) for seed, picture in enumerate(pictures)]
            pictures = [square for some in workers(windows, jobs) for square in some]
        squares = torch.from_numpy(np.stack(pictures)).movedim(-1, 1).contiguous()
        if out:
            held[name] = squares
        else:
            learn.append(squares)
    return torch.cat(learn), held
