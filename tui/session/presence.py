"""Which windows have a chat open: each is told of the others, since each writes its own branch."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from localspec.core.errors import LocalspecError
from localspec.core.files import paths


class Presence:
    """Notes in the folder of states, one for each window and chat; dead windows count for none."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._mine: set[Path] = set()
        self._told: dict[str, int] = {}
        """Other windows of a chat that the user knows of."""

    def meet(self, chat: str) -> str:
        """Note that a chat is open here; a line where more windows have it than were told before.

        A folder that cannot be written is no reason to say anything: nothing is lost by it.
        """
        try:
            folder = self._folder or paths.make(paths.state_dir() / "open")
            note = folder / f"{chat}-{os.getpid()}"
            note.touch(mode=0o600)
            self._mine.add(note)
            others = sum(self._lives(one) for one in folder.glob(f"{chat}-*") if one != note)
        except (OSError, LocalspecError):
            return ""
        known, self._told[chat] = self._told.get(chat, 0), others
        if others <= known:
            return ""
        windows = "another window has" if others == 1 else f"{others} other windows have"
        return (
            f"{windows} this chat open: each writes a branch of its own, and none is lost; "
            "resume the chat to see the others"
        )

    @staticmethod
    def _lives(note: Path) -> bool:
        """Whether the window of a note runs; the note of one that does not is removed."""
        import psutil  # slow to import

        pid = note.name.rpartition("-")[2]
        try:
            began = psutil.Process(int(pid)).create_time()
            if began <= note.stat().st_mtime:
                return True
        except (psutil.Error, ValueError):
            pass
        note.unlink(missing_ok=True)
        return False

    def close(self) -> None:
        """This window has no chat open any more."""
        for note in self._mine:
            with contextlib.suppress(OSError):
                note.unlink(missing_ok=True)
