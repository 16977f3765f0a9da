"""Private parts of Textual: as they were when they were tried, and used in one place only."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.dom import DOMNode
from textual.driver import Driver
from textual.screen import Screen
from textual.widget import Widget

from tui.terminal.textual_private import PARTS, TRIED

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted((ROOT / "tui").rglob("*.py"))
ALLOWED = {"textual_private.py", "driver.py"}


def part(place: str) -> Any:
    """The part of the installed Textual."""
    module, _, names = place.partition(":")
    found: Any = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name.removesuffix("()"))
        if name.endswith("()"):
            found = found()
    return found


@pytest.mark.parametrize("place", PARTS)
async def test_a_private_part_is_as_it_was_when_it_was_tried(place: str) -> None:
    found = part(place)
    callable_ = inspect.isroutine(found) or inspect.isclass(found)
    assert (str(inspect.signature(found)) if callable_ else type(found).__name__) == PARTS[place]


def test_the_version_that_was_tried_is_the_one_that_is_installed_and_required():
    assert importlib.metadata.version("textual") == TRIED
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    assert [one for one in wanted if one.startswith("textual")] == [f"textual[syntax]=={TRIED}"]


TEXTUALS = {
    name
    for base in (App, Screen, Widget, DOMNode, Driver)
    for one in base.__mro__
    if one.__module__.startswith("textual")
    for name in [*vars(one), *getattr(one, "__annotations__", ())]
    if name.startswith("_") and not name.startswith("__")
} | {part_name.rsplit(".", 1)[-1] for part_name in PARTS if "." in part_name.partition(":")[2]}
"""Private names of the classes that the interface derives from."""


def private(path: Path) -> Iterator[str]:
    """What a module uses of Textual's private parts."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = {node.attr for node in ast.walk(tree) if _stored(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            if names[0].startswith("textual") or any(n.startswith("textual") for n in names):
                dotted = ".".join(names)
                yield from (n for n in dotted.split(".") if n.startswith("_"))
        elif isinstance(node, ast.Attribute) and node.attr in TEXTUALS - own:
            yield node.attr
        elif isinstance(node, ast.ClassDef):
            yield from (
                item.name
                for item in node.body
                if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
                and f"_{item.name.lstrip('_')}" in {p.rsplit(".", 1)[-1] for p in PARTS}
                and item.name.startswith("_")
            )


def _stored(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_private_parts_are_used_in_one_place(path: Path) -> None:
    if path.name not in ALLOWED:
        assert sorted(private(path)) == []


def test_the_search_finds_what_it_is_for(tmp_path: Path) -> None:
    source = tmp_path / "x.py"
    source.write_text(
        "from textual._compositor import Compositor\n"
        "class A:\n"
        "    def _refresh_layout(self):\n"
        "        self.app._display(self)\n"
    )
    assert {*private(source)} == {"_compositor", "_refresh_layout", "_display"}
