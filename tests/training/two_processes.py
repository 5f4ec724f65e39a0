"""What ``test_train_processes`` starts with torchrun; the argument is the folder to write to."""

import json
import os
import sys
from pathlib import Path

from test_train_processes import options, small_model

from factorank.cli import main as command
from factorank.experiments import cyclic
from factorank.training import train

SIZE = {"n": 5, "width": 8, "depth": 1, "heads": 1, "batch_size": 4, "steps": 10, "samples": 60, "share": 0.5}


def main(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    cyclic.PRESETS["laptop"] = cyclic.preset("laptop", **SIZE)
    laws = ["--codes", "lehmer", "insertion", "--objectives", "masked"]
    assert command(["cyclic", *laws, "--out", str(folder / "cyclic")]) == 0  # first: it starts the processes
    for objective in ("masked", "autoregressive"):
        model = small_model(objective)
        data, shared = options(folder / objective)
        result = train(model, data, batch_size=10, **shared)
        weights = sum(float(weight.double().sum()) for weight in model.state_dict().values())
        told = {"loss": result.loss, "held_out": result.held_out, "weights": weights}
        (folder / f"{objective}-{rank}.json").write_text(json.dumps(told))
    data, shared = options(folder / "resumed")
    stopped = train(small_model("masked"), data, batch_size=10, max_seconds=1e-9, **shared)
    assert (stopped.stopped, stopped.steps) == ("max_seconds", 0)
    train(small_model("masked"), data, batch_size=10, **shared | {"checkpoint_every": 7})
    if rank == 0:  # as if the run had been killed after step 21
        for path in (folder / "resumed" / "checkpoints" / "24").iterdir():
            path.unlink()
        (folder / "resumed" / "checkpoints" / "24").rmdir()
    import torch.distributed

    torch.distributed.barrier()
    train(small_model("masked"), data, batch_size=10, **shared)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
