"""Logs of processes that run for months: two files of a bounded size, for their owner only."""

from __future__ import annotations

import logging
import logging.handlers
import os
from io import TextIOWrapper
from pathlib import Path

from localspec.core.files import whole_file
from localspec.core.files.private import opener

LARGEST = 1_000_000
"""Bytes of each of the two files."""


class LogFile(logging.handlers.RotatingFileHandler):
    """A log that begins anew where it is full, what was in it beside it. Where it cannot be
    written, as on a full disk, it falls silent. Other processes may append to the same file.
    """

    def __init__(self, path: Path, *, delay: bool = False) -> None:
        """With ``delay`` there is no file before the first record."""
        super().__init__(path, maxBytes=LARGEST, backupCount=1, encoding="utf-8", delay=delay)

    def _open(self) -> TextIOWrapper:
        handle = opener(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        return TextIOWrapper(
            os.fdopen(handle, "ab"), encoding=self.encoding, errors="backslashreplace"
        )

    def doRollover(self) -> None:  # noqa: N802 - logging's name
        """Empty the file, after its end was copied. Under another name the other processes would
        go on with it, where nobody looks for their last words.
        """
        with open(self.baseFilename, "ab+", opener=opener) as file:
            size = file.seek(0, os.SEEK_END)
            if size > LARGEST // 2:  # else another process has done it
                file.seek(max(0, size - LARGEST))
                before = Path(f"{self.baseFilename}.1")
                whole_file.replace(before, [file.read(LARGEST)], sync=False)
                file.truncate(0)
        full, self.stream = self.stream, self._open()
        if full is not None:
            full.close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Say nothing: the screen is not for this."""
