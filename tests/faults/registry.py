"""Searches for faults. A new one is a class of `faults.runner.Search`'s shape and a row here; a
search with damaged inputs is a function and a row in `faults.cases`. A test must show that it finds
what it is for: tests/faults/test_searches_find.py lists them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path

from faults.batch_chances import BatchChances
from faults.batches import Batches
from faults.cases import CASES
from faults.chances import Chances
from faults.kill_interface import KillInterface
from faults.kill_windows import KillWindows
from faults.kills import Kills
from faults.models import Models
from faults.mutated import Mutated
from faults.on_tables import OnTables
from faults.passes import Passes
from faults.pipe import Pipe
from faults.rpc import Workers
from faults.runner import Search
from faults.soak import Soak

SEARCHES: dict[str, Callable[[Path], Search]] = {
    "tables": OnTables,
    "batches": Batches,
    "chances": Chances,
    "batch_chances": BatchChances,
    "models": Models,
    "passes": Passes,
}
"""Searches by name; each is given a folder of its own choice to work in."""

if sys.platform == "linux":  # limits of memory, pseudo-terminals and /proc
    SEARCHES |= {name: functools.partial(Mutated, name) for name in CASES}
    SEARCHES |= {"pipe": Pipe, "kills": Kills, "interface": KillInterface, "soak": Soak}
    SEARCHES |= {"windows": KillWindows, "workers": Workers}
