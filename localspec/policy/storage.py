"""What a controller learnt, kept between sessions: one small file a pair and machine setting.

A file that is damaged, of another format or full of nonsense is as good as none: everything in it
can be measured again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.files import whole_file
from localspec.policy.acceptance import BINS, AcceptanceEstimate
from localspec.policy.costs import Costs

FORMAT = 2
_LARGEST = 1 << 20
"""Bytes of a file that could be ours."""


@dataclass(slots=True)
class Knowledge:
    """Costs by bucket of context length, and survival by (source, kind of sampling)."""

    costs: dict[int, Costs] = field(default_factory=dict)
    survival: dict[tuple[str, str], AcceptanceEstimate] = field(default_factory=dict)


def name_of(facts: Mapping[str, object]) -> str:
    """File name for what the measurements depend on; other facts, another file."""
    text = json.dumps({"format": FORMAT, **facts}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20] + ".json"


def load(path: Path) -> Knowledge | None:
    """What was kept; None where there is nothing that can be trusted."""
    try:
        if path.stat().st_size > _LARGEST:
            return None
        return _parsed(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
        return None
    except RecursionError:
        return None


def save(path: Path, knowledge: Knowledge) -> None:
    """Replace the file in one step; of two writers the last one wins.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    write(path, _plain(knowledge))


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Replace a file of JSON in one step.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    whole_file.replace(path, [json.dumps(data).encode()])


def _plain(knowledge: Knowledge) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "costs": {
            str(bucket): {"verify": costs.curve(), "draft": costs.drafts()}
            for bucket, costs in knowledge.costs.items()
        },
        "survival": [
            {
                "source": source,
                "kind": kind,
                "stood": survival.stood.tolist(),
                "judged": survival.judged.tolist(),
                "first": survival.first.tolist(),
                "lately": survival.lately.tolist(),
            }
            for (source, kind), survival in knowledge.acceptance.items()
        ],
    }


def _parsed(data: dict[str, Any]) -> Knowledge:
    if data["format"] != FORMAT:
        raise ValueError("another format")
    costs = {
        int(bucket): Costs(
            {int(n): _positive(s) for n, s in kept["verify"].items()},
            {str(source): _positive(s) for source, s in kept["draft"].items()},
        )
        for bucket, kept in data["costs"].items()
    }
    if not costs:
        raise ValueError("no costs")
    survival = {
        (str(kept["source"]), str(kept["kind"])): AcceptanceEstimate(
            stood=_counts(kept["stood"]),
            judged=_counts(kept["judged"]),
            first=_counts(kept["first"]),
            lately=_counts(kept["lately"]),
        )
        for kept in data["survival"]
    }
    return Knowledge(costs, survival)


def _positive(x: object) -> float:
    if not isinstance(x, int | float) or not 0 < x < math.inf:
        raise ValueError("not a time")
    return float(x)


def _counts(values: list[object]) -> NDArray[np.float64]:
    if not all(isinstance(x, int | float) for x in values):
        raise ValueError("not counts")
    counts = np.array(values, np.float64)
    if counts.shape != (BINS,) or not np.isfinite(counts).all() or (counts < 0).any():
        raise ValueError("not counts")
    return counts
