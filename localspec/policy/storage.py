"""Saves what a controller learnt between sessions: one small file for each pair and setting.

A damaged or invalid file, or one of another format, is ignored: all of it can be measured again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from msgspec import Meta, MsgspecError, Struct
from msgspec.json import decode

from localspec.core.files import measured
from localspec.policy.acceptance import BINS, LATEST, AcceptanceEstimate
from localspec.policy.costs import WIDTHS, Costs

FORMAT = 5
_LARGEST = 1 << 20
"""Most bytes of a valid file."""
_MOST = 2 * WIDTHS
"""Most widths and drafters of a curve, whose filter grows with their square: `WIDTHS` of passes,
and those that every load measures."""
_BUCKETS = 16
"""More than `bucket_of` finds: a context of 2^31 tokens is in the twelfth."""
_Bucket = Annotated[int, Meta(ge=0, lt=_BUCKETS)]
_Width = Annotated[int, Meta(ge=1, le=1 << 20)]
_Seconds = Annotated[float, Meta(gt=0)]
_Counts = Annotated[list[Annotated[float, Meta(ge=0)]], Meta(min_length=BINS, max_length=BINS)]


@dataclass(slots=True)
class Knowledge:
    """Costs by bucket of context length, and acceptance by (source, kind of sampling)."""

    costs: dict[int, Costs] = field(default_factory=dict)
    acceptance: dict[tuple[str, str], AcceptanceEstimate] = field(default_factory=dict)


class _Costs(Struct):
    verify: Annotated[dict[_Width, _Seconds], Meta(min_length=1, max_length=_MOST)]
    draft: Annotated[dict[str, _Seconds], Meta(max_length=_MOST)]


class _Acceptance(Struct):
    source: str
    kind: str
    accepted: _Counts
    judged: _Counts
    seen: _Counts
    verdicts: Annotated[str, Meta(pattern="^[01]*$", max_length=LATEST)]

    def __post_init__(self) -> None:
        if any(a > j for a, j in zip(self.accepted, self.judged, strict=True)):
            raise ValueError("more tokens were accepted than judged")


class _File(Struct):
    format: Annotated[int, Meta(ge=FORMAT, le=FORMAT)]
    costs: Annotated[dict[_Bucket, _Costs], Meta(min_length=1)]
    acceptance: list[_Acceptance]


def load(path: Path) -> Knowledge | None:
    """The saved knowledge; None where there is no valid file."""
    try:
        raw = measured.content(path, _LARGEST + 1)
        if len(raw) > _LARGEST:
            return None
        saved = decode(raw, type=_File)
    except (OSError, MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    costs = {bucket: Costs(found.verify, found.draft) for bucket, found in saved.costs.items()}
    known = Knowledge(costs)
    for a in saved.acceptance:
        found = AcceptanceEstimate(a.accepted, a.judged, a.seen)
        found.verdicts.extend(right == "1" for right in a.verdicts)
        known.acceptance[a.source, a.kind] = found
    return known


def save(path: Path, knowledge: Knowledge) -> None:
    """Replace the file in one step, in a folder that is there.

    Raises:
        OSError: it cannot be written; the old file stays.
    """
    costs = {
        b: _Costs(known.curve(), known.token_seconds_by_drafter())
        for b, known in knowledge.costs.items()
    }
    acceptance = []
    for (source, kind), e in knowledge.acceptance.items():
        verdicts = "".join("01"[right] for right in e.verdicts)
        acceptance.append(_Acceptance(source, kind, e.accepted, e.judged, e.seen, verdicts))
    measured.write(path, _File(FORMAT, costs, acceptance))
