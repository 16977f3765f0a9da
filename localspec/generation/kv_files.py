"""Saved KV caches of conversations: files that spare reading a long chat again.

Each folder belongs to one setting (model file, KV type, context, devices, build of llama.cpp);
states of other settings are never opened. The least recently used files are removed when all of
them together exceed the limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.config import paths

_MAGIC = b"localspec state 1\n"
_LENGTH = struct.Struct("<QQ")
"""Bytes of the header and of the state, after the magic."""
_DIGEST = 32
_CHUNK = 1 << 22
_LARGEST_HEADER = 1 << 28
_STALE_SECONDS = 3600
LIMIT = 4 << 30
"""Most bytes of all states together; never more than half of the free space."""


class DamagedError(Exception):
    """The content of a file is not what was written."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A state on disk."""

    path: Path
    cached: tuple[int, ...]
    """Tokens in the KV cache."""
    text: str
    """Text of the prompt, with its reply if there was one."""
    tokens: tuple[int, ...]
    """Tokens of `text`."""
    rate: float
    """Tokens per second at which prompts were read when it was written."""
    n_bytes: int
    """Size of the state."""


class KvStore:
    """The states of one setting."""

    def __init__(self, identity: str, root: Path | None = None, limit: int = LIMIT) -> None:
        """``identity`` names everything that a state depends on."""
        self._root = root or paths.cache_dir() / "states"
        self._folder = self._root / identity
        self._limit = limit

    def saved(self) -> tuple[list[Saved], list[Path]]:
        """The saved states, the least recently used first; and damaged files, which are removed."""
        found, damaged = [], []
        for path in sorted(self._folder.glob("*.state"), key=_used):
            try:
                with path.open("rb") as file:
                    found.append(_header(path, file.read(len(_MAGIC) + _LENGTH.size), file.read))
            except DamagedError:
                damaged.append(path)
                remove(path)
            except OSError:  # another process has just removed it
                continue
        return found, damaged

    def load(self, saved: Saved) -> bytearray:
        """The bytes of a state.

        Raises:
            DamagedError: it is not what was written; the file is removed.
            OSError: it cannot be read.
        """
        with saved.path.open("rb") as file:
            digest = hashlib.blake2b(digest_size=_DIGEST)
            head = saved.path.stat().st_size - saved.n_bytes - _DIGEST
            digest.update(file.read(head))
            state = bytearray(saved.n_bytes)
            whole = file.readinto(state) == saved.n_bytes
            digest.update(state)
            if not whole or file.read() != digest.digest():
                remove(saved.path)
                raise DamagedError
        with contextlib.suppress(OSError):
            os.utime(saved.path)
        return state

    def put(
        self,
        *,
        cached: Sequence[int],
        text: str,
        tokens: Sequence[int],
        rate: float,
        state: memoryview,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Write a state, and remove those of its beginnings. Returns whether it was written: not
        where ``cancelled`` returns true meanwhile, nor where it is larger than the limit.

        Raises:
            OSError: it cannot be written; no partial file remains.
        """
        paths.make(self._folder)
        header = json.dumps(
            {"held": list(cached), "text": text, "tokens": list(tokens), "rate": rate}
        ).encode("utf-8", "surrogatepass")
        start = _MAGIC + _LENGTH.pack(len(header), len(state)) + header
        if not self._make_room(len(start) + len(state) + _DIGEST):
            return False
        digest = hashlib.blake2b(start, digest_size=_DIGEST)
        handle, name = tempfile.mkstemp(dir=self._folder, suffix=".part")  # for the owner only
        part = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(start)
                for at in range(0, len(state), _CHUNK):
                    if cancelled():
                        remove(part)
                        return False
                    chunk = state[at : at + _CHUNK]
                    digest.update(chunk)
                    file.write(chunk)
                file.write(digest.digest())
            name = hashlib.sha256(json.dumps(list(cached)).encode()).hexdigest()[:24]
            part.replace(self._folder / f"{name}.state")
        except BaseException:
            remove(part)
            raise
        self._drop_beginnings(cached, keep=self._folder / f"{name}.state")
        return True

    def _drop_beginnings(self, cached: Sequence[int], keep: Path) -> None:
        for saved in self.saved()[0]:
            n = len(saved.cached)
            if saved.path != keep and n <= len(cached) and saved.cached == tuple(cached[:n]):
                remove(saved.path)

    def _make_room(self, wanted: int) -> bool:
        """Remove the least recently used states, of all settings, until ``wanted`` bytes fit."""
        for part in self._root.glob("*/*.part"):  # its writer was killed
            if time.time() - _used(part) > _STALE_SECONDS:
                remove(part)
        files = sorted(self._root.glob("*/*.state"), key=_used)
        sizes = {path: _size(path) for path in files}
        taken = sum(sizes.values())
        limit = min(self._limit, taken + shutil.disk_usage(self._root).free // 2)
        if wanted > limit:
            return False
        for path in files:
            if taken + wanted <= limit:
                break
            remove(path)
            taken -= sizes[path]
        return True


def remove(path: Path) -> None:
    """Remove a file; where that fails, the next write that needs room tries again."""
    with contextlib.suppress(OSError):
        path.unlink()


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _header(path: Path, start: bytes, read: Callable[[int], bytes]) -> Saved:
    if len(start) != len(_MAGIC) + _LENGTH.size or not start.startswith(_MAGIC):
        raise DamagedError
    n_header, n_bytes = _LENGTH.unpack(start[len(_MAGIC) :])
    if n_header > _LARGEST_HEADER or len(start) + n_header + n_bytes + _DIGEST != _size(path):
        raise DamagedError
    try:
        data = json.loads(read(n_header).decode("utf-8", "surrogatepass"))
        return Saved(
            path=path,
            cached=tuple(data["held"]),
            text=str(data["text"]),
            tokens=tuple(data["tokens"]),
            rate=float(data["rate"]),
            n_bytes=n_bytes,
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DamagedError from None
