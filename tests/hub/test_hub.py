"""Models on the hub, with a stand-in for its server: the files as the library keeps them on a disk."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import factorank as fr
from factorank.errors import ModelError
from factorank.hub import fetched, model_card
from tests.models.naive import all_orders, small_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Uploads go to the folder that downloads are looked for in: models--user--name/snapshots/<commit>."""
    library = pytest.importorskip("huggingface_hub")
    cache = tmp_path / "cache"

    def create_repo(self, repo_id, *, private=None, exist_ok=False, **options):
        assert exist_ok
        return SimpleNamespace(repo_id=repo_id)

    def upload_folder(self, *, repo_id, folder_path, commit_message, revision=None, **options):
        home = cache / f"models--{repo_id.replace('/', '--')}"
        shutil.copytree(folder_path, home / "snapshots" / COMMIT)
        (home / "refs").mkdir()
        (home / "refs" / (revision or "main")).write_text(COMMIT)
        return f"{repo_id}@{COMMIT}: {commit_message}"

    monkeypatch.setattr(library.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(library.HfApi, "upload_folder", upload_folder)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    return cache


def test_what_is_pushed_is_found_by_name(hub, tmp_path):
    model = small_model(4, "lehmer", context=fr.ItemContext(9, 16), target="rank")
    orders = fr.random_permutations(4, (40,), generator=torch.Generator().manual_seed(0))
    items = torch.arange(4).expand(40, 4)
    result = fr.train(
        model,
        (orders, items),
        steps=6,
        batch_size=10,
        held_out=0.25,
        log_every=2,
        device="cpu",
        out=tmp_path / "run",
    )
    address = model.push_to_hub("ann/sorter", run=tmp_path / "run", commit_message="first")
    assert address == f"ann/sorter@{COMMIT}: first"
    loaded = fr.PermutationModel.from_pretrained("ann/sorter")
    assert not loaded.training
    law, again = (each.distribution(items[0], nfe=1) for each in (model, loaded))
    assert torch.equal(law.log_prob(all_orders(4)), again.log_prob(all_orders(4)))
    assert fr.PermutationModel.from_pretrained("ann/sorter", revision=COMMIT).target == "rank"

    snapshot = hub / "models--ann--sorter" / "snapshots" / COMMIT
    assert {path.name for path in snapshot.iterdir()} == {"README.md", "config.json", "model.safetensors"}
    card = (snapshot / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: factorank\n")
    assert 'from_pretrained("ann/sorter")' in card
    assert "| code | lehmer of the rank |" in card
    assert "| rows of data | 30 |" in card
    assert f"| best held-out loss | {result.held_out / 0.6931471805599453:.4f} bits per order" in card
    assert "| steps done | 6 in " in card


def test_a_card_says_no_more_than_the_record(tmp_path):
    config = small_model(4, "insertion").config()
    card = model_card("ann/bare", config, 100)
    assert "No record of the training" in card
    assert "loss" not in card
    with pytest.raises(ModelError, match=r"holds no run of train: training\.json is missing"):
        model_card("ann/bare", config, 100, tmp_path)
    (tmp_path / "training.json").write_text(json.dumps({"data": {"rows": None}, "lr": 0.1}))
    card = model_card("ann/bare", config, 100, tmp_path)
    assert "| rows of data | made by a function or a loader |" in card
    assert "| lr | 0.1 |" in card
    assert "steps done" not in card


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"seconds": 1.0}\n', r"metrics\.jsonl:1: step: None is not int"),
        ('{"step": 1, "seconds": 1}\n{"step": 2}\n', r"metrics\.jsonl:2: seconds: None is not float"),
        ('{"step": 1, "seconds": 1, "bits": "few"}\n', r"metrics\.jsonl:1: .* is not dict"),
    ],
)
def test_a_history_that_is_none_is_refused(text, message, tmp_path):
    (tmp_path / "training.json").write_text("{}")
    (tmp_path / "metrics.jsonl").write_text(text)
    with pytest.raises(fr.FactorankError, match=message):
        model_card("ann/bare", small_model(4, "insertion").config(), 100, tmp_path)


def test_the_history_of_a_killed_run_may_end_in_half_a_line(tmp_path):
    (tmp_path / "training.json").write_text("{}")
    (tmp_path / "metrics.jsonl").write_text('{"step": 7, "seconds": 1.2}\n{"step": 8, "sec')
    card = model_card("ann/bare", small_model(4, "insertion").config(), 100, tmp_path)
    assert "| steps done | 7 in 1 s |" in card


def test_an_encoder_of_ones_own_is_asked_for():
    class Own(torch.nn.Linear):
        aligned = True

    model = small_model(4, "insertion", context=Own(3, 16))
    assert "context=your_encoder" in model_card("ann/own", model.config(), 1)


def test_names_that_lead_nowhere(hub, tmp_path):
    with pytest.raises(ModelError, match="there is no folder ann/none, and the hub did not give"):
        fr.PermutationModel.from_pretrained("ann/none")
    (tmp_path / "ann" / "here").mkdir(parents=True)
    assert fetched("ann/here") == Path("ann/here")  # a folder comes first
    with pytest.raises(ModelError, match="revision is that of a model on the hub"):
        fr.PermutationModel.from_pretrained("ann/here", revision="main")
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        fr.PermutationModel.from_pretrained(tmp_path / "missing")


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        ModelError, match=r"no folder ann/none; if it is a model on the hub.*factorank\[hub\]"
    ):
        fr.PermutationModel.from_pretrained("ann/none")
    with pytest.raises(ModelError, match=r"the hub needs huggingface_hub"):
        small_model(4, "insertion").push_to_hub("ann/bare")
