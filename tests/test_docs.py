"""What the documents name exists: files, links, modules, public names, tests, commands."""

import importlib
import re
from pathlib import Path

import pytest

import factorank as fr
from factorank.cli import command_names
from tests.source_tree import ROOT

DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *(ROOT / "docs").glob("*.md"),
]
FOLDERS = ("factorank", "tests", "docs", "benchmarks", "results", "tools", "examples")
LONGEST_README = 120
DRAWN = re.compile(r"_static/(code-[a-z-]+|inserting|swapping)\.svg")
"""Pictures that `docs/code_pictures.py` draws when the site is built; a checkout does not hold them."""

every_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS]
)


def quoted(document: Path) -> list[str]:
    """The inline code of a document."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


def anchors(document: Path) -> set[str]:
    """The fragments that the headings of a document can be linked by."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_document
def test_links_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if link.startswith(("http://", "https://")) or DRAWN.fullmatch(link):
            continue
        target, _, fragment = link.partition("#")
        path = (document.parent / target).resolve() if target else document
        assert path.exists(), link
        assert not fragment or fragment in anchors(path), link


@every_document
def test_files_and_tests_exist(document: Path) -> None:
    for name in quoted(document):
        if re.fullmatch(rf"({'|'.join(FOLDERS)})/[\w./-]*(::\w+)?", name) is None:
            continue
        path, _, test = name.partition("::")
        assert (ROOT / path).exists(), name
        assert not test or f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), name


@every_document
def test_modules_and_public_names_exist(document: Path) -> None:
    for name in quoted(document):
        dotted = re.match(r"(?:factorank|fr)((?:\.\w+)+)", name)
        if dotted is None or "/" in name:
            continue
        value = fr
        for part in dotted[1].split(".")[1:]:
            if not hasattr(value, part):
                importlib.import_module(f"{value.__name__}.{part}")
            value = getattr(value, part)


@every_document
def test_commands_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert set(re.findall(r"\./run ([a-z]\w*)", text)) <= set(command_names())


def test_the_readme_is_a_page() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LONGEST_README


def test_the_documents_name_every_package() -> None:
    """CONTRIBUTING.md has a line for each folder of the package, and none for a folder that is gone."""
    folders = {
        path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "factorank").glob("*/__init__.py")
    }
    named = {name.rstrip("/") for name in quoted(ROOT / "CONTRIBUTING.md")}
    assert folders <= named
