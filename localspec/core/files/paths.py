"""Folders for settings, data, state and cache, which ``LOCALSPEC_HOME`` moves all at once, and the
one of the embedded pair.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from localspec.core.errors import LocalspecError, UsageError
from localspec.core.files import private

APP = "localspec"
LLAMA_LOG = "llama.log"
"""Name of llama.cpp's log in `state_dir`."""
DEMO_DIR = Path(__file__).parents[2] / "demo"
"""Folder of the embedded pair, a toy for tests and first steps; MODEL_CARD.md in it says more."""


def _home(part: str) -> Path:
    """One of the four folders.

    Raises:
        UsageError: there is no home.
    """
    override = os.environ.get("LOCALSPEC_HOME")
    if not override:
        import platformdirs

        try:
            folder: str = getattr(platformdirs, f"user_{part}_dir")(APP, appauthor=False)
        except RuntimeError:  # a user of a container that its system does not know, or no path
            raise UsageError("there is no home folder; set HOME or LOCALSPEC_HOME") from None
        return Path(folder)
    try:
        return Path(override).expanduser() / part
    except RuntimeError:
        raise UsageError(f"LOCALSPEC_HOME is {override}, and there is no such user") from None


def expand(name: str) -> Path:
    """A path as typed; ``~`` is the user's home, that of an unknown user is left as it is."""
    try:
        return Path(name).expanduser()
    except (RuntimeError, ValueError):  # no such user, or a name that no user can have
        return Path(name)


def home() -> Path:
    """The user's home.

    Raises:
        UsageError: there is none, as for a user of a container that its system does not know.
    """
    try:
        return Path.home()
    except RuntimeError:
        raise UsageError("there is no home folder; set HOME") from None


def exists(path: Path) -> bool:
    """Whether there is something at a path; a name that is too long for any file has nothing.

    Raises:
        OSError: a folder above it cannot be looked into.
    """
    try:
        return path.exists()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise


def is_file(path: Path) -> bool:
    """Whether there is a file that may be looked at: none below a folder that the user may not
    enter, or by a name that is too long, for which `Path.is_file` raises.
    """
    try:
        return path.is_file()
    except OSError:
        return False


def is_dir(path: Path) -> bool:
    """The same of a folder."""
    try:
        return path.is_dir()
    except OSError:
        return False


def config_dir() -> Path:
    """Folder of config.toml and the user's models.toml."""
    return _home("config")


def data_dir() -> Path:
    """Folder of the chats."""
    return _home("data")


def state_dir() -> Path:
    """Folder of logs and histories."""
    return _home("state")


def cache_dir() -> Path:
    """Folder of files that can be made again."""
    return _home("cache")


def states_dir() -> Path:
    """Folder of saved KV states, which contain the text of their conversations."""
    return cache_dir() / "states"


def make(directory: Path) -> Path:
    """Create a directory of ours, readable by its owner only, as are all that it is in.

    Raises:
        LocalspecError: it cannot be made, or others may write to it or to one of ours above it.
    """
    try:
        return _made(directory)
    except OSError as error:
        raise LocalspecError(
            f"cannot make {directory}: {error.strerror}; set LOCALSPEC_HOME to a writable folder"
        ) from None


def make_parent(path: Path) -> None:
    """Create the folder of a file of ours, for callers to whom all failures to write are the same.

    Raises:
        OSError: it cannot be made, or others may write to it or to one of ours above it.
    """
    try:
        _made(path.parent)
    except LocalspecError as error:
        raise PermissionError(errno.EPERM, str(error)) from None


def _made(directory: Path) -> Path:
    private.make(directory)
    for above in directory.parents:
        if not any(above.is_relative_to(home) for home in _homes()):
            break
        found = above.stat()  # in one such as /tmp, nobody can exchange what belongs to others
        if not found.st_mode & stat.S_ISVTX and private.open_to_others(above, found):
            private.require_own(above)
    return directory


def _homes() -> list[Path]:
    override = os.environ.get("LOCALSPEC_HOME")
    if override:
        return [Path(override).expanduser()]
    return [config_dir(), data_dir(), state_dir(), cache_dir()]
