"""Terminals of a few columns and rows, as a tiled window or a split of tmux may leave them."""

from __future__ import annotations

from typing import Any

SIZES = tuple((width, 1 + 3 * width % 8) for width in range(1, 13))
"""Every width, and every height at one of them."""


async def go_through_narrow_sizes(pilot: Any) -> None:
    """Give the terminal each of them, and a usual one again."""
    for size in (*SIZES, (80, 24)):
        await pilot.resize_terminal(*size)
        await pilot.pause()
