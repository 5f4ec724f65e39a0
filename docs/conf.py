"""How Sphinx builds the documentation: ``./run docs``. Warnings are errors.

Pages are Markdown that reads well as it is. Their examples are doctests, which the tests run and whose
answers they compare: ``pytest docs``. The reference is made from the docstrings of every public name.
"""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode, Text, literal_block
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import code_pictures  # noqa: E402

import factorank  # noqa: E402
from factorank import public  # noqa: E402

project = "factorank"
author = "the factorank authors"
copyright = "2026 the factorank authors, MIT licence"
version = release = factorank.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
root_doc = "index"
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "factorank"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = "_static/icon.svg"
html_favicon = "_static/icon.svg"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#4a3fc4", "color-brand-content": "#4a3fc4"},
    "dark_css_variables": {"color-brand-primary": "#a9a2ff", "color-brand-content": "#a9a2ff"},
}
pygments_style = "tango"
pygments_dark_style = "monokai"
html_math_renderer = "mathml"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
napoleon_use_rtype = False
add_module_names = False

# What is made rather than written: pictures of the codes, and the reference.
code_pictures.write(HERE / "_static")

GROUPS = {
    "Orders": ["permutations", "lexicographic", "distances"],
    "Codes": ["codes"],
    "Laws": ["distributions"],
    "Learned laws": ["models", "training", "kernels"],
    "Rankings and leaderboards": ["data", "leaderboard", "rerank"],
    "Errors": ["errors"],
}


def reference() -> str:
    """A page with every public name: rooms by module, everything else by where it is from."""
    names = {name: getattr(public, name) for name in public.__all__}
    rooms = {name: value for name, value in names.items() if inspect.ismodule(value)}
    lines = ["# Reference", "", "Every public name. `import factorank as fr` offers them all.", ""]
    left = set(names) - set(rooms)
    for title, modules in GROUPS.items():
        own = sorted(n for n in left if names[n].__module__.split(".")[1] in modules)
        left -= set(own)
        lines += [
            f"## {title}",
            "",
            *(line for name in own for line in directive(f"factorank.{name}", names[name])),
        ]
    assert not left, f"no group of the reference has {sorted(left)}"
    for name, room in rooms.items():
        lines += [
            f"## fr.{name}",
            "",
            "```{eval-rst}",
            f".. automodule:: factorank.{name}",
            "   :no-index:",
            "```",
            "",
        ]
        for inner in getattr(room, "__all__", None) or public_functions(room):
            value = getattr(room, inner)
            known = any(value is other for other in names.values())
            if not known and (inspect.isclass(value) or inspect.isroutine(value)):
                lines += directive(f"factorank.{name}.{inner}", value)
    return "\n".join(lines) + "\n"


def public_functions(module: object) -> list[str]:
    """The functions and classes that a module defines itself."""
    own = vars(module).items()
    return [n for n, v in own if not n.startswith("_") and getattr(v, "__module__", "") == module.__name__]


def directive(path: str, value: object) -> list[str]:
    kind = "autoclass" if inspect.isclass(value) else "autofunction"
    options = []
    if inspect.isclass(value):
        options = ["   :show-inheritance:"] if issubclass(value, Exception) else ["   :members:"]
    return ["```{eval-rst}", f".. {kind}:: {path}", *options, "```", ""]


(HERE / "reference.md").write_text(reference(), encoding="utf-8")


SIGNS = {"…": "ldots", "∝": "propto", "≥": "ge", "≤": "le", "∈": "in", "·": "cdot", "×": "times"}
"""What docstrings write as characters in formulas."""


def setup(app: Sphinx) -> None:
    """Formulas become MathML, which browsers show by themselves: no script from elsewhere."""

    def shown(block: bool) -> Callable[[Any, Any], None]:
        def visit(writer: Any, node: Any) -> None:
            formula = node.astext()
            for sign, name in SIGNS.items():
                formula = formula.replace(sign, f"\\{name} ")
            try:
                writer.body.append(tex2mathml(formula, as_block=block))
            except MathError as error:
                logging.getLogger(__name__).warning("%s: %s", error, formula, location=node)
            raise SkipNode

        return visit

    def trimmed(_: Sphinx, page: Any) -> None:
        """Examples end in an empty line, which tells the tests where an answer ends and readers nothing."""
        for block in page.findall(literal_block):
            block.rawsource = block.astext().rstrip()  # what is highlighted
            block.children = [Text(block.rawsource)]

    app.connect("doctree-read", trimmed)
    app.add_html_math_renderer("mathml", (shown(block=False), None), (shown(block=True), None))
