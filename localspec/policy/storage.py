"""Saves what a controller learnt between sessions: one small file for each pair and setting.

A damaged or invalid file, or one of another format, is ignored: everything in it can be measured
again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.files import whole_file
from localspec.policy.acceptance import BINS, LATEST, AcceptanceEstimate
from localspec.policy.costs import Costs

FORMAT = 4
_LARGEST = 1 << 20
"""Most bytes of a valid file."""


@dataclass(slots=True)
class Knowledge:
    """Costs by bucket of context length, and acceptance by (source, kind of sampling)."""

    costs: dict[int, Costs] = field(default_factory=dict)
    acceptance: dict[tuple[str, str], AcceptanceEstimate] = field(default_factory=dict)


def name_of(facts: Mapping[str, object]) -> str:
    """File name for the facts that the measurements depend on; other facts, another file."""
    text = json.dumps({"format": FORMAT, **facts}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20] + ".json"


def load(path: Path) -> Knowledge | None:
    """The saved knowledge; None where there is no valid file."""
    try:
        if path.stat().st_size > _LARGEST:
            return None
        return _parsed(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
        return None
    except RecursionError:
        return None


def save(path: Path, knowledge: Knowledge) -> None:
    """Replace the file in one step, in a folder that is there; of two writers the last one wins.

    Raises:
        OSError: it cannot be written; the old file stays.
    """
    write(path, _plain(knowledge))


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Replace a file of JSON in one step, in a folder that is there.

    Not synced: a reply would wait for the disk at its end, and a damaged file is measured again.

    Raises:
        OSError: it cannot be written; the old file stays.
    """
    whole_file.replace(path, [json.dumps(data).encode()], sync=False)


def _plain(knowledge: Knowledge) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "costs": {
            str(bucket): {"verify": costs.curve(), "draft": costs.drafts()}
            for bucket, costs in knowledge.costs.items()
        },
        "acceptance": [
            {
                "source": source,
                "kind": kind,
                "accepted": estimate.accepted,
                "judged": estimate.judged,
                "seen": estimate.seen,
                "verdicts": "".join("01"[right] for right in estimate.verdicts),
            }
            for (source, kind), estimate in knowledge.acceptance.items()
        ],
    }


def _parsed(data: dict[str, Any]) -> Knowledge:
    if data["format"] != FORMAT:
        raise ValueError("another format")
    costs = {
        int(bucket): Costs(
            {int(n): _positive(s) for n, s in saved["verify"].items()},
            {str(source): _positive(s) for source, s in saved["draft"].items()},
        )
        for bucket, saved in data["costs"].items()
    }
    if not costs:
        raise ValueError("no costs")
    acceptance = {
        (str(saved["source"]), str(saved["kind"])): AcceptanceEstimate(
            accepted=_counts(saved["accepted"]),
            judged=_counts(saved["judged"]),
            seen=_counts(saved["seen"]),
            verdicts=_verdicts(saved["verdicts"]),
        )
        for saved in data["acceptance"]
    }
    return Knowledge(costs, acceptance)


def _positive(x: object) -> float:
    if not isinstance(x, int | float) or not 0 < x < math.inf:
        raise ValueError("not a time")
    return float(x)


def _verdicts(saved: object) -> deque[bool]:
    if not isinstance(saved, str) or len(saved) > LATEST or set(saved) - {"0", "1"}:
        raise ValueError("not verdicts")
    return deque((right == "1" for right in saved), maxlen=LATEST)


def _counts(values: list[float]) -> list[float]:
    if len(values) != BINS or not all(0 <= x < math.inf for x in values):
        raise ValueError("not counts")
    return [float(x) for x in values]
