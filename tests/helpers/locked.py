"""Folders that their user may not enter: for root as well, who may enter all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def lock(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Refuse whatever looks at something in these folders, or lists them."""

    def refusing(function: Callable[..., Any], *, lists: bool) -> Callable[..., Any]:
        def asked(path: Any = ".", *args: Any, **more: Any) -> Any:
            if not isinstance(path, int):  # a descriptor
                place = Path(os.fsdecode(path))
                if any(
                    folder in place.parents or (lists and place == folder) for folder in folders
                ):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
            return function(path, *args, **more)

        return asked

    for name in ("stat", "lstat", "open", "readlink", "scandir", "listdir"):
        lists = name in {"scandir", "listdir"}
        monkeypatch.setattr(os, name, refusing(getattr(os, name), lists=lists))
