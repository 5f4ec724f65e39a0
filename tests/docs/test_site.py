"""The documentation as a site: built without a warning, every public name in its reference."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import factorank as fr
from tests.source_tree import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Warnings, of links that lead nowhere among others, are errors."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "factorank", "docs", "--out", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    text = (site / "reference.html").read_text(encoding="utf-8")
    for name in fr.__all__:
        assert f'id="factorank.{name}"' in text or f'id="fr-{name}"' in text.replace("_", "-"), name


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(https?://[^"]+)"', text)
        assert not loaded, (page.name, loaded)


def test_links_between_pages_lead_to_headings(site: Path) -> None:
    pages = {page.name: page.read_text(encoding="utf-8") for page in site.glob("*.html")}
    for name, text in pages.items():
        body = text[text.index("<article") : text.index("</article>")]
        for link in re.findall(r'href="([^":]+)"', body):
            page, _, anchor = link.partition("#")
            target = page or name
            if not target.endswith(".html") or "/" in target:
                continue
            assert target in pages, (name, link)
            assert not anchor or f'id="{anchor}"' in pages[target], (name, link)


def test_examples_end_where_their_answers_end(site: Path) -> None:
    """Markdown has an empty line there, for the doctests; a reader sees none."""
    blocks = re.findall(r"<pre>(.*?)</pre>", (site / "start.html").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) > 5
    assert not [block for block in blocks if re.search(r"\n\s*\n$", re.sub(r"<[^>]+>", "", block))]
    assert "Copyright &#169; 2026" in (site / "index.html").read_text(encoding="utf-8")


def test_words_of_pictures_fit_into_them(site: Path) -> None:
    """A letter of this size is at most ten wide in common fonts."""
    for path in site.glob("_images/*.svg"):
        text = path.read_text(encoding="utf-8")
        (width,) = map(int, re.findall(r' width="(\d+)" height="\d+" style', text))
        for x, words in re.findall(r'<text x="([\d.]+)" y="\d+" fill="#777788">([^<]*)</text>', text):
            assert float(x) + 10 * len(words) <= width, (path.name, words)
