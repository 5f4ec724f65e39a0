import importlib.util

import pytest

from factorank.playground import build
from tests.playground.browser import browser_path, launched, served, visiting
from tests.source_tree import ROOT


@pytest.fixture(scope="session")
def address():
    """The page, built once in the folder that ``./run playground`` uses, on a local port."""
    if browser_path() is None or importlib.util.find_spec("playwright") is None:
        pytest.skip("there is no browser: the tests of the page need Chromium and the package playwright")
    with served(build(ROOT / "runs" / "playground")) as url:
        yield url


@pytest.fixture(scope="module")  # its event loop is in the way of other tests
def browser(address):
    with launched() as chromium:
        yield chromium


@pytest.fixture
def visit(browser, address):
    """The page in a new window; afterwards: no error was said, and nothing was asked of another host."""
    with visiting(browser, address) as opened:
        yield opened
        assert opened.messages == []
        assert [url for url in opened.requests if not url.startswith((address, "blob:", "data:"))] == []
