"""A real browser with the built page in it, and what it said and asked for meanwhile."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from factorank.playground import serve

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SAME_DRAWS = "{ let x = 1; Math.random = () => (x = (x * 48271) % 2147483647) / 2147483647; }"
"""Scrambles and draws are the same in every run."""
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def browser_path() -> str | None:
    """Chromium, where there is one; ``FACTORANK_BROWSER`` names another."""
    chosen = os.environ.get("FACTORANK_BROWSER")
    return chosen or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )


@dataclass
class Visit:
    """The page in a window of its own."""

    page: Any
    address: str
    messages: list[str] = field(default_factory=list)
    """Errors and warnings of the console, and errors that nobody caught."""
    requests: list[str] = field(default_factory=list)

    def open(self, tab: str) -> Any:
        """Show a tab; its panel."""
        self.page.goto(f"{self.address}#{tab}")
        self.page.reload()
        return self.page.locator(f"#panel-{tab}")


@contextmanager
def launched() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=list(FLAGS))
        yield browser
        browser.close()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with serve(folder) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@contextmanager
def visiting(browser: Any, address: str, **options: Any) -> Iterator[Visit]:
    window = {"viewport": {"width": 1280, "height": 1000}} | options
    context = browser.new_context(reduced_motion="reduce", **window)
    context.add_init_script(SAME_DRAWS)
    visit = Visit(context.new_page(), address)
    visit.page.set_default_timeout(120_000)
    visit.page.on(
        "console", lambda m: visit.messages.append(m.text) if m.type in ("error", "warning") else None
    )
    visit.page.on("pageerror", lambda error: visit.messages.append(str(error)))
    visit.page.on("request", lambda request: visit.requests.append(request.url))
    yield visit
    context.close()
