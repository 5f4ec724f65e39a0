"""A leaderboard as one self-contained page: it sorts, filters, and loads nothing from elsewhere."""

import html
import json
from importlib.resources import files
from typing import Any


def page(facts: dict[str, Any]) -> str:
    """The page, from the facts that ``factorank leaderboard`` writes."""
    template = files("factorank.leaderboard").joinpath("page.html").read_text(encoding="utf-8")
    # Inside a script element only "<" could end it or begin a comment.
    data = json.dumps(facts, ensure_ascii=True).replace("<", "\\u003c")
    return template.replace("{{title}}", html.escape(facts["file"])).replace("{{data}}", data)
