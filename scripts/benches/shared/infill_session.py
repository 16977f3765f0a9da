"""A recorded editing session: what stands around the cursor after each keystroke."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SESSION = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
OTHER_FILES: dict[str, str] = _SESSION["others"]


@dataclass(frozen=True)
class Moment:
    """What an editor sends after a keystroke."""

    before: str
    after: str

    @property
    def prefix(self) -> str:
        """The lines above the cursor."""
        return self.before[: self.before.rfind("\n") + 1]

    @property
    def line(self) -> str:
        """The cursor's line before it."""
        return self.before[len(self.prefix) :]


def moments() -> Iterator[Moment]:
    """The session, one keystroke after the other."""
    text = _SESSION["file"]
    for edit in _SESSION["edits"]:
        at = text.index(edit["after"]) + len(edit["after"])
        before, after = text[:at], text[at:]
        for key in edit["keys"]:
            if key == "\b":
                before = before[:-1]
            elif key != "\0":
                before += key
            yield Moment(before, after)
        text = before + after
