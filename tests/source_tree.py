"""The source of the package as a graph: its modules, their imports and cycles, the private names they use."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "factorank"


@cache
def modules() -> dict[str, Path]:
    """The file of each module, by the dotted name."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for file in files
    }


def part_of(module: str) -> str:
    """The first name below `factorank`: the package or module that a layer holds."""
    return module.split(".")[1] if "." in module else "__init__"


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text(encoding="utf-8"))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below, wherever it stands, but for what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for branch in child.orelse:
                yield branch
                yield from statements(branch)
        else:
            yield child
            yield from statements(child)


def imported_names(module: str) -> Iterator[tuple[int, str]]:
    """The line and the full dotted name of all that a module imports, at the top or inside a function."""
    for node in statements(tree(module)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                parents = module.split(".")
                is_package = modules()[module].name == "__init__.py"
                base = ".".join(parents[: len(parents) - node.level + is_package])
                source = f"{base}.{source}".rstrip(".")
            for alias in node.names:
                yield node.lineno, f"{source}.{alias.name}"


@cache
def imports(module: str) -> frozenset[str]:
    """The modules of the package that a module imports.

    A name imported from a package is the module of that name where there is one, else the package itself. The
    packages above a module, which Python runs first, are not counted.
    """
    names = {name for _, name in imported_names(module) if name.split(".")[0] == PACKAGE.name}
    return frozenset(
        {name if name in modules() else name.rpartition(".")[0] for name in names} & set(modules())
    )


def cycles(edges: dict[str, frozenset[str]]) -> list[list[str]]:
    """The path around a cycle for each group of modules that import one another (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    around = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in sorted(edges[module]):
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1 or module in edges[module]:
                around.append(_path_around(module, edges, set(group)))

    for module in sorted(edges):
        if module not in index:
            visit(module)
    return around


def _path_around(start: str, edges: dict[str, frozenset[str]], group: set[str]) -> list[str]:
    """The shortest way from a module back to itself inside its group."""
    paths = [[start]]
    for path in paths:  # grows while it is read: breadth first
        for target in sorted(edges[path[-1]] & group):
            if target == start:
                return [*path, start]
            if all(target not in other for other in paths):
                paths.append([*path, target])
    raise AssertionError(f"{start} is in no cycle")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@cache
def private_attributes(part: str) -> frozenset[str]:
    """The private attributes that classes of a part define: methods, class variables, what is set on self.

    The names that torch gives every module are torch's, not the part's.
    """
    names = set()
    for module in modules():
        if part_of(module) != part:
            continue
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.ClassDef):
                for item in node.body:
                    if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                        names.add(item.name)
                    elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                        names.add(item.target.id)
                    elif isinstance(item, ast.Assign):
                        names |= {target.id for target in item.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node.value):
                names.add(node.attr)
    return frozenset(filter(is_private, names - vars(torch.nn.Module()).keys()))


def foreign_private_names(module: str) -> Iterator[str]:
    """Each use of a private name that another part of the package defines, as `line: name`.

    Imports of private names and modules count, and attributes of any object but `self`, `cls` and `super()`.
    An attribute is a part's own if a class of that part defines it.
    """
    own = part_of(module)
    at_home = {own, "commands"} if own == "cli" else {own}  # cli.py is the front of the commands
    for line, name in imported_names(module):
        path = name.split(".")
        if path[0] == PACKAGE.name and any(map(is_private, path)) and part_of(name) not in at_home:
            yield f"{line}: {name}"
    others = frozenset().union(*(private_attributes(part_of(other)) for other in modules()))
    for node in statements(tree(module)):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not _is_own(node.value):
            foreign = node.attr in others and node.attr not in private_attributes(own)
            if foreign or _imported_module(node.value, module) not in (None, own):
                yield f"{node.lineno}: {ast.unparse(node)}"


def _is_own(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def _imported_module(value: ast.expr, module: str) -> str | None:
    """The part to which a name belongs that stands for an imported module of the package."""
    if isinstance(value, ast.Name):
        for _, name in imported_names(module):
            if name in modules() and name.rpartition(".")[2] == value.id:
                return part_of(name)
    return None
