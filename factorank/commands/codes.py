"""``factorank codes``: the codes at work, step by step."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from factorank.commands._text import counted, table
from factorank.errors import FactorankError

EXAMPLES = {"lehmer": (2, 4, 3, 0, 1), "fisher-yates": (3, 2, 1, 0), "insertion": (1, 2, 4, 0, 3)}
"""The permutations of the paper's figures, each with the code that its figure explains."""
RULES = {
    "lehmer": "take the item at this index of those left",
    "left-lehmer": "from the last place on, take the item with this many larger items left",
    "fisher-yates": "swap each place with the place this many steps further",
    "insertion": "insert each item at this slot of the list so far",
}
"""How each code is decoded."""


@dataclass
class Codes:
    """Show the codes at work: every code of an order, and how each is decoded."""

    order: Annotated[tuple[int, ...], tyro.conf.Positional, tyro.conf.arg(metavar="ITEM…")] = ()
    """An order of the items 0..n-1, best first; the paper's own examples if none is given."""

    def run(self) -> None:
        if self.order:
            check(self.order)
            print(codes_of(self.order))
            for name in RULES:
                print("\n" + decoding(name, self.order))
            return
        print("The examples of the paper's figures: an order and its codes.")
        for name, order in EXAMPLES.items():
            print("\n" + codes_of(order))
            print("\n" + decoding(name, order))


def check(order: tuple[int, ...]) -> None:
    """Refuse what is not an order of 0..n-1."""
    n = len(order)
    if sorted(order) == list(range(n)):
        return
    begin = f"an order of {counted(n, 'item')} holds each of 0..{n - 1} once"
    if sorted(order) == list(range(1, n + 1)):
        raise FactorankError(
            f"{begin}, but {_numbers(order)} counts from 1; from 0 it is {_numbers([i - 1 for i in order])}"
        )
    wrong = next(item for item in order if not 0 <= item < n or order.count(item) > 1)
    how = " more than once" if 0 <= wrong < n else ", which is none of them"
    raise FactorankError(f"{begin}, but {_numbers(order)} holds {wrong}{how}")


def codes_of(order: tuple[int, ...]) -> str:
    """A table of all codes of an order, with the values that their positions allow."""
    import torch

    import factorank as fr

    rows = []
    for name in fr.code_names():
        code = fr.code(name)
        value = code.encode(torch.tensor(order))
        assert code.decode(value).tolist() == list(order)
        rows.append([name, _numbers(value.tolist()), _numbers((code.sizes(len(order)) - 1).tolist())])
    return f"order {_numbers(order)}\n" + table(["code", "value", "largest allowed"], rows, "lll")


def decoding(name: str, order: tuple[int, ...]) -> str:
    """The steps that turn a code back into the order."""
    import torch

    import factorank as fr

    value = fr.code(name).encode(torch.tensor(order)).tolist()
    rows = _steps(name, value)
    assert rows[-1][-1] == _numbers(order), "the last step ends in the order"
    shown = {"fisher-yates": "places swapped", "insertion": "items moved"}.get(name, "items left")
    header = ["item" if name == "insertion" else "place", "value", shown, "order"]
    return f"decoding {name} {_numbers(value)}\n  {RULES[name]}\n" + table(header, rows, "rrll")


def _steps(name: str, value: list[int]) -> list[list[object]]:
    """For each step of decoding: the position, its value, what it acts on, and the order so far."""
    left, order, rows = list(range(len(value))), list[int](), list[list[object]]()
    for step in reversed(range(len(value))) if name == "left-lehmer" else range(len(value)):
        digit = value[step]
        if name == "insertion":
            shown = str(len(order) - digit)
            order.insert(digit, step)
        elif name == "fisher-yates":
            order, there = left, step + digit
            order[step], order[there] = order[there], order[step]
            shown = f"{step} and {there}" if digit else "none"
        else:
            place = digit if name == "lehmer" else len(left) - 1 - digit
            shown = " ".join(f"[{item}]" if i == place else str(item) for i, item in enumerate(left))
            order.insert(len(order) if name == "lehmer" else 0, left.pop(place))
        rows.append([step, digit, shown, _numbers(order)])
    return rows


def _numbers(values: tuple[int, ...] | list[int]) -> str:
    return " ".join(map(str, values))
