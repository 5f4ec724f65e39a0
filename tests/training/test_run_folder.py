"""Resuming: bit for bit, after a kill at any moment, past a damaged checkpoint, never with another run."""

import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from factorank.errors import TrainingError
from factorank.permutations import random_permutations
from factorank.sealed import write_sealed
from factorank.training import checkpoints, train
from factorank.training import run_folder as folder
from tests.training.stand_in import make, same_weights

ORDERS = random_permutations(5, (60,), generator=torch.Generator().manual_seed(1))
KILLS = int(os.environ.get("FACTORANK_KILLS", "3"))
"""How often the run of the kill test is killed: 3 in the suite, more by hand."""
STEPS = max(150, 25 * KILLS)
OPTIONS = {"batch_size": 12, "device": "cpu", "lr": 1e-2, "ema": 0.95, "log_every": 7}


def history(path):
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "rate")} for line in lines]


def interrupt_after(model, calls):
    """Let the model send this process a Ctrl-C in the middle of a step."""
    loss, count = model.loss, []

    def interrupting(order, context=None, *, generator=None):
        if model.training:
            count.append(1)
            if len(count) == calls:
                os.kill(os.getpid(), signal.SIGINT)
        return loss(order, context, generator=generator)

    model.loss = interrupting
    return model


@pytest.fixture(autouse=True)
def _ctrl_c_as_in_a_terminal():
    """A shell that runs tests in the background ignores Ctrl-C, and so would they."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("how", ["tensor", "function", "held-out", "accumulate", "constant"])
def test_interrupted_runs_end_as_the_undisturbed_one(tmp_path, how):
    data, options = ORDERS, OPTIONS | {"steps": 40}
    if how == "function":
        data = lambda size, generator: random_permutations(5, (size,), generator=generator)  # noqa: E731
    elif how == "held-out":
        options |= {"held_out": ORDERS[:9], "held_out_every": 4}
    elif how == "accumulate":
        options |= {"batch_size": 6, "accumulate": 2}
    elif how == "constant":
        options |= {"schedule": "constant", "ema": None, "precision": "bf16"}
    whole, broken = make(), make()
    whole_result = train(whole, data, out=tmp_path / "whole", **options)
    stops = []
    for calls in (5, 1, 9):  # off the grid of logs and scores
        result = train(interrupt_after(broken, calls), data, out=tmp_path / "broken", **options)
        assert result.stopped == "interrupted"
        assert "the same call" in str(result)
        stops.append(result.steps)
        broken = make(seed=9)  # the weights come from the checkpoint
    passes = options.get("accumulate", 1)
    assert stops == [-(-5 // passes), -(-5 // passes) + 1, -(-5 // passes) + 1 + -(-9 // passes)]
    result = train(broken, data, out=tmp_path / "broken", **options)
    assert same_weights(whole, broken)
    assert history(tmp_path / "broken") == history(tmp_path / "whole")
    assert (result.steps, result.loss, result.held_out) == (40, whole_result.loss, whole_result.held_out)
    for name in ("weights", "optimizer", "ema", "generators"):
        ours, theirs = (tmp_path / run / f"checkpoints/40/{name}.safetensors" for run in ("whole", "broken"))
        if ours.exists():
            assert ours.read_bytes() == theirs.read_bytes()


def test_sigterm_saves_too_and_handlers_come_back():
    before = signal.getsignal(signal.SIGTERM)
    model = make()
    loss = model.loss
    model.loss = lambda order, context=None, *, generator=None: (
        model.training and os.kill(os.getpid(), signal.SIGTERM),
        loss(order, generator=generator),
    )[1]
    result = train(model, ORDERS, steps=10, **OPTIONS)
    assert (result.stopped, result.steps) == ("interrupted", 1)
    assert signal.getsignal(signal.SIGTERM) is before


def test_trains_outside_the_main_thread():
    results = []
    thread = threading.Thread(target=lambda: results.append(train(make(), ORDERS, steps=3, **OPTIONS)))
    thread.start()
    thread.join()
    assert results[0].stopped == "steps"


def _run_to_be_killed(path, ready):
    torch.set_num_threads(1)
    ready.set()
    options = OPTIONS | {"held_out": ORDERS[:6], "held_out_every": 9, "checkpoint_every": 3, "steps": STEPS}
    train(make(), ORDERS, out=path, **options)


def run_and_kill(path, seconds=None):
    """Start the run and kill it after some seconds, or let it end: its seconds and its last checkpoint."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["tests.training.stand_in", "factorank.training", "factorank.kernels.codes.cpu", "torch._dynamo"]
    )
    ready = context.Event()
    process = context.Process(target=_run_to_be_killed, args=(path, ready))
    process.start()
    assert ready.wait(120)
    start = time.monotonic()
    process.join(seconds)
    process.kill()
    process.join()
    assert process.exitcode in ((0,) if seconds is None else (0, -signal.SIGKILL))
    return time.monotonic() - start, max(checkpoints.steps_in(path / "checkpoints"), default=None)


def test_killed_at_random_moments(tmp_path):
    """Kill -9 at random moments: the run resumes every time and ends with the undisturbed weights."""
    duration, _ = run_and_kill(tmp_path / "whole")
    moments, path = random.Random(5), tmp_path / "killed"
    reached = [run_and_kill(path, duration * moments.uniform(0, 2) / (KILLS + 1))[1] for _ in range(KILLS)]
    assert reached[0] != STEPS, reached
    run_and_kill(path)
    whole, mended = (load_file(tmp_path / run / "model.safetensors") for run in ("whole", "killed"))
    assert all(torch.equal(whole[name], mended[name]) for name in whole), reached
    assert history(path) == history(tmp_path / "whole"), reached
    assert not list((path / "checkpoints").glob(".*"))
    if KILLS > 3:
        print("checkpoints reached when killed:", reached)


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "truncated":
        data = data[: len(data) // 2]
    elif how == "flipped":
        data[len(data) // 2] ^= 1
    path.unlink()
    if how != "missing":
        path.write_bytes(data)


FILES = [
    "weights.safetensors",
    "optimizer.safetensors",
    "generators.safetensors",
    "state.json",
    "manifest.json",
]


@pytest.mark.parametrize("how", ["truncated", "flipped", "missing"])
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_checkpoint_is_passed_over(tmp_path, file, how):
    whole, broken = make(), make()
    options = OPTIONS | {"steps": 20, "checkpoint_every": 6}
    train(whole, ORDERS, out=tmp_path / "whole", **options)
    train(interrupt_after(broken, 15), ORDERS, out=tmp_path / "broken", **options)
    damage(tmp_path / "broken/checkpoints/15" / file, how)
    named = (
        ".*15/" if (file, how) == ("manifest.json", "flipped") else f".*15/{file}"
    )  # a flipped hash blames its file
    with pytest.warns(UserWarning, match=f"checkpoint 15 is refused: {named}.*going on from checkpoint 12"):
        train(broken := make(), ORDERS, out=tmp_path / "broken", **options)
    assert same_weights(whole, broken)
    assert history(tmp_path / "broken") == history(tmp_path / "whole")


def test_every_flipped_bit_is_noticed(tmp_path):
    """A checkpoint with any one bit changed is refused or reads the same (white space in the manifest)."""
    tensors = {"weights": {"w": torch.arange(3.0)}}
    path = checkpoints.write(tmp_path, checkpoints.Checkpoint(4, tensors, {"seconds": 1.5}))
    good = checkpoints.read(path)
    refused = 0
    for file in path.iterdir():
        data = file.read_bytes()
        for bit in range(0, 8 * len(data), 3):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            file.write_bytes(flipped)
            try:
                found = checkpoints.read(path)
                assert (found.step, found.state) == (good.step, good.state)
                assert torch.equal(found.tensors["weights"]["w"], good.tensors["weights"]["w"])
            except TrainingError:
                refused += 1
        file.write_bytes(data)
    assert refused > 1000


def test_nothing_usable_is_an_error(tmp_path):
    train(make(), ORDERS, out=tmp_path, steps=4, **OPTIONS)
    for path in (tmp_path / "checkpoints").glob("*/weights.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(
        TrainingError, match=r"no checkpoint in .* can be used: .*weights.safetensors has 0 bytes"
    ):
        train(make(), ORDERS, out=tmp_path, steps=4, **OPTIONS)


def test_the_newest_two_are_kept(tmp_path):
    train(make(), ORDERS, out=tmp_path, steps=20, checkpoint_every=3, **OPTIONS)
    assert checkpoints.steps_in(tmp_path / "checkpoints") == [18, 20]
    manifest = json.loads((tmp_path / "checkpoints/20/manifest.json").read_text())
    assert manifest["format"] == 2
    assert set(manifest["files"]) == {path.name for path in (tmp_path / "checkpoints/20").iterdir()} - {
        "manifest.json"
    }


def test_checkpoints_by_the_clock(tmp_path):
    train(make(), ORDERS, out=tmp_path, steps=9, checkpoint_seconds=1e-9, **OPTIONS)
    assert checkpoints.steps_in(tmp_path / "checkpoints") == [8, 9]


def test_a_finished_run_comes_back_at_once(tmp_path):
    first, second = make(), make(seed=5)
    options = OPTIONS | {"steps": 9, "out": tmp_path, "resume": True}
    one = train(first, ORDERS, **options)
    two = train(second, ORDERS, **options)
    assert same_weights(first, second)
    assert (two.steps, two.loss, two.stopped) == (one.steps, one.loss, "steps")


def test_a_constant_run_can_be_made_longer(tmp_path):
    options = OPTIONS | {"schedule": "constant", "warmup": 3}
    long, grown = make(), make()
    train(long, ORDERS, steps=20, **options)
    train(grown, ORDERS, steps=9, out=tmp_path, **options)
    train(grown, ORDERS, steps=20, out=tmp_path, resume="must", **options)
    assert same_weights(long, grown)


OTHERS = {
    "lr": ({"lr": 1.0}, "lr is 0.01 there and 1.0 here"),
    "batch": ({"batch_size": 10}, "batch_size is 12 there and 10 here"),
    "steps": ({"steps": 3}, "steps is 4 there and 3 here"),
    "seed": ({"seed": 5}, "seed is 0 there and 5 here"),
    "held-out": ({"held_out": 0.5}, "data.rows is 60 there and 30 here"),
    "new run": ({"resume": False}, "holds a run already"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_run_is_refused(tmp_path, case):
    options, message = OTHERS[case]
    train(make(), ORDERS, out=tmp_path, **OPTIONS | {"steps": 4})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(TrainingError, match=message):
        train(make(), ORDERS, out=tmp_path, **OPTIONS | {"steps": 4} | options)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_another_model_or_other_data_are_refused(tmp_path):
    train(make(), ORDERS, out=tmp_path, steps=4, **OPTIONS)
    with pytest.raises(TrainingError, match=r"model.config.width is 12 there and 10 here"):
        train(make(width=10), ORDERS, out=tmp_path, steps=4, **OPTIONS)
    with pytest.raises(TrainingError, match=r"data.checksum"):
        train(make(), ORDERS.flip(0), out=tmp_path, steps=4, **OPTIONS)


class Rows(torch.utils.data.Dataset):
    def __init__(self, orders, contexts):
        self.orders, self.contexts = orders, contexts

    def __len__(self):
        return len(self.orders)

    def __getitem__(self, index):
        return self.orders[index], self.contexts[index]


class Drawn:
    def __init__(self, orders, contexts):
        self.orders, self.contexts = orders, contexts

    def __call__(self, size, generator):
        rows = torch.randint(len(self.orders), (size,), generator=generator)
        return self.orders[rows], self.contexts[rows]


def pairs(orders, contexts):
    return orders, contexts


def loaded(orders, contexts):
    return torch.utils.data.DataLoader(Rows(orders, contexts), batch_size=12)


@pytest.mark.parametrize("kind", [pairs, Rows, Drawn, loaded])
def test_other_contexts_and_other_data_sets_are_refused(tmp_path, kind):
    options = {name: value for name, value in OPTIONS.items() if kind is not loaded or name != "batch_size"}
    contexts = torch.linspace(-1, 1, 60)
    train(make(), kind(ORDERS, contexts), out=tmp_path, steps=4, **options)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for orders, changed in ((ORDERS, -contexts), (ORDERS.flip(0), contexts)):
        with pytest.raises(TrainingError, match=r"holds another run: .*data.checksum"):
            train(make(), kind(orders, changed), out=tmp_path, steps=4, **options)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    train(make(), kind(ORDERS.clone(), contexts.clone()), out=tmp_path, steps=4, **options)


def test_two_runs_that_begin_together_in_a_new_folder_do_not_share_it(tmp_path, monkeypatch):
    """The second comes when the folder is not there yet, and the first has begun before it goes on."""
    original, refused = folder.find_run, []

    def late(out, *arguments):
        if not refused:
            refused.append(True)
            with pytest.raises(TrainingError, match="another run is training in"):
                train(make(), ORDERS, steps=4, out=out, **OPTIONS)
        return original(out, *arguments)

    monkeypatch.setattr(folder, "find_run", late)
    train(make(), ORDERS, steps=4, out=tmp_path / "new", **OPTIONS)
    assert refused


def test_a_checkpoint_with_a_hostile_manifest_is_passed_over(tmp_path):
    options = OPTIONS | {"steps": 20, "checkpoint_every": 6}
    train(interrupt_after(make(), 15), ORDERS, out=tmp_path, **options)
    for text in ("[" * 100_000, "[]", '{"files": 3}', '{"step": 1e999}', "\xff"):
        (tmp_path / "checkpoints/15/manifest.json").write_bytes(text.encode("latin-1"))
        with pytest.raises(TrainingError):
            checkpoints.read(tmp_path / "checkpoints/15")
    with pytest.warns(UserWarning, match="going on from checkpoint 12"):
        train(make(), ORDERS, out=tmp_path, **options)


def test_a_folder_with_something_else_is_refused(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"mine")
    with pytest.raises(TrainingError, match=r"holds model.safetensors but no training run"):
        train(make(), ORDERS, out=tmp_path, steps=4, **OPTIONS)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(TrainingError, match="is a file"):
        train(make(), ORDERS, out=tmp_path / "file", steps=4, **OPTIONS)
    (tmp_path / "empty").mkdir()
    train(make(), ORDERS, out=tmp_path / "empty", steps=4, **OPTIONS)


@pytest.mark.parametrize("moment", ["begun", "described"])
def test_killed_before_the_first_checkpoint(tmp_path, moment, monkeypatch):
    """A folder with no checkpoint yet, as a kill during set-up leaves it, is begun again."""
    module, name = (folder, "export") if moment == "begun" else (checkpoints, "write")

    def killed(*arguments):
        raise KeyboardInterrupt

    whole, again = make(), make()
    train(whole, ORDERS, steps=4, **OPTIONS)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, killed)
        with pytest.raises(KeyboardInterrupt):
            train(make(), ORDERS, out=tmp_path, steps=4, **OPTIONS)
    assert not checkpoints.steps_in(tmp_path / "checkpoints")
    assert (tmp_path / "config.json").exists() == (moment == "described")
    assert not (tmp_path / "model.safetensors").exists()  # it is not trained
    train(again, ORDERS, out=tmp_path, steps=4, **OPTIONS)
    assert same_weights(whole, again)


def test_two_runs_do_not_share_a_folder(tmp_path):
    """The second is refused while the first trains, and changes nothing."""
    refused = []

    def watch(_):
        before = sorted(path.name for path in tmp_path.rglob("*"))
        with pytest.raises(TrainingError, match="another run is training in"):
            train(make(), ORDERS, steps=4, batch_size=10, out=tmp_path, progress=False)
        refused.append(sorted(path.name for path in tmp_path.rglob("*")) == before)
        return {}

    train(make(), ORDERS, steps=4, batch_size=10, held_out_every=2, watch=watch, out=tmp_path, progress=False)
    assert refused == [True, True]


def test_history_is_cut_back_to_whole_lines_up_to_a_step(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    folder.cut_back(path, 2)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
    path.write_text('{"step": 1}\n{"step": 2')
    folder.cut_back(path, 9)
    assert path.read_text() == '{"step": 1}\n'


def test_a_state_may_hold_an_infinite_number(tmp_path):
    """The best held-out score before the first one is one."""
    written = checkpoints.Checkpoint(3, {}, {"best": float("inf")})
    assert checkpoints.read(checkpoints.write(tmp_path, written)) == written


@pytest.mark.parametrize("wrong", ["renamed", "without a state", "of no step"])
def test_a_folder_that_is_not_the_checkpoint_of_its_name_is_refused(tmp_path, wrong):
    path = checkpoints.write(tmp_path, checkpoints.Checkpoint(3, {}, {}))
    if wrong == "renamed":
        path = path.rename(tmp_path / "4")
    else:
        facts = {"format": 2, "step": 3 if wrong == "without a state" else "3"}
        write_sealed(
            path, "manifest.json", facts, {} if wrong == "without a state" else {"state.json": b"{}"}
        )
    with pytest.raises(TrainingError, match=f"does not describe checkpoint {path.name}"):
        checkpoints.read(path)


def test_tensorboard_drops_what_comes_after_the_step_that_is_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "find_spec", lambda name: object())
    made = []
    fake = SimpleNamespace(SummaryWriter=lambda *given, **options: made.append((given, options)))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    folder._tensorboard(tmp_path, 7)
    assert made == [((str(tmp_path / "tensorboard"),), {"purge_step": 8})]


@pytest.mark.parametrize("name", ["checkpoints/.DS_Store", ".exporting-notes"])
def test_files_of_others_are_left_alone(tmp_path, name):
    """Only folders of these names are what a killed run left behind."""
    for steps in (2, 4):
        train(make(), ORDERS, steps=steps, out=tmp_path, **OPTIONS | {"schedule": "constant", "warmup": 1})
        (tmp_path / name).write_text("mine")
    assert (tmp_path / name).read_text() == "mine"


def test_settings_of_up_to_60_characters_are_named_whole(tmp_path):
    def noted(text):
        model = make()
        model.config = lambda: {"note": text}
        return model

    short, long = ["a" * 58, "b" * 58], ["a" * 59, "b" * 59]  # quotes are two more
    for name, (there, here), told in (
        ("short", short, [f'"{text}"' for text in short]),
        ("long", long, [f'"{text[:56]}…' for text in long]),
    ):
        train(noted(there), ORDERS, steps=1, out=tmp_path / name, **OPTIONS)
        with pytest.raises(TrainingError, match=f"config.note is {told[0]} there and {told[1]} here"):
            train(noted(here), ORDERS, steps=1, out=tmp_path / name, **OPTIONS)
