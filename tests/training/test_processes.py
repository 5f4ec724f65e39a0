"""Several processes: torchrun on the CPU gives what one process with the larger batch gives."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from factorank.models import PermutationModel
from factorank.permutations import random_permutations
from factorank.rerank import Ranker, preset
from factorank.training import TrainSettings, checkpoints, train
from factorank.training.processes import world_of
from factorank.training.train import _open_folder
from tests.rerank.small import SMALL, ratings

PROGRAM = "tests.training.two_processes"
ROOT = Path(__file__).parents[2]
TRAINED = {
    "masked": {"objective": "masked", "optimizer": "adamw"},
    "autoregressive": {"objective": "autoregressive", "optimizer": "adamw"},
    "muon": {"objective": "masked", "optimizer": "muon"},
}


def small_model(objective):
    torch.manual_seed(0)
    return PermutationModel(n=5, code="lehmer", objective=objective, width=16, depth=1, heads=2)


def options(out):
    generator = torch.Generator().manual_seed(3)
    data = random_permutations(5, (80,), generator=generator)
    held_out = random_permutations(5, (20,), generator=generator)
    shared = {"steps": 24, "lr": 1e-2, "device": "cpu", "log_every": 6, "held_out_every": 8, "out": out}
    return data, shared | {"held_out": held_out}


def fitted_ranker(out, batch_size):
    """A ranker, trained by the usual call; each process takes lists of its own."""
    setting = preset("small", **SMALL | {"batch_size": batch_size, "steps": 6})
    return Ranker.fit(ratings(), 0.2, setting=setting, device="cpu", out=out)


def history(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"], line["grad_norm"]) for line in lines if "loss" in line]


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    """What two processes of torchrun say: they run a command, and with batch 10 train what is in ``TRAINED``.

    The training of the masked one is also interrupted and resumed.
    """
    folder = tmp_path_factory.mktemp("two")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "--module",
        PROGRAM,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [*command, str(folder)], env=environment, capture_output=True, text=True, timeout=240, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    (folder / "said").write_text(done.stdout)
    return folder


@pytest.mark.parametrize("name", TRAINED)
def test_two_processes_are_one_with_twice_the_batch(launched, tmp_path, name):
    """Rows and masks of a step are the same; sums are made in another order, hence the tolerance."""
    model = small_model(TRAINED[name]["objective"])
    data, shared = options(tmp_path)
    result = train(model, data, batch_size=20, optimizer=TRAINED[name]["optimizer"], **shared)
    ours, theirs = history(tmp_path), history(launched / name)
    assert [line[0] for line in ours] == [line[0] for line in theirs] == [6, 12, 18, 24]
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-4, atol=1e-5)
    told = [json.loads((launched / f"{name}-{rank}.json").read_text()) for rank in range(2)]
    assert told[0] == told[1]  # both processes end with the same result and weights
    assert told[0]["loss"] == pytest.approx(result.loss, rel=1e-4)
    saved = PermutationModel.from_pretrained(launched / name)
    losses = [one.loss(data, generator=torch.Generator().manual_seed(1)) for one in (saved, model)]
    torch.testing.assert_close(*losses, rtol=1e-3, atol=1e-3)


def test_resumed_processes_end_as_undisturbed_ones(launched):
    whole = (launched / "masked" / "model.safetensors").read_bytes()
    assert (launched / "resumed" / "model.safetensors").read_bytes() == whole
    assert history(launched / "resumed") == history(launched / "masked")


def watched(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["nats"] for line in lines if "nats" in line]


def test_accumulated_and_watched_processes_train_like_whole_batches(launched):
    """Two passes of five rows on each process are one pass of ten; the watcher measures what is kept."""
    torch.testing.assert_close(
        torch.tensor(history(launched / "accumulated")),
        torch.tensor(history(launched / "masked")),
        rtol=1e-4,
        atol=1e-5,
    )
    ends = [json.loads((launched / f"accumulated-{rank}.json").read_text()) for rank in range(2)]
    assert ends[0] == ends[1]
    measured = watched(launched / "accumulated")
    assert len(measured) == 3
    assert ends[0]["nats"] in (pytest.approx(nats, abs=1e-6) for nats in measured)


def test_a_ranker_is_fitted_by_two_processes_together(launched, tmp_path):
    """Both end with the weights that the first has written. Each draws lists of its own, so that the weights
    are near to those of one process with twice the batch, and not the same."""
    alone = fitted_ranker(tmp_path / "alone", batch_size=32)
    saved = Ranker.load(launched / "ranker")
    ends = [json.loads((launched / f"ranker-{rank}.json").read_text()) for rank in range(2)]
    answer = saved.rerank([100, 104, 109], [103, 101])
    assert ends[0] == ends[1] == answer.place.tolist()
    for ours, theirs in zip(alone.model.parameters(), saved.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0.1)


def test_a_command_writes_and_speaks_once(launched):
    """Both processes train, the first samples, prints and writes."""
    said = (launched / "said").read_text()
    assert said.count("[1/2] lehmer, masked, seed 0") == 1
    assert said.count("written to") == 1
    rows = [json.loads(line) for line in (launched / "cyclic" / "cyclic.jsonl").read_text().splitlines()]
    assert {row["batch_size"] for row in rows} == {8}
    assert len(rows) == 2 * 3 * 5


def test_one_device_and_no_launcher_is_plain_torch(monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    for devices in (None, 1):
        settings = TrainSettings(steps=1, devices=devices)
        assert world_of(torch.device("cpu"), settings).alone


@pytest.mark.parametrize("step", [-1, 0, 8])
def test_the_other_processes_resume_from_the_checkpoint_of_the_first(tmp_path, step):
    """Also from the one that a run begins with, of step 0; there is none before it."""
    if step >= 0:
        checkpoints.write(tmp_path / "checkpoints", checkpoints.Checkpoint(step, {}, {"key": 1}))
    other = SimpleNamespace(rank=1, most=lambda values: [float(step), 0.0])
    found = _open_folder(tmp_path, True, {}, None, other, ExitStack())
    assert found == (None if step < 0 else checkpoints.Checkpoint(step, {}, {"key": 1}))
