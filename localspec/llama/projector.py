"""The encoder of pictures and sounds that belongs to a model (llama.cpp's mmproj file): pixels and
samples to rows.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.core.media_rows import row_ids
from localspec.core.pixels import Decoded, Samples
from localspec.errors import (
    AuditError,
    DecodeError,
    Interrupted,
    LocalspecError,
    MediaError,
    UnsupportedModelError,
)
from localspec.llama import library, mtmd
from localspec.llama.abort import StopFlag
from localspec.llama.devices import backend
from localspec.llama.heads.tensors import mapped
from localspec.llama.library import c_api
from localspec.llama.model import Model
from localspec.llama.mtmd import IMAGE, TEXT, EvalCallback, InputText
from localspec.llama.slices import Sliced
from localspec.models.gguf.fingerprint import fingerprint
from localspec.models.gguf.model_file import ModelFile

Embeddings = NDArray[np.float32]
"""(rows, dimensions of the model's input)."""
_MARKER = b"<__media__>"
_BREAK = "v.token_embd.img_break"
_NODES = 16
"""Nodes of the encoder's graph between two looks whether it should stop; one, where others wait."""


class Piece:
    """The rows of a picture that are read together: all of it, or one of its tiles; or those of
    some seconds of a sound.
    """

    def __init__(self, owner: Projector, chunk: Any, key: bytes) -> None:
        """``chunk`` is libmtmd's, and ours to free; ``key`` a digest of what it depends on."""
        self._owner = owner
        self._chunk = chunk
        self._embeddings: Embeddings | None = None
        call = owner.library
        self.rows = int(call("input_chunk_get_n_tokens", chunk))
        self.positions = int(call("input_chunk_get_n_pos", chunk))
        """Places of the text that it takes; as many as rows, except with M-RoPE."""
        self.ids = row_ids(key, self.rows)
        self.causal = not owner.not_causal(chunk)
        self._free = weakref.finalize(self, call, "input_chunk_free", chunk)

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
        """Encode it until that time of `time.perf_counter`, at least a step; whether it is encoded.

        Raises:
            DecodeError: the encoder failed.
            Interrupted
        """
        while self._embeddings is None:
            self._owner.encode(self, until)
            if time.perf_counter() >= until:
                break
        return self._embeddings is not None

    @property
    def chunk(self) -> Any:
        """libmtmd's."""
        return self._chunk

    def take(self, embeddings: Embeddings) -> None:
        """It is encoded: the pixels are not needed any more."""
        self._embeddings = embeddings
        light = self._owner.library("input_chunk_get_placeholder", self._chunk)
        self._free()
        self._chunk = light
        self._free = weakref.finalize(self, self._owner.library, "input_chunk_free", light)

    @property
    def dimensions(self) -> int:
        """Positions that llama.cpp wants of each row."""
        return self._owner.dimensions

    def places(self, start: int) -> NDArray[np.int32]:
        """(4, rows): positions of the rows in the four dimensions of M-RoPE, where the picture
        begins at ``start``; those of a sound are in a line.
        """
        call = self._owner.library
        if call("input_chunk_get_type", self._chunk) != IMAGE:
            line = np.arange(start, start + self.rows, dtype=np.int32)
            return np.stack([line, line, line, np.zeros_like(line)])
        image = call("input_chunk_get_tokens_image", self._chunk)
        found = np.empty((4, self.rows), np.int32)
        for i in range(self.rows):
            at = call("image_tokens_get_decoder_pos", image, start, i)
            found[:, i] = at.t, at.y, at.x, at.z
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


class Projector:
    """A loaded projector. `tokenized` may be called from any thread, the rest by the one that owns
    the models.
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
        self.library = mtmd.opened(library_path)
        self.path = path
        self._stop = stop
        self.width = int(c_api.llama_model_n_embd_inp(model.handle))
        self._key = fingerprint(path).encode()
        row = mapped(ModelFile(path), (_BREAK,)).get(_BREAK)
        self._break = None if row is None else row.numbers().reshape(-1)
        self._asked = 0
        self._running: tuple[Piece, Sliced] | None = None
        """A piece that is encoded in slices, and not done."""
        self._given_up = self._stopped = False
        self._callback: Any = EvalCallback(self._look)
        params = self.library("context_params_default")
        params.use_gpu = model.offloads and backend() != "cpu"
        params.print_timings = params.warmup = False
        params.n_threads = threads
        params.media_marker = _MARKER
        params.cb_eval = ctypes.cast(self._callback, ctypes.c_void_p)
        library.errors_since(0)
        with library.listening(alone=False), model.waiting():
            self._ptr = self.library("init_from_file", str(path).encode(), model.handle, params)
        if not self._ptr:
            reason = (library.errors_since() or ["no reason given"])[-1]
            raise UnsupportedModelError(
                f"{path.name} does not encode pictures for {model.path.name}: {reason}; name "
                "another file with --mmproj"
            )
        self.sees = bool(self.library("support_vision", self._ptr))
        heard = int(self.library("get_audio_sample_rate", self._ptr))
        self.rate = heard if heard > 0 else None
        """Samples of a second that it hears; None: it hears nothing."""
        if not self.sees and self.rate is None:
            self.close()
            raise UnsupportedModelError(f"{path.name} has no encoder for pictures or sounds")
        self.dimensions = 4 if self.library("decode_use_mrope", self._ptr) else 1
        """Positions of each row."""
        self._lock = threading.Lock()
        self._pieces: weakref.WeakValueDictionary[bytes, Piece] = weakref.WeakValueDictionary()

    def close(self) -> None:
        """Free it. May be called twice."""
        if self._ptr:
            self._given_up = True
            if self._running is not None:
                with contextlib.suppress(LocalspecError):
                    self._running[1].go_on(None)
            self.library("free", self._ptr)
            self._ptr = None

    def tokenized(self, decoded: Decoded) -> Tokenized:
        """A picture or a sound as a part of a prompt; it is encoded when it is read.

        Raises:
            MediaError: the encoder's preprocessing refuses it, or it sees no pictures.
        """
        call = self.library
        if isinstance(decoded, Samples):
            what = f"a sound of {len(decoded) / decoded.rate:.1f} s"
            if not np.isfinite(np.frombuffer(decoded.data, np.float32)).all():
                raise MediaError(f"{what} has samples that are not numbers")
            bitmap = call("bitmap_init_from_audio", len(decoded), decoded.data)
        elif self.sees:
            what = f"a picture of {decoded.width} x {decoded.height} pixels"
            bitmap = call("bitmap_init", decoded.width, decoded.height, decoded.rgb)
        else:
            raise MediaError("this model hears sounds, and cannot see pictures")
        chunks = call("input_chunks_init")
        text = InputText(_MARKER, len(_MARKER), False, True)
        bitmaps = (ctypes.c_void_p * 1)(bitmap)
        try:
            if call("tokenize", self._ptr, chunks, ctypes.byref(text), bitmaps, 1):
                raise MediaError(f"{what} is refused by the encoder {self.path.name}")
            tokens, pieces = list[int](), list[Piece]()
            for i in range(call("input_chunks_size", chunks)):
                chunk = call("input_chunks_get", chunks, i)
                if call("input_chunk_get_type", chunk) == TEXT:
                    size = ctypes.c_size_t()
                    found = call("input_chunk_get_tokens_text", chunk, ctypes.byref(size))
                    tokens += found[: size.value]
                else:
                    piece = self._piece(chunk, decoded, i)
                    pieces.append(piece)
                    tokens += piece.ids
        finally:
            call("bitmap_free", bitmap)
            call("input_chunks_free", chunks)
        return Tokenized(tuple(tokens), tuple(pieces))

    def _piece(self, chunk: Any, decoded: Decoded, number: int) -> Piece:
        """The piece of a chunk; the same one for the same pixels."""
        what = self._key + decoded.digest + number.to_bytes(4, "little")
        made = Piece(self, self.library("input_chunk_copy", chunk), hashlib.sha256(what).digest())
        key = _key_of(made.ids)
        with self._lock:
            known = self._pieces.get(key)
            if known is None:
                self._pieces[key] = known = made
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

    def not_causal(self, chunk: Any) -> bool:
        """Whether every row of a chunk sees all others."""
        return bool(self.library("decode_use_non_causal", self._ptr, chunk))

    def encode(self, piece: Piece, until: float | None) -> None:
        """Encode a piece until that time, None: to its end. One is encoded after the other: where
        another one was begun, that one goes on first.

        Raises:
            DecodeError: the encoder failed.
            Interrupted
        """
        if self._running is None:
            self._running = piece, Sliced(lambda: self._encode(piece))
        begun, slices = self._running
        try:
            over = slices.go_on(until)
        except DecodeError:
            self._running = None
            if begun is piece:  # whoever needs the other one learns it then
                raise
        except BaseException:
            self._running = None
            raise
        else:
            self._running = None if over else self._running

    def _encode(self, piece: Piece) -> None:
        """In the thread of `Sliced`."""
        self._asked, self._stopped = 0, False
        library.errors_since(0)
        failed = self.library("encode_chunk", self._ptr, piece.chunk)
        if self._stopped:  # what it computed is of no use
            raise Interrupted("interrupted")
        if failed:
            reason = (library.errors_since() or ["no reason given"])[0]
            raise DecodeError(f"the picture could not be encoded: {reason}")
        found = self.library("get_output_embd", self._ptr)
        made = np.ctypeslib.as_array(found, shape=(piece.rows, self.width)).copy()
        if self._break is not None:
            _repair_breaks(made, self._break)
        if not np.isfinite(made).all():
            raise DecodeError(
                f"{self.path.name} computed values that are not numbers; it may be damaged"
            )
        piece.take(made)

    def _look(self, _node: object, ask: bool, _data: object) -> bool:
        """The evaluation callback of ggml, called twice for a node of the graph: with ``ask``,
        whether to compute up to it and call again; then whether to go on.
        """
        slices = self._running[1] if self._running is not None else None
        if ask:
            self._asked += 1
            return self._asked % _NODES == 0 or (slices is not None and slices.limited)
        if slices is not None:
            slices.pause()
        self._stopped = self._given_up or self._is_stopped(slices)
        return not self._stopped

    def _is_stopped(self, slices: Sliced | None) -> bool:
        """Whether the request that waits for the encoder was interrupted: while nobody waits for
        it, the flag is about others.
        """
        turn = 1 if slices is None else slices.turn
        stopped = turn % 2 == 1 and self._stop.is_set()
        return stopped and (slices is None or slices.turn == turn)


def _repair_breaks(rows: Embeddings, between: Embeddings) -> None:
    """Write the row that Pixtral has at the end of each line of a picture. llama.cpp makes it by
    multiplying memory that nobody has set by zero, which leaves what is not a number there.
    """
    same = np.isclose(rows, between, atol=1e-3).all(axis=1) | ~np.isfinite(rows).all(axis=1)
    places = np.flatnonzero(same)
    if len(places):
        line = int(places[0]) + 1
        if np.array_equal(places, np.arange(line - 1, len(rows), line)):
            rows[places] = between


def _key_of(ids: list[int]) -> bytes:
    return np.array(ids, np.int32).tobytes()
