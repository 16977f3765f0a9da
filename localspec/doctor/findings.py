"""A finding, one line of a diagnosis; and the checks that run llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import localspec
from localspec.core.files.private import without_secrets

Status = Literal["ok", "note", "broken"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The topic of a check, its result, and what to do about it."""

    topic: str
    status: Status
    text: str
    """One line."""
    fix: str | None = None
    """A command, or one sentence, that makes it right."""
    details: dict[str, Any] | None = None
    """Figures for ``--json``."""
    table: tuple[str, ...] = ()
    """Lines to print below."""

    def __post_init__(self) -> None:
        """Leave no secret in what is printed, or written as JSON and sent to others."""
        for name in ("text", "fix", "details", "table"):
            object.__setattr__(self, name, _masked(getattr(self, name)))


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {key: _masked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_masked(item) for item in value)
    return value


def in_checkout() -> bool:
    """Whether localspec runs from its repository, whose script builds llama.cpp, or installed."""
    return (Path(localspec.__file__).parent.parent / "scripts" / "localspec").is_file()


BACKEND, SPEED, FIT = "backend", "speed", "fit"
"""The checks that run llama.cpp: `backend.check`, `pair.speed`, `pair.fit`."""
LIBRARY = "llama.cpp"
"""Topic of the finding whether llama.cpp can be used."""
Examine = Callable[[str], Iterator[Finding]]
"""Makes one of them."""
