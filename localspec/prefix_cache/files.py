"""Saved states on disk: files that spare reading a long prompt again after a restart.

Each folder belongs to one setting (model files, KV type, context, devices, build of llama.cpp) and
one owner; states of others are never opened. When all of them together exceed the limit, those
go first that spare the fewest seconds per byte, halved for every day without use. A folder goes
with its last file.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from localspec.core.errors import LocalspecError
from localspec.core.files import checked, closed, paths
from localspec.core.interrupt import Cancelled, never
from localspec.core.processes import starts
from localspec.prefix_cache.file_format import (
    DIGEST,
    DamagedError,
    OtherFormatError,
    Saved,
    chunks,
    divided,
    read_header,
    read_start,
    read_whole,
    start_of,
)
from localspec.prefix_cache.states import State

_TRIES = 3
"""Times to make a folder that another process removes, empty as it is, before a file is in it."""
_STALE_SECONDS = 3600
_DAY = 86400.0
LIMIT = 4 << 30
"""Most bytes of all states together; never more than half of the free space."""


class KvStore:
    """The states of one setting."""

    def __init__(self, identity: str, root: Path | None = None, limit: int = LIMIT) -> None:
        """``identity`` names everything that a state depends on."""
        self._root = root or paths.states_dir()
        self._identity = identity
        self._limit = limit
        self._read: dict[str, dict[tuple[Path, int, int], Saved]] = {}
        """Headers that were read, by owner; then by path, inode and size."""

    def saved(self, owner: str = "") -> tuple[list[Saved], list[Path]]:
        """The owner's states, the least recently used first; and damaged files, which are removed.

        States of another format are removed as well. Nothing is read where others may write.
        """
        before, known = self._read.pop(owner, {}), {}
        if not closed.is_closed(self._folder(owner)):
            return [], []
        found, damaged = [], []
        for path in sorted(self._folder(owner).glob("*.state"), key=_used):
            try:
                facts = path.stat()
                if not stat.S_ISREG(facts.st_mode):
                    continue
                key = (path, facts.st_ino, facts.st_size)
                known[key] = before.get(key) or self._header(path, owner)
                found.append(known[key])
            except DamagedError:
                damaged.append(path)
                remove(path)
            except OtherFormatError:
                remove(path)
            except OSError:  # another process has just removed it
                continue
        if known:
            self._read[owner] = known
        return found, damaged

    def forget(self, owner: str) -> None:
        """Free the memory of what `saved` has read."""
        self._read.pop(owner, None)

    def _header(self, path: Path, owner: str) -> Saved:
        with checked.opened(path) as file:
            return read_header(file, path, owner)

    def version(self, owner: str = "") -> int:
        """Changes whenever a file of the owner was added or removed, by this process or others."""
        try:
            return self._folder(owner).stat().st_mtime_ns
        except OSError:
            return 0

    def load(self, saved: Saved) -> State:
        """A state with its bytes.

        Raises:
            DamagedError: it is not what was listed; the file is removed.
            OSError: it cannot be read.
        """
        try:
            with checked.opened(saved.path) as file:
                now, data = read_whole(file, saved)
        except (DamagedError, OtherFormatError):
            remove(saved.path)
            raise DamagedError from None
        with contextlib.suppress(OSError):
            os.utime(saved.path)
        return divided(now, data)

    def put(
        self,
        state: State,
        seconds: float,
        *,
        replaces: Sequence[Saved] = (),
        cancelled: Cancelled = never,
    ) -> bool:
        """Write a state that spares ``seconds`` of reading, and remove those that it ``replaces``.

        Returns whether it was written: not where ``cancelled`` returns true meanwhile, nor where it
        is larger than the limit, nor where others may write, see `saved`.

        Raises:
            OSError: it cannot be written; no partial file remains.
        """
        folder = self._folder(state.owner)
        paths.make(self._root)
        if not closed.is_closed(self._root):
            return False
        start = start_of(state, seconds)
        if not self._make_room(len(start) + state.n_bytes + DIGEST, cancelled):
            return False
        digest = hashlib.blake2b(start, digest_size=DIGEST)
        begun = _begun(folder)
        if begun is None:
            return False
        handle, part = begun
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(start)
                for chunk in chunks(state):
                    if cancelled():
                        remove(part)
                        return False
                    digest.update(chunk)
                    file.write(chunk)
                file.write(digest.digest())
            whole = folder / f"{hashlib.sha256(state.tokens.tobytes()).hexdigest()[:24]}.state"
            part.replace(whole)
        except BaseException:
            remove(part)
            raise
        for saved in replaces:
            if saved.path != whole:
                remove(saved.path)
        return True

    def _folder(self, owner: str) -> Path:
        if not owner:
            return self._root / self._identity
        digest = hashlib.blake2b(owner.encode("utf-8", "surrogatepass"), digest_size=10)
        return self._root / f"{self._identity}-{digest.hexdigest()}"

    def may_hold(self, n_bytes: int, cancelled: Cancelled = never) -> bool:
        """Whether a state of so many bytes would fit, were all others removed; false too where
        ``cancelled`` returns true before that is known.
        """
        if n_bytes > self._limit:
            return False
        try:
            free = shutil.disk_usage(self._root).free
        except OSError:  # the folder is not there yet, or `put` will tell
            return True
        if n_bytes <= free // 2:
            return True
        sizes = self._sizes(cancelled)
        return sizes is not None and n_bytes <= sum(sizes.values()) + free // 2

    def _make_room(self, wanted: int, cancelled: Cancelled) -> bool:
        """Remove the least valuable states, of all settings, until ``wanted`` bytes fit; whether
        they do, and nobody has ``cancelled`` it.
        """
        sizes = self._sizes(cancelled)
        if sizes is None:
            return False
        taken = sum(sizes.values())
        limit = min(self._limit, taken + shutil.disk_usage(self._root).free // 2)
        if wanted > limit:
            return False
        if taken + wanted <= limit:
            return True
        worth = {}
        for path in sizes:
            if cancelled():
                return False
            worth[path] = _worth(path)
        for path in sorted(worth, key=worth.__getitem__):
            if taken + wanted <= limit:
                break
            remove(path)
            taken -= sizes[path]
        return True

    def _sizes(self, cancelled: Cancelled) -> dict[Path, int] | None:
        """The states of all settings and owners, with their sizes; None where ``cancelled`` returns
        true meanwhile. What killed writers have left is removed, and folders without files.
        """
        found = {}
        for folder in _content(self._root):
            if cancelled():
                return None
            files = _content(folder)
            for path in files:
                if path.suffix == ".state":
                    found[path] = _size(path)
                elif path.suffix == ".part" and _is_left(path):
                    remove(path)
            if not files:
                remove_empty(folder)
        return found


def _begun(folder: Path, tries: int = _TRIES) -> tuple[int, Path] | None:
    """A new partial file, for the owner only; None where others may write to its folder.

    Raises:
        OSError: it cannot be made.
    """
    prefix = f"{os.getpid()}-{starts.began(os.getpid()):.2f}-"
    paths.make(folder)
    try:
        closed.require(folder)
        handle, name = tempfile.mkstemp(dir=folder, prefix=prefix, suffix=".part")
    except FileNotFoundError:
        if tries <= 1:
            raise
        return _begun(folder, tries - 1)
    except LocalspecError:
        return None
    return handle, Path(name)


def remove(path: Path) -> None:
    """Remove a file, and its folder if it was the last one; where that fails, the next write that
    needs room tries again.
    """
    with contextlib.suppress(OSError):
        path.unlink()
    remove_empty(path.parent)


def remove_empty(folder: Path) -> None:
    """Remove a folder if nothing is in it."""
    with contextlib.suppress(OSError):
        folder.rmdir()


def _content(folder: Path) -> list[Path]:
    """What is in a folder; nothing where it has just been removed, or is none."""
    try:
        return [*folder.iterdir()]
    except OSError:
        return []


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _is_left(part: Path) -> bool:
    """Whether the writer of a partial file was killed. Its time alone does not tell, since clocks
    are set, nor does its process alone: containers may share the folder.
    """
    if _age(part) < _STALE_SECONDS:
        return False
    pid, _, rest = part.name.partition("-")
    try:
        return not starts.runs(int(pid), float(rest.partition("-")[0]))
    except ValueError:
        return True


def _age(path: Path) -> float:
    """Seconds since a file was used. What a wrong clock has dated in the future is as old."""
    return abs(time.time() - _used(path))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _worth(path: Path) -> tuple[float, float]:
    """Value of a file, the least first: log2 of seconds per byte, less the days without use."""
    try:
        with checked.opened(path) as file:
            start = read_start(file)
        rate = start.seconds / (start.n_header + start.n_bytes)
    except (OSError, DamagedError, OtherFormatError, ZeroDivisionError):
        rate = 0.0
    return (math.log2(rate) if rate > 0 else -math.inf) - _age(path) / _DAY, _used(path)
