"""The record of how the installed llama.cpp was built, and the command that builds it again."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from localspec.compiling.own_build import CHECKOUT
from localspec.core import codec


@dataclass(frozen=True, slots=True)
class Build:
    """How scripts/localspec built the library: the step of its ladder, and earlier failures."""

    rung: str
    failed: dict[str, str]
    """Earlier steps and their failures."""


def rebuild_command() -> str:
    """The command that builds llama.cpp anew, down to a build that computes right here."""
    if build() is not None:
        return "delete .venv and start scripts/localspec"
    return "localspec build-llama"


def build() -> Build | None:
    """How scripts/localspec built the library; None where pip did."""
    try:
        facts = json.loads((Path(sys.prefix) / CHECKOUT).read_text(encoding="utf-8"))
        return codec.decode(Build, facts)
    except (OSError, ValueError, TypeError):
        return None
