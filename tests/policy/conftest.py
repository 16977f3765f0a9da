"""Other seeds for what is played here: ``OTHER_SEEDS=7 python -m pytest tests/policy``.

Sessions are drawn from fixed seeds, so their thresholds hold or fail at every run alike. With other
seeds they say how often a harmless change, after which the same seed draws another session, would
fail: the false-alarm rates that the tests state.
"""

from __future__ import annotations

import os
import random

if _others := int(os.environ.get("OTHER_SEEDS", "0")):

    class _Other(random.Random):
        def __init__(self, seed: int | str | None = None) -> None:
            super().__init__(None if seed is None else f"{seed} of {_others}")

    random.Random = _Other  # type: ignore[misc]
