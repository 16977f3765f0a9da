"""How drafters of trees spend a budget.

Apart from `localspec.core.plan` because the table of drafters needs it, which every command reads.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Branching:
    """How a drafter of trees spends a budget."""

    leaves: int = 1
    """Leaves for each node at one depth."""
    least: int = 1
    """Nodes at each depth below which it drafts nothing."""
    misses: float = 0.82
    """Share of a chain's misses that remain with breadth: measured on the demo pair, three nodes
    at each depth, temperature 0 and 1 (docs/drafters.md)."""
