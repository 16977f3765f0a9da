"""The file of a saved state: a header with a digest of its own, since its texts and tokens are used
before its parts are read; the bytes of its parts; and a digest of all.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from localspec.drafters.base import DraftState
from localspec.prefix_cache.states import (
    Checkpoint,
    Conversation,
    State,
    TokenIds,
    shared,
    token_ids,
)

_KIND = b"localspec state "
_MAGIC = _KIND + b"3\n"
_FIXED = struct.Struct("<QQd")
"""After the magic: bytes of the header, bytes of the states, seconds that they spare. A digest of
them and of the header follows.
"""
DIGEST = 32
_START = len(_MAGIC) + _FIXED.size + DIGEST
_CHUNK = 1 << 22
_LARGEST_HEADER = 1 << 28


class DamagedError(Exception):
    """The content of a file is not what was written."""


class OtherFormatError(Exception):
    """The file is of another version of localspec."""


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """A state on disk, without its bytes."""

    path: Path
    owner: str
    tokens: TokenIds
    """Tokens in the KV cache."""
    checkpoints: tuple[tuple[int, int], ...]
    """(tokens, bytes) of each."""
    drafts: tuple[tuple[str, int, int], ...]
    """(identity of the drafter, tokens, bytes) of each."""
    rate: float
    """Tokens per second at which prompts were read when it was written."""
    conversation: Conversation
    n_bytes: int
    """Size of all states."""

    @property
    def ends(self) -> set[int]:
        """See `State.ends`."""
        return {len(self.tokens), *(length for length, _ in self.checkpoints)}

    @property
    def parts(self) -> list[int]:
        """Sizes of the checkpoints and of the drafters' states, which follow the state."""
        return [*(size for _, size in self.checkpoints), *(size for *_, size in self.drafts)]


def start_of(state: State, seconds: float) -> bytes:
    """The header of a state that spares that many seconds of reading."""
    header = _header(state)
    fixed = _FIXED.pack(len(header), state.n_bytes, seconds)
    return _MAGIC + fixed + _digest(fixed + header) + header


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST).digest()


def chunks(state: State) -> Iterator[memoryview]:
    """The bytes of its parts."""
    parts = [state.state, *(c.state for c in state.checkpoints)]
    for part in [*parts, *(draft.state for draft in state.drafts.values())]:
        for at in range(0, len(part), _CHUNK):
            yield part[at : at + _CHUNK]


@dataclass(frozen=True, slots=True)
class Start:
    """What a file begins with."""

    n_header: int
    """Bytes of the header."""
    n_bytes: int
    """Bytes of all parts."""
    seconds: float
    """What the state spares."""
    digest: bytes
    """Digest of these fields and of the header."""

    def is_of(self, header: bytes) -> bool:
        """Whether this and the header are what was written."""
        fixed = _FIXED.pack(self.n_header, self.n_bytes, self.seconds)
        return _digest(fixed + header) == self.digest


def read_start(file: BinaryIO) -> Start:
    """What comes before the header; whether it is what was written, `Start.is_of` tells.

    Raises:
        DamagedError, OtherFormatError, OSError
    """
    start = file.read(_START)
    if start[: len(_MAGIC)] != _MAGIC:
        raise OtherFormatError if start.startswith(_KIND) else DamagedError
    if len(start) != _START:
        raise DamagedError
    n_header, n_bytes, seconds = _FIXED.unpack(start[len(_MAGIC) : -DIGEST])
    return Start(n_header, n_bytes, seconds, start[-DIGEST:])


def _header(state: State) -> bytes:
    return json.dumps(
        {
            "owner": state.owner,
            "tokens": state.tokens.tolist(),
            "checkpoints": [[c.length, len(c.state)] for c in state.checkpoints],
            "drafts": [[name, d.length, len(d.state)] for name, d in state.drafts.items()],
            "rate": state.rate,
            "text": state.conversation.text,
            "text_tokens": list(state.conversation.tokens),
        }
    ).encode("utf-8", "surrogatepass")


def read_header(file: BinaryIO, path: Path, owner: str) -> Saved:
    """The header of a saved state: its contents without the bytes of its parts.

    Raises:
        DamagedError: it is not what was written, the file has not all parts, or it is another
            owner's.
        OtherFormatError, OSError
    """
    start = read_start(file)
    n_bytes, size = start.n_bytes, os.fstat(file.fileno()).st_size
    if start.n_header > _LARGEST_HEADER or _START + start.n_header + n_bytes + DIGEST != size:
        raise DamagedError
    header = file.read(start.n_header)
    if not start.is_of(header):
        raise DamagedError
    try:
        data = json.loads(header.decode("utf-8", "surrogatepass"))
        saved = Saved(
            path=path,
            owner=str(data["owner"]),
            tokens=token_ids(data["tokens"]),
            checkpoints=tuple((int(n), int(size)) for n, size in data["checkpoints"]),
            drafts=tuple((str(name), int(n), int(size)) for name, n, size in data["drafts"]),
            rate=float(data["rate"]),
            conversation=Conversation(str(data["text"]), tuple(data["text_tokens"])),
            n_bytes=n_bytes,
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise DamagedError from None
    if saved.owner != owner or min(saved.parts, default=0) < 0 or sum(saved.parts) > n_bytes:
        raise DamagedError
    return saved


def read_whole(file: BinaryIO, listed: Saved) -> tuple[Saved, memoryview]:
    """The header, which may have changed since it was listed, and the bytes of all parts.

    Raises:
        DamagedError: it is not what was written, or the state of other tokens.
        OtherFormatError, OSError
    """
    saved = read_header(file, listed.path, listed.owner)
    if shared(saved.tokens, listed.tokens) != max(len(saved.tokens), len(listed.tokens)):
        raise DamagedError
    head = file.tell()
    file.seek(0)
    digest = hashlib.blake2b(file.read(head), digest_size=DIGEST)
    data = memoryview(bytearray(saved.n_bytes))
    whole = file.readinto(data) == saved.n_bytes  # type: ignore[attr-defined] # a buffered file
    digest.update(data)
    if not whole or file.read() != digest.digest():
        raise DamagedError
    return saved, data


def divided(saved: Saved, data: memoryview) -> State:
    """The parts of a file: the state, the checkpoints, the drafters' states."""
    parts = saved.parts
    at = saved.n_bytes - sum(parts)
    state, rest = data[:at], []
    for size in parts:
        rest.append(data[at : at + size])
        at += size
    n = len(saved.checkpoints)
    return State(
        owner=saved.owner,
        tokens=saved.tokens,
        state=state,
        checkpoints=tuple(
            Checkpoint(saved.tokens[:length], part)
            for (length, _), part in zip(saved.checkpoints, rest[:n], strict=True)
        ),
        drafts={
            name: DraftState(length, part)
            for (name, length, _), part in zip(saved.drafts, rest[n:], strict=True)
        },
        rate=saved.rate,
        conversation=saved.conversation,
    )
