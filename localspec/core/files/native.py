"""The one door to native code of ours: libraries that were compiled here are stored and opened.

A library is code with the user's rights. It is opened only where nobody else could have written or
exchanged it (`localspec.core.files.closed`). A file beside it has its SHA-256 digest from when it
was stored, which finds damage and what was stored in part.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from localspec.core.errors import LocalspecError
from localspec.core.files import checked, closed, elf, private

_LARGEST = 1 << 30
"""Bytes of a library at most."""
_LOCK = ".lock"
_SCRATCH = "build-"
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)
_NOT_FOR_US = (errno.EACCES, errno.ENAMETOOLONG)
"""Why a folder that a library names cannot be looked into, by the loader neither."""
_LOOK_S = 0.1
"""Seconds between two looks whether another process is done."""
_LIBRARY = re.compile(r"\.(so|dylib|dll)(\.|$)")
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def opened(path: Path, kind: type[ctypes.CDLL] = ctypes.PyDLL) -> ctypes.CDLL:
    """Open a stored library; a `ctypes.PyDLL` keeps Python's lock in its functions.

    Raises:
        LocalspecError: see `trusted`; or the system does not load it.
    """
    place = trusted(path)
    try:
        return kind(str(place))
    except OSError as error:
        raise LocalspecError(f"{place} cannot be loaded: {error}") from None


def trusted(path: Path) -> Path:
    """The place of a stored library, links resolved, for a function that opens it.

    Raises:
        LocalspecError: it is not there, not what was stored, or others could have written it.
    """
    place = Path(os.path.realpath(path.parent)) / path.name
    require_closed(place.parent)
    try:
        recorded = _read(_record(place), 1024)
        found = hashlib.sha256(_read(place, _LARGEST)).hexdigest()
    except FileNotFoundError:
        raise LocalspecError(f"{place} was not compiled here; start again") from None
    except OSError as error:
        raise LocalspecError(f"{place} cannot be read: {error.strerror or error}") from None
    if recorded.decode("ascii", "replace").strip() != found:
        raise LocalspecError(
            f"{place} is not what was compiled here: its digest differs; delete {place.parent} "
            "and start again"
        )
    return place


def is_stored(path: Path) -> bool:
    """Whether a library is there whole: it need not be made. `trusted` says whether it is safe."""
    try:
        found = hashlib.sha256(checked.content(path, _LARGEST)).hexdigest()
    except OSError:
        return False
    return recorded(path) == found


def recorded(path: Path) -> str:
    """The SHA-256 of a library from when it was stored; "" if there is none."""
    try:
        return checked.content(_record(path), 1024).decode("ascii").strip()
    except (OSError, ValueError):
        return ""


def store(
    folder: Path,
    name: str,
    make: Callable[[Path], None],
    check: Callable[[Path], None] | None = None,
    *,
    shared: bool = False,
    waiting: Callable[[], None] = lambda: None,
) -> Path:
    """Store the library that ``make`` writes at the place it is given, whole or not at all.

    ``check`` may open it there, and raises where it is wrong. ``shared``: other users may read it,
    who run the same installation. Where another process stores it just now, its result is taken;
    ``waiting`` is called meanwhile, and may raise.

    Raises:
        LocalspecError: others may write to the folder.
        OSError: it cannot be written.
        Exception: what ``make``, ``check`` and ``waiting`` raise.
    """
    private.make(folder, 0o755 if shared else 0o700)
    path = folder / name
    with _alone(folder, waiting) as first:
        if first or not is_stored(path):
            _store(path, make, check, shared=shared)
    return path


@contextlib.contextmanager
def _alone(folder: Path, waiting: Callable[[], None]) -> Iterator[bool]:
    """Hold a folder's lock; whether no other process had it."""
    import filelock  # only where something is compiled: it takes long

    lock, first = filelock.FileLock(folder / _LOCK, mode=0o600, fallback_to_soft=False), True
    while not lock.is_locked:
        try:
            lock.acquire(timeout=_LOOK_S)
        except filelock.Timeout:
            first = False
            waiting()
        except OSError as error:
            # Some network file systems have no locks: both processes then store the same.
            if error.errno not in _NO_LOCKS:
                raise
            break
    try:
        if lock.is_locked:  # what a build that was killed has left
            for scratch in folder.glob(f"{_SCRATCH}*"):
                shutil.rmtree(scratch, ignore_errors=True)
        yield first
    finally:
        lock.release()


def _store(
    path: Path,
    make: Callable[[Path], None],
    check: Callable[[Path], None] | None,
    *,
    shared: bool,
) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_SCRATCH) as scratch:
        fresh = Path(scratch) / path.name
        make(fresh)
        fresh.chmod(0o644 if shared else 0o600)  # compilers go by the umask
        digest = hashlib.sha256(fresh.read_bytes()).hexdigest()
        _record(fresh).write_text(f"{digest}\n", encoding="ascii")
        _record(fresh).chmod(0o644 if shared else 0o600)
        if check is not None:
            check(fresh)
        # The digest comes last and makes it valid: what a kill leaves is made again.
        with contextlib.suppress(FileNotFoundError):
            _record(path).unlink()
        fresh.replace(path)
        _record(fresh).replace(_record(path))


def require_closed(place: Path, *, missing: bool = False) -> None:
    """Refuse a file or folder that somebody else could write to or exchange; see `closed.require`.

    Raises:
        LocalspecError: somebody else could, or it cannot be looked at.
    """
    try:
        closed.require(place, missing=missing)
    except OSError as error:
        raise LocalspecError(f"{error.filename}: {error.strerror or error}") from None


def closed_libraries(folder: Path) -> Path:
    """The place of a folder of libraries that were not stored here, links resolved.

    What the libraries have the system load from folders that they name themselves (ELF's RUNPATH,
    as CMake's build trees and builds for CUDA have) is checked likewise.

    Raises:
        LocalspecError: somebody else could write or exchange it or a library in it, or where a link
            in it leads, or put one where a library has others looked for.
    """
    place = Path(os.path.realpath(folder))
    require_closed(place)
    if not place.is_dir():
        raise LocalspecError(f"{place} is no folder")
    ahead = [found for found in place.iterdir() if _LIBRARY.search(found.name)]
    known = set[Path]()
    while ahead:
        found = ahead.pop()
        require_closed(found, missing=True)  # nor may others put one where a link leads nowhere
        file = Path(os.path.realpath(found))
        if found not in known and file.is_file():
            known.add(found)
            ahead.extend(_searched(found, file))
    return place


def _searched(found: Path, file: Path) -> Iterator[Path]:
    """Libraries that one has the system load from folders which it names, each of them closed.

    ``file`` is the library that ``found`` leads to; $ORIGIN is the folder of either.

    Raises:
        LocalspecError: somebody else could put one there.
    """
    try:
        wants = elf.searched(file)
    except PermissionError:  # the loader cannot read it either
        return
    by_path = [(str(Path(name).parent), [Path(name).name]) for name in wants.names if "/" in name]
    for way, names in [*((way, wants.names) for way in wants.folders), *by_path]:
        for origin in {found.parent, file.parent}:
            place = way.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", str(origin))
            folder = Path(os.path.realpath(place))
            if folder.is_relative_to("/usr"):  # as all that the system looks through by itself
                continue
            there = [folder / name for name in names if _is_there(folder / name)]
            if why := _not_to_be_searched(place, there):
                where = way or "the working directory"
                raise LocalspecError(f"{file} has libraries looked for in {where}: {why}")
            yield from there


def _is_there(library: Path) -> bool:
    """Whether the loader finds it: it passes over what it cannot look at."""
    try:
        return library.exists()
    except OSError:
        return False


def _not_to_be_searched(place: str, there: Sequence[Path]) -> str:
    """Why a folder must not be looked through, with the libraries that are there; "" if it may.

    Of one that this user cannot look into, as where root built what all use, the way is checked as
    far as it is seen: nobody else can put anything on that.
    """
    if "$" in place:
        return "localspec does not know which folder that is"
    if there and not Path(place).is_absolute():
        return f"{there[0].name} is in the working directory, or below it"
    try:
        closed.require(Path(place), missing=True)
    except LocalspecError as error:
        return str(error)
    except OSError as error:
        # What is relative the loader finds without the folders above the working directory.
        return "" if error.errno in _NOT_FOR_US and Path(place).is_absolute() else str(error)
    return ""


def _read(place: Path, largest: int) -> bytes:
    """The content of a file that nobody else could have written.

    Raises:
        LocalspecError: somebody else could have.
        OSError: it cannot be read.
    """
    try:
        handle = os.open(place, _FLAGS)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise LocalspecError(f"{place} is a link; delete it and start again") from None
        raise
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if found.st_size > largest:
            raise LocalspecError(f"{place} is no file of ours; delete it and start again")
        closed.require_file(place, found)
        return file.read()


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
