"""Codes: representations of permutations whose positions have domains of their own."""

from collections.abc import Callable

from factorank.codes.base import Code
from factorank.codes.checking import check_code, check_name
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
        check_name(name)
        known = _codes.get(_aliases.get(name.name, name.name))
        if known is not None and type(other := known()) is not type(name):
            raise CodeError(
                f"{type(name).__name__} has the name {name.name!r}, which is that of {other!r}: saved models"
                " would find that one; give yours another name"
            )
        return name
    if isinstance(name, type) and issubclass(name, Code):
        raise CodeError(
            f"{{parameter}} is a name or a code, not a class: {name.__name__}()", parameter="code"
        )
    make = _codes.get(_aliases.get(name, name))
    if make is None:
        raise CodeError(f"there is no code {name!r}; there are {', '.join(code_names())}", parameter="code")
    return make()


def code_names() -> list[str]:
    """The names that :func:`code` knows, registered ones included."""
    return list(_codes)


def register_code(name: str, make: Callable[[], Code]) -> None:
    """Let :func:`code` know a code of your own: ``make()`` returns it, a class will do.

    It is checked on every order of up to six items, and refused unless it is a bijection within its domains.

    >>> class Doubtful(Code):
    ...     name = "doubtful"
    ...     def sizes(self, n):
    ...         return Lehmer().sizes(n)
    ...     def _encode(self, order):
    ...         return Lehmer().encode(order)
    ...     def _decode(self, code):
    ...         return FisherYates().decode(code)
    >>> register_code("doubtful", Doubtful)
    Traceback (most recent call last):
    factorank.errors.CodeError: doubtful is not a bijection: [2, 0, 1] has the code [2, 0, 0], which stands
    for [2, 1, 0]
    """
    if name in _codes or name in _aliases:
        raise CodeError(f"there is a code {name!r} already")
    if isinstance(make, type) and (missing := getattr(make, "__abstractmethods__", None)):
        listed = ", ".join(sorted(missing))
        raise CodeError(f"a code defines sizes, _encode and _decode, but {make.__name__} lacks {listed}")
    new = make()
    if not isinstance(new, Code):
        raise CodeError(f"a code is a subclass of factorank.Code, but {name!r} makes a {type(new).__name__}")
    check_name(new)
    if new.name != name:
        raise CodeError(
            f"the code that is registered as {name!r} has the name {new.name!r}, by which no saved model"
            " would find it; both must be the same"
        )
    check_code(new)
    _codes[name] = make
