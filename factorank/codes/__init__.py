"""Codes: representations of permutations whose positions have domains of their own."""

from collections.abc import Callable

from factorank.codes.base import Code
from factorank.codes.fisher_yates import FisherYates
from factorank.codes.inline import Inline, max_inline_entropy
from factorank.codes.insertion import Insertion
from factorank.codes.lehmer import Lehmer
from factorank.errors import CodeError

__all__ = [
    "Code",
    "FisherYates",
    "Inline",
    "Insertion",
    "Lehmer",
    "code",
    "code_names",
    "max_inline_entropy",
    "register_code",
]

_codes: dict[str, Callable[[], Code]] = {
    "inline": Inline,
    "lehmer": Lehmer,
    "left-lehmer": lambda: Lehmer(side="left"),
    "fisher-yates": FisherYates,
    "insertion": Insertion,
}
_aliases = {"right-lehmer": "lehmer"}


def code(name: str | Code) -> Code:
    """The code of that name; a :class:`Code` is returned as it is.

    >>> code("fisher-yates").sizes(4)
    tensor([4, 3, 2, 1])
    """
    if isinstance(name, Code):
        return name
    make = _codes.get(_aliases.get(name, name))
    if make is None:
        raise CodeError(f"there is no code {name!r}; there are {', '.join(code_names())}", parameter="code")
    return make()


def code_names() -> list[str]:
    """The names that :func:`code` knows, registered ones included."""
    return list(_codes)


def register_code(name: str, make: Callable[[], Code]) -> None:
    """Let :func:`code` know a code of your own: ``make()`` returns it, a class will do."""
    if name in _codes or name in _aliases:
        raise CodeError(f"there is a code {name!r} already")
    made = make()
    if not isinstance(made, Code):
        raise CodeError(f"a code is a subclass of factorank.Code, but {name!r} makes a {type(made).__name__}")
    _codes[name] = make
