"""How the page is built and served, without a browser."""

import json
import urllib.request

import numpy as np
import pytest
import torch

import factorank as fr
from factorank import unscramble
from factorank.playground import building, models, packages, serve
from factorank.playground.packages import RUNTIME, Package, files_of
from tests.playground.browser import served

SOURCES = sorted(path for path in building.SOURCES.rglob("*") if path.is_file())


@pytest.fixture
def without_models(monkeypatch, tmp_path):
    """A build whose models and runtime are empty files: what is left is quick."""
    exported = []

    def exporting(target, folder, stored, wanted):
        target.mkdir()
        exported.append(wanted)
        return {"letters": {}, "photographs": {}}

    runtime = tmp_path / "ort.wasm.min.mjs"
    runtime.write_text("")
    monkeypatch.setattr(building, "_models", exporting)
    monkeypatch.setattr(building, "files_of", lambda package: [runtime])
    return exported


def test_it_is_built_once(without_models, tmp_path):
    folder = building.build(tmp_path / "page")
    assert (folder / "runtime" / "ort.wasm.min.mjs").exists()
    assert json.loads((folder / "models" / "models.json").read_bytes())["version"] == fr.__version__
    for path in SOURCES:
        assert (folder / path.relative_to(building.SOURCES)).read_bytes() == path.read_bytes()
    building.build(folder)
    assert len(without_models) == 1
    (folder / "models" / "models.json").write_text('{"built_from": {}}')
    building.build(folder)
    assert len(without_models) == 2


def test_a_folder_of_something_else_is_left_alone(without_models, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(fr.FactorankError, match="holds other files"):
        building.build(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_a_package_of_another_checksum_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("FACTORANK_DATA", str(tmp_path))

    def pack(command, cwd, **_):
        (cwd / "a.tgz").write_bytes(b"something else")
        return type("Done", (), {"returncode": 0, "stdout": "", "stderr": ""})

    monkeypatch.setattr(packages.subprocess, "run", pack)
    with pytest.raises(fr.FactorankError, match=r"onnxruntime-web@.* has SHA-512 .*, expected q0y"):
        files_of(RUNTIME)
    assert not list(tmp_path.rglob("*.mjs"))


def test_what_npm_says_is_passed_on(monkeypatch, tmp_path):
    monkeypatch.setenv("FACTORANK_DATA", str(tmp_path))
    done = type("Done", (), {"returncode": 1, "stdout": "", "stderr": "no network"})
    monkeypatch.setattr(packages.subprocess, "run", lambda *_, **__: done)
    with pytest.raises(fr.FactorankError, match="npm could not fetch none@0: no network"):
        files_of(Package("none", "0", "", ("a",)))


def test_it_is_served_to_this_machine_alone(tmp_path):
    (tmp_path / "a.wasm").write_bytes(b"")
    with served(tmp_path) as address:
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address + "a.wasm") as answer:
            assert answer.headers["Content-Type"] == "application/wasm"
            assert answer.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
        port = int(address.rstrip("/").rsplit(":", 1)[1])
        with pytest.raises(fr.FactorankError, match=f"{port} is taken"):
            serve(tmp_path, port)


def test_the_command_builds(without_models, run, tmp_path):
    code, out, _ = run("playground", "--build", tmp_path / "page")
    assert (code, out.splitlines()[-1]) == (
        0,
        f"written to {tmp_path / 'page'}: serve it with any web server",
    )
    code, _, err = run("playground", "--port", "70000")
    assert code == 2
    assert "0 to 65535, not 70000" in err


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_sources_are_short_and_name_no_other_host(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 320
    assert "https://" not in text
    assert all("w3.org" in line for line in text.splitlines() if "http://" in line)


def test_halved_weights_are_those_of_a_model_saved_in_half_precision(tmp_path):
    import onnxruntime

    weights = sum(weight.numel() for weight in unscramble.load().parameters())
    models.export_letters(tmp_path)
    assert (tmp_path / "letters.onnx").stat().st_size < 2.2 * weights
    session = onnxruntime.InferenceSession(str(tmp_path / "letters.onnx"))
    model = unscramble.load()
    letters, code = model.context.ids(["osftre", "gentrail"], model.n), torch.full((2, model.n), -1)
    code[:, :3] = torch.tensor([0, 1, 0])
    ours = session.run(None, {"letters": letters.numpy(), "code": code.numpy()})[0]
    with torch.no_grad():
        theirs = model.logits(code, letters).numpy()
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
