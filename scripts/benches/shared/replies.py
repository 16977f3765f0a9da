"""The prompts of benches of whole replies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from localspec.bench.workloads import WORKLOADS, Workload


def workloads(file: Path | None) -> Sequence[Workload]:
    """The usual ones, or those of a file: a JSON object of lists (`scripts/train_long_pair`)."""
    if file is None:
        return WORKLOADS
    given = json.loads(file.read_text(encoding="utf-8"))
    return [Workload(name, tuple(prompts)) for name, prompts in given.items()]


def by_turns(kinds: Sequence[Workload]) -> list[str]:
    """The prompts, one of each kind of work after the other."""
    return [
        prompt for some in zip(*(kind.prompts for kind in kinds), strict=True) for prompt in some
    ]
