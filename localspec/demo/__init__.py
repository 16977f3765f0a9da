"""The embedded pair: a toy that proves the machine. See MODEL_CARD.md beside this file."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
