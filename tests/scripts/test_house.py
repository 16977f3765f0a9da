"""The counts of the house, on small houses whose counts are known."""

from __future__ import annotations

import house
import pytest

SOURCE = '''"""A module.

Two lines.
"""

import os
from pathlib import (
    Path,
)

__all__ = [
    "A",
]

A = 1  # a comment
"""What A is."""


def double(x):
    # Why.
    """Twice."""
    return (
        x
        + x
    )
'''


def test_lines_of_code_are_neither_comments_nor_docstrings_nor_imports():
    assert house.code_lines(SOURCE) == len(["A =", "def", "return (", "x", "+ x", ")"])


@pytest.mark.parametrize(
    ("module", "room"),
    [
        ("tui.screens.chat", "tui"),
        ("localspec.llama.target", "localspec.llama"),
        ("localspec.models.gguf.header", "localspec.models.gguf"),
        ("localspec.core.files.paths", "localspec.core"),
        ("localspec.runtime", "localspec.runtime"),
    ],
)
def test_a_module_is_in_one_room(module: str, room: str) -> None:
    assert house.room(module) == room


TOWER = {"roof": {"hall", "cellar"}, "hall": {"cellar"}, "cellar": set()}


def test_a_tower_has_as_many_floors_as_its_longest_way_down_has_rooms():
    assert house.floors(TOWER) == 3
    assert house.circles(TOWER) == []
    assert house.back_arrows(TOWER) == []


def test_an_arrow_from_the_cellar_to_the_hall_is_a_back_arrow_and_makes_a_circle():
    bent = TOWER | {"cellar": {"hall"}}
    assert house.circles(bent) == [["cellar", "hall"]]
    assert len(house.back_arrows(bent)) == 1
    assert house.floors(bent) == 3


def test_two_circles_are_two():
    graph = {"a": {"b"}, "b": {"a"}, "c": {"d", "a"}, "d": {"e"}, "e": {"c"}}
    assert house.circles(graph) == [["a", "b"], ["c", "d", "e"]]
    assert len(house.back_arrows(graph)) == 2


def test_rooms_of_this_repository_make_no_circle():
    assert house.circles(house.rooms(house.imports())) == []
