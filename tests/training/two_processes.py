"""What ``test_processes`` starts with torchrun; the argument is the folder to write to."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from factorank.cli import main as command
from factorank.experiments import cyclic
from factorank.permutations import random_permutations
from factorank.training import train
from tests.training.test_processes import TRAINED, fitted_ranker, options, small_model

SIZE = {"n": 5, "width": 8, "depth": 1, "heads": 1, "batch_size": 4, "steps": 10, "samples": 60, "share": 0.5}


def main(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    cyclic.PRESETS["laptop"] = cyclic.preset("laptop", **SIZE)
    laws = ["--codes", "lehmer", "insertion", "--objectives", "masked"]
    assert command(["cyclic", *laws, "--out", str(folder / "cyclic")]) == 0  # first: it starts the processes
    for name in TRAINED:
        model = small_model(TRAINED[name]["objective"])
        data, shared = options(folder / name)
        result = train(model, data, batch_size=10, optimizer=TRAINED[name]["optimizer"], **shared)
        weights = sum(float(weight.double().sum()) for weight in model.state_dict().values())
        told = {"loss": result.loss, "held_out": result.held_out, "weights": weights}
        (folder / f"{name}-{rank}.json").write_text(json.dumps(told))
    data, shared = options(folder / "resumed")
    stopped = train(small_model("masked"), data, batch_size=10, max_seconds=1e-9, **shared)
    assert (stopped.stopped, stopped.steps) == ("max_seconds", 0)
    train(small_model("masked"), data, batch_size=10, **shared | {"checkpoint_every": 7})
    drop_last(folder / "resumed", rank)
    train(small_model("masked"), data, batch_size=10, **shared)
    data, shared = options(folder / "accumulated")
    shared |= {"watch": watch, "batch_size": 5, "accumulate": 2, "strategy": "ddp"}
    train(model := small_model("masked"), data, **shared)
    (folder / f"accumulated-{rank}.json").write_text(json.dumps(watch(model)))
    ranker = fitted_ranker(folder / "ranker", batch_size=16)
    answer = ranker.rerank([100, 104, 109], [103, 101])
    (folder / f"ranker-{rank}.json").write_text(json.dumps(answer.place.tolist()))


def watch(model: Any) -> dict[str, float]:
    """What the model thinks of some orders."""
    orders = random_permutations(5, (40,), generator=torch.Generator().manual_seed(5))
    return {"nats": -float(model.distribution(unmask="left-to-right").log_prob(orders).mean())}


def drop_last(out: Path, rank: int) -> None:
    """Leave the folder as if the run had been killed after step 21."""
    if rank == 0:
        shutil.rmtree(out / "checkpoints" / "24")
    torch.distributed.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
