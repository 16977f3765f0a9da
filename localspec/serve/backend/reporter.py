"""Where the server tells its user what happens, and by which names models are known outside."""

from __future__ import annotations

import functools
from pathlib import PurePath
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


@functools.lru_cache(64)
def public(model: str) -> str:
    """The name that clients see: that of a file without its folder."""
    if model.endswith(".gguf") or PurePath(model).is_absolute():
        return PurePath(model).name.removesuffix(".gguf")
    return model
