"""The process with a projector: ``python -m localspec.llama.encoder_child``.

It loads the projector, and the vocabulary of its model, once. Each request arrives on a socket,
with a descriptor for its answers and one with the word to begin. Where the processor computes, on
Linux, a fork answers it: the fork shares the weights, may be stopped and ended at any moment, and
takes nothing with it where native code aborts. A GPU's context does not survive a fork: there, and
on other systems, requests are answered here, one after the other.

A request is four bytes with the length of its JSON, that, and the pixels or samples. Answers are
JSON lines, each followed by the bytes that it announces.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from localspec.core.errors import DecodeError, LocalspecError, MediaError, UnsupportedModelError
from localspec.core.files import paths
from localspec.core.picture import Decoded, Pixels, Samples
from localspec.core.processes import children
from localspec.llama import library, own_kernels
from localspec.llama.heads.tensors import mapped
from localspec.llama.library import c_api
from localspec.llama.load_file import load, load_error
from localspec.llama.mtmd import IMAGE, TEXT, InputText, Mtmd
from localspec.models.gguf.model_file import ModelFile

LOG = "encoder.log"
"""llama.cpp's log of these processes, in the state folder."""
_LOW = 10
"""Niceness of what only prepares a picture."""
_MARKER = b"<__media__>"
_BREAK = "v.token_embd.img_break"


class Encoder:
    """A loaded projector."""

    def __init__(self, given: argparse.Namespace) -> None:
        """Load what the command line names.

        Raises:
            ModelFileError: the model's file cannot be read.
            UnsupportedModelError: the projector is damaged, of another model, or not known.
            LocalspecError: libmtmd cannot be opened.
        """
        path = Path(given.projector)
        self._name = path.name
        if given.kernels:  # the projector is computed as it would be beside its model
            kernels, libraries, unit = given.kernels
            own_kernels.register(Path(kernels), Path(libraries), unit)
        self._call = Mtmd(Path(given.library))
        model = _vocabulary(Path(given.target))
        self.width = int(c_api.llama_model_n_embd_inp(model))
        row = mapped(ModelFile(path), (_BREAK,)).get(_BREAK)
        self._break = None if row is None else row.numbers().reshape(-1)
        params = self._call("context_params_default")
        params.use_gpu = given.gpu
        params.print_timings = params.warmup = False
        params.n_threads = given.threads
        params.media_marker = _MARKER
        library.forget_errors()
        self._ptr = self._call("init_from_file", os.fsencode(path), model, params)
        if not self._ptr:
            reason = (library.errors() or ["no reason given"])[-1]
            raise UnsupportedModelError(
                f"{path.name} does not encode pictures for {Path(given.target).name}: {reason}; "
                "name another file with --mmproj"
            )
        heard = int(self._call("get_audio_sample_rate", self._ptr))
        self.facts = {
            "sees": bool(self._call("support_vision", self._ptr)),
            "rate": heard if heard > 0 else None,
            "dimensions": 4 if self._call("decode_use_mrope", self._ptr) else 1,
            "width": self.width,
        }

    def answers(
        self, request: dict[str, Any], data: bytes, wanted: Callable[[], bool]
    ) -> Iterator[tuple[dict[str, Any], Any]]:
        """Messages, each with the bytes that follow it, as long as they are ``wanted``.

        Raises:
            MediaError: the encoder's preprocessing refuses a picture.
            DecodeError: it cannot be encoded.
        """
        decoded: Decoded
        if request["rate"]:
            decoded = Samples(request["rate"], data)
            what = f"a sound of {len(decoded) / decoded.rate:.1f} s"
        else:
            decoded = Pixels(request["width"], request["height"], data)
            what = f"a picture of {decoded.width} x {decoded.height} pixels"
        chunks = self._call("input_chunks_init")
        bitmap = self._bitmap(decoded)
        text = InputText(_MARKER, len(_MARKER), False, True)
        bitmaps = (ctypes.c_void_p * 1)(bitmap)
        try:
            if self._call("tokenize", self._ptr, chunks, ctypes.byref(text), bitmaps, 1):
                raise MediaError(f"{what} is refused by the encoder {self._name}")
            found = [
                self._call("input_chunks_get", chunks, i)
                for i in range(self._call("input_chunks_size", chunks))
            ]
            if request["first"] is None:
                yield {"chunks": [self._described(chunk) for chunk in found]}, b""
                return
            for number in range(request["first"], len(found)):
                if not wanted():
                    return
                if self._call("input_chunk_get_type", found[number]) != TEXT:
                    rows = self._encoded(found[number])
                    yield {"number": number, "bytes": rows.nbytes}, rows.data
        finally:
            self._call("bitmap_free", bitmap)
            self._call("input_chunks_free", chunks)

    def _bitmap(self, decoded: Decoded) -> Any:
        if isinstance(decoded, Samples):
            return self._call("bitmap_init_from_audio", len(decoded), decoded.data)
        return self._call("bitmap_init", decoded.width, decoded.height, decoded.rgb)

    def _described(self, chunk: Any) -> dict[str, Any]:
        """What the model's process has to know of a chunk."""
        kind = self._call("input_chunk_get_type", chunk)
        if kind == TEXT:
            size = ctypes.c_size_t()
            tokens = self._call("input_chunk_get_tokens_text", chunk, ctypes.byref(size))
            return {"tokens": tokens[: size.value]}
        rows = int(self._call("input_chunk_get_n_tokens", chunk))
        return {
            "rows": rows,
            "positions": int(self._call("input_chunk_get_n_pos", chunk)),
            "causal": not self._call("decode_use_non_causal", self._ptr, chunk),
            "places": self._places(chunk, rows) if kind == IMAGE else None,
        }

    def _places(self, chunk: Any, rows: int) -> list[list[int]] | None:
        """Positions of the rows in four dimensions, where the picture begins the text; None where
        they are in a line. Further behind, they are all as much larger.
        """
        if self.facts["dimensions"] == 1:
            return None
        image = self._call("input_chunk_get_tokens_image", chunk)
        found = []
        for i in range(rows):
            at = self._call("image_tokens_get_decoder_pos", image, 0, i)
            found.append((at.t, at.y, at.x, at.z))
        return [[*places] for places in zip(*found, strict=True)]

    def _encoded(self, chunk: Any) -> NDArray[np.float32]:
        """(rows, width)."""
        library.forget_errors()
        if self._call("encode_chunk", self._ptr, chunk):
            reason = (library.errors() or ["no reason given"])[0]
            raise DecodeError(f"the picture could not be encoded: {reason}")
        rows = int(self._call("input_chunk_get_n_tokens", chunk))
        found = self._call("get_output_embd", self._ptr)
        made = np.ctypeslib.as_array(found, shape=(rows, self.width)).copy()
        if self._break is not None:
            _repair_breaks(made, self._break)
        if not np.isfinite(made).all():
            raise DecodeError(
                f"{self._name} computed values that are not numbers; it may be damaged"
            )
        return made


def _vocabulary(path: Path) -> Any:
    """The model of a file without its weights: libmtmd wants its width and its vocabulary."""
    library.start()
    params = c_api.llama_model_default_params()
    params.no_alloc = True
    params.load_mode = c_api.LLAMA_LOAD_MODE_NONE
    params.n_gpu_layers = 0
    library.forget_errors()
    model = load(path, params)
    if not model:
        raise load_error(path, library.errors())
    return model


def _repair_breaks(rows: NDArray[np.float32], between: NDArray[np.float32]) -> None:
    """Write the row that Pixtral has at the end of each line of a picture. llama.cpp makes it by
    multiplying memory that nobody has set by zero, which leaves what is not a number there.
    """
    same = np.isclose(rows, between, atol=1e-3).all(axis=1) | ~np.isfinite(rows).all(axis=1)
    places = np.flatnonzero(same)
    if len(places):
        line = int(places[0]) + 1
        if np.array_equal(places, np.arange(line - 1, len(rows), line)):
            rows[places] = between


def main() -> None:
    """Load, tell of it, and answer until the other side closes the socket."""
    parser = argparse.ArgumentParser(prog="python -m localspec.llama.encoder_child")
    for name in ("target", "projector", "library"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("socket", "threads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--kernels", nargs=3)
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the parent
    forks = sys.platform == "linux" and not given.gpu
    with socket.socket(fileno=given.socket) as asked:
        try:
            library.log_to(paths.make(paths.state_dir()) / LOG)
            encoder = Encoder(given)
        except LocalspecError as error:
            asked.sendall(json.dumps(children.failed(error)).encode() + b"\n")
            return
        if forks:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries them
        else:
            children.watch_parent()  # what computes here does not see that the socket was closed
        asked.sendall(json.dumps(encoder.facts | {"forks": forks}).encode() + b"\n")
        while True:
            head, descriptors, _, _ = socket.recv_fds(asked, 4, 2)
            if not head:
                return
            head += _exactly(asked, 4 - len(head))
            request = json.loads(_exactly(asked, int.from_bytes(head, "little")))
            data = _exactly(asked, request["bytes"])
            answers, begins = descriptors
            if forks:
                _fork(encoder, request, data, answers, begins)
            else:
                _answer(encoder, request, data, answers)
            os.close(answers)
            os.close(begins)


def _exactly(asked: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        part = asked.recv(min(size - len(found), 1 << 20))
        if not part:
            sys.exit()
        found += part
    return bytes(found)


def _fork(
    encoder: Encoder, request: dict[str, Any], data: bytes, answers: int, begins: int
) -> None:
    try:
        inside = os.fork() == 0
    except OSError as error:  # no memory or too many processes: those that compute go on
        why = DecodeError(f"the picture could not be encoded: {error.strerror or error}")
        with contextlib.suppress(BrokenPipeError):
            _write(answers, children.failed(why), b"")
        return
    if inside:
        _answer_and_end(encoder, request, data, answers, begins)


def _answer_and_end(
    encoder: Encoder, request: dict[str, Any], data: bytes, answers: int, begins: int
) -> NoReturn:
    """In the fork."""
    status = 1
    try:
        children.end_with_parent()
        if request["first"] is None:  # nobody holds this one, while others compute beside it
            os.nice(_LOW)
        _write(answers, {"pid": os.getpid()}, b"")
        if os.read(begins, 1):
            _answer(encoder, request, data, answers)
            status = 0
    except BaseException:  # noqa: BLE001 - it goes to the log, and the process ends
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)  # nothing of the process that it is a copy of is to be ended here


def _answer(encoder: Encoder, request: dict[str, Any], data: bytes, answers: int) -> None:
    readers = select.poll()
    readers.register(answers, 0)  # it has an error once nobody can read what is written

    def wanted() -> bool:
        return not readers.poll(0)

    if not wanted():
        return
    with contextlib.suppress(BrokenPipeError):  # nobody waits any more
        try:
            for message, payload in encoder.answers(request, data, wanted):
                _write(answers, message, payload)
            _write(answers, {"end": True}, b"")
        except LocalspecError as error:
            _write(answers, children.failed(error), b"")
        except (MemoryError, OverflowError) as error:
            _write(answers, children.failed(DecodeError(f"too large: {error}")), b"")


def _write(descriptor: int, message: dict[str, Any], payload: Any) -> None:
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(json.dumps(message).encode() + b"\n")
        file.write(payload)


if __name__ == "__main__":
    main()
