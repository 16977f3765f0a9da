"""One table of drafters: complete, openable, cheap to read, and the only list of its kind."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.core import drafter_registry
from localspec.core.drafter_registry import TABLE, DrafterSpec, Family
from localspec.core.options import Options
from localspec.drafters.lookup.common import LookupTexts
from localspec.models.compat import heads
from tui.session.token_runs import _ACCEPTED

ROOT = Path(drafter_registry.__file__).parents[2]
COPYING = drafter_registry.of(Family.LOOKUP, Family.LOOKAHEAD, Family.PREDICTION)
HEADS = drafter_registry.of(Family.HEAD)
LISTED = {spec.name for spec in TABLE} - {"model", "tree", "off", "grammar", "prediction"}
"""Names that mean nothing but a drafter."""


def named(spec: DrafterSpec) -> str:
    return spec.name


def test_the_table_is_read_without_numpy_and_without_llama_cpp() -> None:
    probe = (
        "import sys; from localspec.core import drafter_registry; "
        "sys.exit(bool({'numpy', 'llama_cpp'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_each_name_is_in_the_table_once() -> None:
    assert len(set(drafter_registry.NAMES)) == len(TABLE)
    assert [drafter_registry.get(spec.name) for spec in TABLE] == [*TABLE]
    assert drafter_registry.find("nobody") is None


@pytest.mark.parametrize("spec", TABLE, ids=named)
def test_every_drafter_can_be_asked_for(spec: DrafterSpec) -> None:
    assert Options(drafter=(spec.name,)).drafter == (spec.name,)


@pytest.mark.parametrize("spec", COPYING, ids=named)
def test_a_drafter_that_copies_is_opened_under_its_name(spec: DrafterSpec) -> None:
    assert spec.opener()(LookupTexts(2, ((1, 2, 3),))).name == spec.name


@pytest.mark.parametrize("spec", drafter_registry.of(Family.MODEL, Family.HEAD), ids=named)
def test_a_drafter_that_computes_has_an_opener_and_a_file(spec: DrafterSpec) -> None:
    assert callable(spec.opener())
    assert spec.file is not None
    first = drafter_registry.by_file(spec.file)
    assert first is not None
    assert first.described


@pytest.mark.parametrize("spec", HEADS, ids=named)
def test_every_head_is_checked_against_its_target_before_it_is_loaded(spec: DrafterSpec) -> None:
    assert spec.file in heads.HEAD_KINDS
    assert callable(spec.checker())


def test_the_interface_shows_accepted_tokens_of_every_family() -> None:
    assert {*Family} - {*_ACCEPTED} == {Family.NONE}


def lists_drafters(tree: ast.AST) -> list[int]:
    """Lines of displays and dictionaries that name several drafters."""
    found = []
    for node in ast.walk(tree):
        inside: list[ast.expr | None] = []
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            inside = [*node.elts]
        elif isinstance(node, ast.Dict):
            inside = [*node.keys]
        texts = {n.value for n in inside if isinstance(n, ast.Constant)}
        if len(texts & LISTED) > 1:
            found.append(node.lineno)  # type: ignore[attr-defined] # displays have lines
    return found


def test_no_other_module_lists_drafters() -> None:
    for package in ("localspec", "tui"):
        for path in (ROOT / package).rglob("*.py"):
            if path != Path(drafter_registry.__file__):
                found = lists_drafters(ast.parse(path.read_text(encoding="utf-8")))
                assert not found, f"{path.relative_to(ROOT)}: {found}; read the registry"


def test_what_looks_for_such_lists_finds_them() -> None:
    for text in ('X = ("suffix", "ngram")', 'X = {"mtp": 1, "eagle3": 2}', 'X = {"mtp", "medusa"}'):
        assert lists_drafters(ast.parse(text)) == [1]
