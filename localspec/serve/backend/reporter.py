"""Where the server tells its user what happens."""

from __future__ import annotations

from typing import Protocol


class Reporter(Protocol):
    """Takes lines of the log; the command line prints them on stderr."""

    def line(self, text: str) -> None:
        """One line about a request."""
        ...

    def notice(self, text: str) -> None:
        """Something that the user should know, in one line."""
        ...

    def defect(self, error: BaseException) -> None:
        """An error that is a fault of localspec, with its traceback."""
        ...
