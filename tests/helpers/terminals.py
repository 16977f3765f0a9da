"""Whether this machine has terminals for tests: containers and chroots may lack them."""

from __future__ import annotations

import os

import pytest


def lack() -> str | None:
    """Why no pseudo-terminal can be opened here; None where one can."""
    if not hasattr(os, "openpty"):
        return "this system has no pseudo-terminals"
    try:
        ends = os.openpty()
    except OSError as error:
        return f"no pseudo-terminals ({error}): mount devpts on /dev/pts to run this"
    for end in ends:
        os.close(end)
    return None


_LACK = lack()
needed = pytest.mark.skipif(_LACK is not None, reason=_LACK or "")
"""Marks a test, or a module of them, that cannot run without a pseudo-terminal."""
