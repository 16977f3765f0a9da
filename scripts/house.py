"""Counts of the house: how large it is, how many floors it has, which rooms import which.

A *room* is a package below `localspec` (of `models` each one in it), a module beside them, or
`tui`; `localspec` itself, whose names are those of other rooms, is none. An *arrow* leads from a
room to another one that it imports; it is a *back arrow* where it has to be cut for the rooms to be
in order. A room's *floor* is the longest way down from it. A *circle* is a group of rooms, or of
modules of one room, that import each other. Imports for types alone count too. A line of code is
neither blank nor a comment, a docstring, an import or a part of `__all__`.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("localspec", "tui")
SMALL = 60
"""Lines below which a module is small."""
Graph = Mapping[str, set[str]]
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}


def code_lines(source: str) -> int:
    """Lines of code in a module's text."""
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            used.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if _says_nothing(node):
            used.difference_update(range(node.lineno, node.end_lineno + 1))
    return len(used)


def _says_nothing(node: ast.AST) -> bool:
    """Whether it is an import, `__all__`, or a string that describes what is beside it."""
    if isinstance(node, ast.Assign):
        return [t.id for t in node.targets if isinstance(t, ast.Name)] == ["__all__"]
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return isinstance(node, ast.Import | ast.ImportFrom)


def room(module: str) -> str:
    """The room that a module is in."""
    parts = module.split(".")
    if parts[0] == "tui":
        return "tui"
    depth = 3 if parts[1:2] == ["models"] else 2
    return ".".join(parts[:depth])


def circles(graph: Graph) -> list[list[str]]:
    """Groups of more than one that can reach each other (Tarjan's components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        path.append(node)
        for other in graph[node]:
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in path:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            group = path[path.index(node) :]
            del path[path.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return sorted(found)


def back_arrows(graph: Graph) -> list[tuple[str, str]]:
    """Arrows that are cut, one of each circle after the other, until the rooms are in order."""
    left = {name: set(others) for name, others in graph.items()}
    cut = []
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            imported, importer = error.args[1][:2]
            left[importer].discard(imported)
            cut.append((importer, imported))
        else:
            return cut


def floors(graph: Graph) -> int:
    """Rooms on the longest way down, without back arrows."""
    cut = set(back_arrows(graph))
    left = {name: {o for o in others if (name, o) not in cut} for name, others in graph.items()}
    height: dict[str, int] = {}
    for name in TopologicalSorter(left).static_order():
        height[name] = 1 + max((height[other] for other in left[name]), default=0)
    return max(height.values())


def imports() -> dict[str, set[str]]:
    """The modules of the product that each imports."""
    graph = grimp.build_graph(*PRODUCT, cache_dir=None)
    own = graph.modules - {"localspec"}
    return {name: graph.find_modules_directly_imported_by(name) & own for name in own}


def rooms(modules: Graph) -> dict[str, set[str]]:
    """The rooms that each imports."""
    found: dict[str, set[str]] = {room(name): set() for name in modules}
    for name, others in modules.items():
        found[room(name)] |= {room(other) for other in others} - {room(name)}
    return found


def inside(modules: Graph) -> Iterator[list[str]]:
    """Circles of modules within each room."""
    for one in sorted({room(name) for name in modules}):
        own = {name for name in modules if room(name) == one}
        yield from circles({name: modules[name] & own for name in own})


def lines(paths: Iterable[Path]) -> int:
    """Lines of all kinds."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def programs(folder: Path) -> Iterator[Path]:
    """Python and shell of a folder; names without an ending are commands."""
    for path in folder.rglob("*"):
        own = path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts
        if own and path.suffix in {".py", ".sh", ".cmake", ""}:
            yield path


def counts() -> dict[str, object]:
    """All of them, by name."""
    files = [path for name in PRODUCT for path in sorted((ROOT / name).rglob("*.py"))]
    sources = [path.read_text(encoding="utf-8") for path in files]
    modules = imports()
    graph = rooms(modules)
    between, within = circles(graph), list(inside(modules))
    scripts = list(programs(ROOT / "scripts"))
    training = [path for path in scripts if ROOT / "scripts" / "training" in path.parents]
    tests = [path for path in (ROOT / "tests").rglob("*.py") if "__pycache__" not in path.parts]
    return {
        "lines of code": sum(map(code_lines, sources)),
        "lines": sum(len(source.splitlines()) for source in sources),
        "modules": len(files),
        f"modules of fewer than {SMALL} lines": sum(
            len(source.splitlines()) < SMALL for source in sources
        ),
        "modules with __all__": sum("\n__all__ = " in source for source in sources),
        "rooms": len(graph),
        "floors": floors(graph),
        "arrows": sum(map(len, graph.values())),
        "back arrows": [f"{a} -> {b}" for a, b in back_arrows(graph)],
        "circles between rooms": between,
        "circles inside of rooms": within,
        "lines in scripts": lines(scripts),
        "of these, training": lines(training),
        "lines in tests": lines(tests),
    }


def main() -> None:
    """Print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one object on stdout")
    given = parser.parse_args()
    found = counts()
    if given.json:
        print(json.dumps(found, indent=1))
        return
    for name, value in found.items():
        if isinstance(value, list):
            print(f"{name:32} {len(value):8,}")
            for one in value:
                print(f"    {one if isinstance(one, str) else ', '.join(one)}")
        else:
            print(f"{name:32} {value:8,}")


if __name__ == "__main__":
    main()
