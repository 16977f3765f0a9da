"""The embedded pair, a toy for tests and first steps; MODEL_CARD.md describes it."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
