"""The encoder of pictures and sounds that belongs to a model (llama.cpp's mmproj file): pixels and
samples to rows.
"""

from __future__ import annotations

import hashlib
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.core.errors import AuditError, DecodeError, Interrupted, LocalspecError, MediaError
from localspec.core.interrupt import Cancelled, never
from localspec.core.media_rows import row_ids
from localspec.core.picture import Decoded, Samples
from localspec.llama.batch import StopFlag
from localspec.llama.devices import backend
from localspec.llama.encoder_process import Answer, EncoderProcess, Job
from localspec.llama.load_file import digest
from localspec.llama.model import Model

Embeddings = NDArray[np.float32]
"""(rows, dimensions of the model's input)."""
_LOOK_S = 0.05
"""Seconds between two looks whether a request was interrupted."""
_MOST_S = 1800.0
"""Seconds of computing without an answer, after which the encoder is taken to hang."""
_LEAST_S = 0.02
"""Seconds that a slice lasts at least."""


class Source:
    """What a picture's pieces are encoded from: its pixels, until all are encoded."""

    def __init__(self, decoded: Decoded) -> None:
        self.decoded = decoded
        self.n_bytes = len(decoded.data if isinstance(decoded, Samples) else decoded.rgb)
        self.pieces: weakref.WeakValueDictionary[int, Piece] = weakref.WeakValueDictionary()
        """By the number of the chunk."""

    @property
    def encoded(self) -> bool:
        """Whether nobody needs the pixels any more."""
        return all(piece.source is None for piece in self.pieces.values())


class Piece:
    """The rows of a picture that are read together: all of it, or one of its tiles; or those of
    some seconds of a sound.
    """

    def __init__(
        self, owner: Projector, source: Source, number: int, facts: dict[str, Any], key: bytes
    ) -> None:
        """Chunk ``number`` of what ``source`` becomes, of which the encoder's process told
        ``facts``; ``key`` is a digest of what it depends on.
        """
        self._owner = owner
        self._embeddings: Embeddings | None = None
        self.source: Source | None = source
        """None: it is encoded."""
        self.number = number
        self.rows: int = facts["rows"]
        self.positions: int = facts["positions"]
        """Places of the text that it takes; as many as rows, except with M-RoPE."""
        self.causal: bool = facts["causal"]
        """Whether no row sees those behind it."""
        self._places: list[list[int]] | None = facts["places"]
        self.ids = row_ids(key, self.rows)

    def embeddings(self) -> Embeddings:
        """(rows, dimensions), encoded once; to be called by the thread that owns the models.

        Raises:
            DecodeError: the encoder failed.
            Interrupted
        """
        while self._embeddings is None:
            self._owner.encode(self, None)
        return self._embeddings

    def encoded(self, until: float) -> bool:
        """Encode it until that time of `time.perf_counter`; whether it is encoded.

        Raises:
            DecodeError: the encoder failed.
            Interrupted
        """
        if self._embeddings is None:
            self._owner.encode(self, until)
        return self._embeddings is not None

    def take(self, embeddings: Embeddings) -> None:
        """Keep the encoded rows; the pixels are not needed any more."""
        self._embeddings, self.source = embeddings, None

    @property
    def dimensions(self) -> int:
        """Positions that llama.cpp wants of each row."""
        return self._owner.dimensions

    def places(self, start: int) -> NDArray[np.int32]:
        """(4, rows): positions of the rows in the four dimensions of M-RoPE, where the picture
        begins at ``start``; those of a sound are in a line.
        """
        if self._places is None:
            line = np.arange(start, start + self.rows, dtype=np.int32)
            return np.stack([line, line, line, np.zeros_like(line)])
        found = np.array(self._places, np.int32)
        found[:3] += start
        return found

    @property
    def n_bytes(self) -> int:
        """Bytes of its rows, encoded."""
        return 4 * self.rows * self._owner.width


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Tokenized:
    """A picture as a part of a prompt."""

    tokens: tuple[int, ...]
    """Rows, and the tokens that the model wants around them."""
    pieces: tuple[Piece, ...]
    """To be held until the target has read them."""

    @property
    def n_bytes(self) -> int:
        """Bytes of its rows, encoded."""
        return sum(piece.n_bytes for piece in self.pieces)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of pixels or samples that are held until all of it is encoded."""
        sources = {piece.source for piece in self.pieces} - {None}
        return sum(source.n_bytes for source in sources if source is not None)


class Projector:
    """A projector, loaded in a process of its own. `tokenized` may be called from any thread, the
    rest by the one that owns the models.
    """

    def __init__(
        self, path: Path, model: Model, library_path: Path, *, threads: int, stop: StopFlag
    ) -> None:
        """Load the projector at ``path`` for a loaded model, with libmtmd from ``library_path``;
        ``stop`` ends the encoding of a picture.

        Raises:
            UnsupportedModelError: it is damaged, of another model, or of a kind that is not known.
            LocalspecError: libmtmd cannot be opened.
        """
        self.path = path
        self._stop = stop
        digests = {model.path: model.digest, path: digest(path)}
        self._key = digests[path].encode()
        gpu = model.offloads and backend() != "cpu"
        self._process = EncoderProcess(
            model.path, path, library_path, digests, threads=threads, gpu=gpu
        )
        facts = self._process.facts
        self.width: int = facts["width"]
        self.sees: bool = facts["sees"]
        self.rate: int | None = facts["rate"]
        """Samples of a second that it hears; None: it hears nothing."""
        self.dimensions: int = facts["dimensions"]
        """Positions of each row."""
        self._running: tuple[Source, Job] | None = None
        """What is encoded, and not done."""
        self._lock = threading.Lock()
        self._pieces: weakref.WeakValueDictionary[bytes, Piece] = weakref.WeakValueDictionary()

    def close(self) -> None:
        """End its process. May be called twice."""
        self._give_up()
        self._process.close()

    def tokenized(self, decoded: Decoded, cancelled: Cancelled = never) -> Tokenized:
        """A picture or a sound as a part of a prompt; it is encoded when it is read.

        Raises:
            MediaError: the encoder's preprocessing refuses it, or it sees no pictures.
            DecodeError: the encoder's process ended.
            Interrupted: ``cancelled`` returned true.
        """
        if isinstance(decoded, Samples):
            if not np.isfinite(np.frombuffer(decoded.data, np.float32)).all():
                raise MediaError(
                    f"a sound of {len(decoded) / decoded.rate:.1f} s has samples that are not "
                    "numbers"
                )
        elif not self.sees:
            raise MediaError("this model hears sounds, and cannot see pictures")
        job = Job(self._process, decoded)
        found: Answer | None = None
        try:
            while not job.over:
                found = job.answer(_LOOK_S) or found
                if cancelled():
                    raise Interrupted("stopped before the picture was read")
        finally:
            job.end()
        assert found is not None
        tokens, pieces, source = list[int](), list[Piece](), Source(decoded)
        for number, facts in enumerate(found.message["chunks"]):
            if "tokens" in facts:
                tokens += facts["tokens"]
            else:
                pieces.append(self._piece(source, number, facts))
                tokens += pieces[-1].ids
        return Tokenized(tuple(tokens), tuple(pieces))

    def _piece(self, source: Source, number: int, facts: dict[str, Any]) -> Piece:
        """The piece of a chunk; the same one for the same pixels."""
        what = self._key + source.decoded.digest + number.to_bytes(4, "little")
        made = Piece(self, source, number, facts, hashlib.sha256(what).digest())
        key = _key_of(made.ids)
        with self._lock:
            known = self._pieces.get(key)
            if known is None:
                self._pieces[key] = known = source.pieces[number] = made
            return known

    def piece(self, ids: list[int]) -> Piece:
        """The piece whose rows have these ids.

        Raises:
            AuditError: there is none: a request did not keep its pictures.
        """
        found = self._pieces.get(_key_of(ids))
        if found is None:
            raise AuditError(f"{len(ids)} rows of a picture that nobody holds any more")
        return found

    def encode(self, piece: Piece, until: float | None) -> None:
        """Encode a piece until that time, None: to its end. One is encoded after the other: where
        another one was begun, that one goes on first. Nothing is computed before and afterwards.

        Raises:
            DecodeError: the encoder failed.
            Interrupted
        """
        end = None if until is None else max(until, time.perf_counter() + _LEAST_S)
        while piece.source is not None and self._goes_on(piece, piece.source, end):
            pass

    def _goes_on(self, piece: Piece, wanted: Source, end: float | None) -> bool:
        """Encode what was begun, or this piece, until a piece is done; False: it is that time."""
        if self._running is None:
            self._running = wanted, Job(self._process, wanted.decoded, piece.number)
        source, job = self._running
        own = source is wanted
        try:
            done = self._encoded(source, job, end)
        except LocalspecError as error:
            interrupted = isinstance(error, Interrupted)
            if own or not interrupted:
                self._give_up()
            if own or interrupted:  # else whoever needs the other one learns it then
                raise
            return True
        if own and job.over and piece.source is not None and job.first <= piece.number:
            raise DecodeError("the encoder of pictures left one out")
        if done and not own:  # the next piece of the other one waits for its turn
            self._give_up()
        return done

    def _encoded(self, source: Source, job: Job, end: float | None) -> bool:
        """Encode until a piece is done, or that time; whether a piece, or all, is done."""
        began = time.perf_counter()
        job.go_on()
        try:
            while True:
                left = _LOOK_S if end is None else min(end - time.perf_counter(), _LOOK_S)
                answer = job.answer(max(left, 0.0))
                if answer is not None:
                    began, job.computed = time.perf_counter(), 0.0
                    piece = source.pieces.get(answer.message["number"])
                    if piece is not None:
                        piece.take(np.frombuffer(answer.data, np.float32).reshape(piece.rows, -1))
                if answer is not None and source.encoded:
                    job.end()  # nobody needs what else it may do
                if job.over:
                    self._running = None
                if answer is not None or job.over:
                    return True
                if self._stop.is_set():
                    raise Interrupted("interrupted")
                if job.computed + time.perf_counter() - began > _MOST_S:
                    raise DecodeError(f"a picture was encoded for {_MOST_S:.0f} s without an end")
                if end is not None and time.perf_counter() >= end:
                    return False
        finally:
            job.hold()
            job.computed += time.perf_counter() - began

    def stop(self, source: Source) -> None:
        """Nobody waits for pieces of it any more: give it up, if it was begun."""
        if self._running is not None and self._running[0] is source:
            self._give_up()

    def _give_up(self) -> None:
        if self._running is not None:
            self._running[1].end()
            self._running = None


def _key_of(ids: list[int]) -> bytes:
    return np.array(ids, np.int32).tobytes()
