"""Searches for faults. A new one is a module with a class of `faults.runner.Search`'s shape, and a
row here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from faults.chances import Chances
from faults.models import Models
from faults.on_tables import OnTables
from faults.runner import Search

SEARCHES: dict[str, Callable[[Path], Search]] = {
    "tables": OnTables,
    "chances": Chances,
    "models": Models,
}
"""Searches by name; each is given a folder of its own choice to work in."""
