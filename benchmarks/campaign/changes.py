"""Small changes of a module, each in one place: what mutation testing makes of its source."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """A module with one change: where it is, what the line was, and the whole source with the change."""

    part: str
    module: str
    function: str
    line: int
    column: int
    text: str
    change: str
    source: str

    @property
    def name(self) -> tuple[str, str, int, str]:
        """What it is known by, also after lines were added above it."""
        return self.module, self.text, self.column, self.change


def places(module: str, library: Path) -> int:
    """How many changes can be made to a module."""
    return len(_changes(ast.parse(_read(module, library))))


def mutant(part: str, module: str, number: int, library: Path) -> Mutant:
    """The change of this number."""
    text = _read(module, library)
    tree = ast.parse(text)
    node, change, apply = _changes(tree)[number]
    apply()
    source = ast.unparse(ast.fix_missing_locations(tree))
    compile(source, module, "exec")
    line = text.splitlines()[node.lineno - 1]
    indent = len(line) - len(line.lstrip())
    function = _function(tree, node)
    return Mutant(part, module, function, node.lineno, node.col_offset - indent, line.strip(), change, source)


COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


def _read(module: str, library: Path) -> str:
    return (library / f"{module}.py").read_text(encoding="utf-8")


def _changes(tree: ast.Module) -> list[tuple[Any, str, Callable[[], object]]]:
    """The changes that can be made to a tree: the node, what is changed, and a function that does it."""
    found: list[tuple[Any, str, Callable[[], object]]] = []
    skipped = {id(inner) for node in ast.walk(tree) for part in _not_run(node) for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
            other = COMPARISONS[type(node.ops[0])]
            text = f"{type(node.ops[0]).__name__} to {other.__name__}"
            found.append((node, text, lambda n=node, o=other: n.ops.__setitem__(0, o())))  # type: ignore[misc]
        elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OPERATORS and not _text(node):
            operator = OPERATORS[type(node.op)]
            text = f"{type(node.op).__name__} to {operator.__name__}"
            found.append((node, text, lambda n=node, o=operator: setattr(n, "op", o())))  # type: ignore[misc]
        elif isinstance(node, ast.BoolOp):
            swapped = ast.Or if isinstance(node.op, ast.And) else ast.And
            text = f"{type(node.op).__name__} to {swapped.__name__}"
            found.append((node, text, lambda n=node, o=swapped: setattr(n, "op", o())))  # type: ignore[misc]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            twice = ast.UnaryOp(ast.Not(), node.operand)
            found.append((node, "not left out", lambda n=node, t=twice: setattr(n, "operand", t)))  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            value = not node.value if isinstance(node.value, bool) else node.value + 1
            text = f"{node.value} to {value}"
            found.append((node, text, lambda n=node, v=value: setattr(n, "value", v)))  # type: ignore[misc]
    return found


def _not_run(node: ast.AST) -> list[ast.AST]:
    """Parts of a node that say something to readers or type checkers alone: annotations, messages."""
    if isinstance(node, ast.arg):
        return [node.annotation] if node.annotation else []
    if isinstance(node, ast.AnnAssign):
        return [node.annotation]
    if isinstance(node, ast.FunctionDef):
        return [node.returns] if node.returns else []
    if isinstance(node, ast.JoinedStr | ast.Raise):
        return [node]
    return []


def _text(node: ast.BinOp | ast.AugAssign) -> bool:
    """Whether an operator joins or repeats words."""
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
    return any(
        isinstance(side, ast.JoinedStr) or isinstance(getattr(side, "value", None), str) for side in sides
    )


def _function(tree: ast.Module, node: ast.AST) -> str:
    """The qualified name of the function whose body a node is in; empty for what runs at import."""

    def inside(scope: ast.AST, names: str) -> Iterator[str]:
        for _, value in ast.iter_fields(scope):
            for child in value if isinstance(value, list) else [value]:
                if child is node:
                    yield names
                elif isinstance(child, ast.FunctionDef):
                    yield from inside_function(child, names)
                elif isinstance(child, ast.ClassDef):
                    yield from inside(child, f"{names}{child.name}.")
                elif isinstance(child, ast.AST):
                    yield from inside(child, names)

    def inside_function(function: ast.FunctionDef, names: str) -> Iterator[str]:
        body = ast.Module(function.body, [])
        defaults = [*function.args.defaults, *filter(None, function.args.kw_defaults)]
        rest = ast.Tuple([*function.decorator_list, *defaults])
        yield from inside(rest, names)
        yield from inside(body, f"{names}{function.name}.<locals>.")

    found = next(inside(tree, ""), "")
    return found.removesuffix(".<locals>.") if found.endswith(".<locals>.") else ""
