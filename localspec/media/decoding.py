"""Decoding of pictures and sounds, in a process with limits: see `localspec.media.decode_child`."""

from __future__ import annotations

import atexit
import base64
import functools
from pathlib import Path

from localspec.core.errors import MediaError
from localspec.core.files import checked
from localspec.core.interrupt import Cancelled, never
from localspec.core.picture import LARGEST_FILE, Decoded, Picture, Pixels, Samples
from localspec.core.processes.bounded import (
    STARTING_SECONDS,
    BoundedPool,
    BoundedProcess,
    Bounds,
    TooMuchError,
)

_MEMORY = 1 << 30
_SECONDS = 15.0
"""As in `localspec.media.decode_child`, which needs Pillow."""
_MOST = 4
"""Processes: as many as prompts that take long are made at a time, so that none waits for one."""


def file_of(picture: Picture) -> bytes:
    """The bytes of a picture's file.

    Raises:
        MediaError: it cannot be read, or is larger than `LARGEST_FILE`.
    """
    data, name = picture.data, called(picture)
    if not data:
        try:
            data = checked.content(Path(picture.path), LARGEST_FILE + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise MediaError(f"{name} cannot be read: {reason}") from None
    if not data:
        raise MediaError(f"{name} is empty")
    if len(data) > LARGEST_FILE:
        raise MediaError(f"{name} is larger than {LARGEST_FILE >> 20} MB, which is the most")
    return data


def called(picture: Picture) -> str:
    """Name of a picture in error messages."""
    return picture.name or picture.path or "the picture"


def decoded(
    data: bytes,
    name: str,
    cancelled: Cancelled = never,
    *,
    within: tuple[int, int] | None = None,
    rate: int | None = None,
) -> Decoded:
    """The pixels of a picture's file, in RGB, turned as its EXIF says, on white where it is
    transparent; of an animation the first frame. ``within``: made smaller, to that width and
    height at most. Or a sound, with ``rate`` samples of a second, if there is a rate.

    Raises:
        MediaError: it is damaged, too large or of no known kind; says which.
        Interrupted: ``cancelled`` returned true.
        LocalspecError: the process that decodes cannot be started.
    """
    try:
        request = {
            "data": base64.b64encode(data).decode("ascii"),
            "within": within,
            "rate": rate,
        }
        answer = _pool().ask(request, cancelled)
    except TooMuchError as error:
        raise MediaError(f"{name} cannot be decoded: {error}") from None
    if "refused" in answer:
        raise MediaError(f"{name} {answer['refused']}")
    if "samples" in answer:
        return Samples(rate or 0, base64.b64decode(answer["samples"]))
    return Pixels(int(answer["width"]), int(answer["height"]), base64.b64decode(answer["rgb"]))


@functools.cache
def _pool() -> BoundedPool:
    found = BoundedPool(_process, _MOST)
    atexit.register(found.close)
    return found


def _process() -> BoundedProcess:
    told = f"it takes more than {_SECONDS:.0f} seconds or {_MEMORY >> 20} MB of memory"
    bounds = Bounds(_SECONDS, _MEMORY, STARTING_SECONDS, told)
    return BoundedProcess("localspec.media.decode_child", "decodes pictures", lambda: bounds)
