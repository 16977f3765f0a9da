"""``--image FILE`` and ``--audio FILE``: pictures and sounds in front of a prompt."""

from __future__ import annotations

from collections.abc import Sequence

import click

from localspec.core.errors import UsageError
from localspec.core.events import Message
from localspec.core.files import checked, paths
from localspec.core.picture import LARGEST_FILE, Picture

image_flag = click.option(
    *("--image", "--audio"),
    "images",
    multiple=True,
    metavar="FILE",
    help="A picture (PNG, JPEG, WEBP, GIF, BMP) or sound (WAV, MP3, FLAC) in front of the prompt; "
    "may be repeated.",
)


def read_images(paths: Sequence[str], *, pipes: bool = True) -> tuple[Picture, ...]:
    """The pictures in files, which are read now and decoded later. Without ``pipes``, which are
    waited for, each must be a regular file.

    Raises:
        UsageError: one cannot be read or is too large.
    """
    return tuple(_read(path, pipes=pipes) for path in paths)


def _read(path: str, *, pipes: bool) -> Picture:
    try:
        place = paths.expand(path)
        with place.open("rb") if pipes else checked.opened(place) as file:
            data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None
    if len(data) > LARGEST_FILE:
        raise UsageError(f"{path} is larger than {LARGEST_FILE >> 20} MB, which is the most")
    if not data:
        raise UsageError(f"{path} is empty")
    return Picture(data=data, name=path)


def asking(text: str, pictures: Sequence[Picture] = ()) -> Message:
    """The user's message: pictures, and the text on a line below them."""
    return Message("user", f"\n{text}" if pictures else text, pictures=tuple(pictures))


def require_messages(pictures: Sequence[Picture], *, raw: bool, url: str | None) -> None:
    """Refuse pictures where nothing can place them.

    Raises:
        UsageError: with ``--raw``, or for a server at ``url``.
    """
    if pictures and raw:
        raise UsageError("--image needs the chat template, which --raw leaves out")
    if pictures and url is not None:
        raise UsageError("--image is for a model of this machine; leave out --url")
