"""Logs of processes that run for months: two files of a bounded size, for their owner only."""

from __future__ import annotations

import logging
import logging.handlers
import os
from io import TextIOWrapper
from pathlib import Path

from localspec.core.files.private import opener

LARGEST = 1_000_000
"""Bytes of each of the two files."""


class LogFile(logging.handlers.RotatingFileHandler):
    """A log that begins anew where it is full, the one before beside it. Where it cannot be
    written, as on a full disk, it falls silent.
    """

    def __init__(self, path: Path, *, delay: bool = False) -> None:
        """With ``delay`` there is no file before the first record."""
        super().__init__(path, maxBytes=LARGEST, backupCount=1, encoding="utf-8", delay=delay)

    def _open(self) -> TextIOWrapper:
        handle = opener(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        return TextIOWrapper(
            os.fdopen(handle, "ab"), encoding=self.encoding, errors="backslashreplace"
        )

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Say nothing: the screen is not for this."""
