"""A model file: weights, metadata, template."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localspec.core.errors import (
    Interrupted,
    UnsupportedModelError,
)
from localspec.core.interrupt import Cancelled
from localspec.kernels.library import BUFFER
from localspec.llama import library
from localspec.llama.adapters import Adapters
from localspec.llama.control_vectors import ControlVectors
from localspec.llama.devices import backend
from localspec.llama.library import c_api
from localspec.llama.load_file import (
    LoadProgress,
    check_file,
    devices_for,
    digest,
    is_extra,
    kept_on_host,
    load,
    load_error,
    require_unchanged,
    weight_buffers,
)
from localspec.llama.remote import RemoteDevices
from localspec.llama.vocabulary import Vocabulary
from localspec.models.compat.header_vocabulary import NO_POOLING
from localspec.models.gguf.model_file import ModelFile

_ALL_LAYERS = 999
_NOT_WAITING = contextlib.nullcontext()
_EVERY_ROW = frozenset({"cogvlm"})
"""Architectures whose graphs in llama.cpp compute the logits of all tokens of a pass, and store
those of the first ones where fewer were asked for."""
_BLOCK_SPARSE = frozenset({"minimax-m3"})
"""Architectures whose tokens see chosen blocks of the text. llama.cpp chooses them only with flash
attention and a stream of cells for each sequence; else every token sees all, which is another
model for texts longer than what is chosen.
"""
_LEARNED_POSITIONS = frozenset({"bert", "gpt2", "mpt", "starcoder"})
"""Architectures whose files may have a table of positions. llama.cpp ends the process on a position
beyond it, and makes contexts of any size."""


class Model(Vocabulary):
    """A loaded model. Close it when done; contexts made of it must be closed first."""

    def __init__(
        self,
        path: Path,
        *,
        gpu_layers: int | None = None,
        next_layers: bool = False,
        alone: bool = True,
        generates: bool = True,
        extra_buffers: bool = True,
        own_kernels: bool = False,
        beside_device: bool = False,
        host_experts: int = 0,
        remote: RemoteDevices | None = None,
        adapters: Adapters | None = None,
        vectors: ControlVectors | None = None,
        on_progress: Callable[[float], None] | None = None,
        cancelled: Cancelled | None = None,
    ) -> None:
        """Load ``path``; ``gpu_layers`` None offloads all that the backend can.

        With ``next_layers``, layers for multi-token prediction are loaded too. Without ``alone``,
        the file may be a part of a model, such as a head; without ``generates``, one that embeds
        texts. With ``extra_buffers``, llama.cpp copies weights on the host into the order that the
        processor's own kernels want (repacked, AMX), where it has such kernels; without, the file
        is mapped as it is. With ``own_kernels``, these are our own where they are registered and
        know the format. Where other layers are on a GPU, weights on the host are repacked only with
        ``beside_device``; for a prompt, the GPU copies weights from the host to itself where they
        are not repacked. The routed experts of the first ``host_experts`` layers stay on the host.
        With ``remote``, layers are offloaded to the devices of workers, before this machine's own.
        All contexts of the model begin with ``adapters`` and ``vectors``.

        Raises:
            ModelNotFoundError, ModelFileError, UnsupportedModelError, OutOfMemoryError
            UsageError: see `Adapters.load`.
            Interrupted: ``cancelled`` returned true.
            Exception: what ``on_progress`` or ``cancelled`` raised, which ends the loading.
        """
        check_file(path)
        library.start()
        self.path = path
        self.digest = digest(path)
        """Digest of the model's files as they were loaded."""
        self.offloads = gpu_layers != 0
        """Whether to use a GPU, if there is one."""
        params = c_api.llama_model_default_params()
        params.n_gpu_layers = _ALL_LAYERS if gpu_layers is None else gpu_layers
        params.load_mtp = next_layers
        params.use_extra_bufts = extra_buffers
        # In a build for GPUs, weights on the host otherwise go to memory that a GPU copies quickly,
        # where no kernels of the processor repack them. Without layers there, nothing is copied.
        params.no_host = beside_device or not self.offloads
        self.host_experts = host_experts if self.offloads else 0
        """Layers whose routed experts are on the host although the layers are not."""
        self.remote = remote if self.offloads else None
        """The workers that have layers, if any."""
        overrides = kept_on_host(
            path,
            params.n_gpu_layers,
            self.host_experts,
            devices=backend() != "cpu" or self.remote is not None,
            extra_buffers=extra_buffers,
        )
        params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
        devices = devices_for(self.remote, offloads=self.offloads, alone=alone)
        params.devices = ctypes.cast(devices, ctypes.c_void_p)
        progress = LoadProgress(on_progress, cancelled, self.remote)
        callback = c_api.llama_progress_callback(progress)
        params.progress_callback = callback
        library.forget_errors()
        with library.listening(alone=False) as lines, self.waiting():
            self._ptr: Any = load(path, params, own_kernels=own_kernels)
        self.buffers = weight_buffers(lines)
        """Names of llama.cpp's buffers that hold the weights."""
        self._asked_layers = int(params.n_gpu_layers)
        if progress.raised is not None:
            self.close()
            raise progress.raised
        if not self._ptr:
            if progress.stopped:
                raise Interrupted("loading was cancelled")
            raise load_error(path, library.errors())
        super().__init__(c_api.llama_model_get_vocab(self._ptr))
        self.adapters = adapters or Adapters()
        self.vectors = vectors or ControlVectors()
        try:
            if alone and generates:
                self._require_text_model()
            require_unchanged(path, self.digest)
            self.adapters.load(self._ptr)
        except BaseException:
            self.close()
            raise

    def _require_text_model(self) -> None:
        name = self.path.name
        if not self._vocab or self.n_vocab == 0 or self.vocab_type == c_api.LLAMA_VOCAB_TYPE_NONE:
            raise UnsupportedModelError(f"{name} has no vocabulary: it is not a text model")
        arch = self.architecture
        if c_api.llama_model_is_diffusion(self._ptr):
            raise UnsupportedModelError(
                f"{name} is a diffusion model ({arch}); it fills all places of a text at once, "
                "and localspec writes one token after the other: choose another chat model"
            )
        causal = self.metadata.get(f"{arch}.attention.causal", "true")
        pooled = self.metadata.get(f"{arch}.pooling_type", "0")
        if causal == "false" or pooled not in map(str, NO_POOLING):
            raise UnsupportedModelError(
                f"{name} is an embedding model ({arch}); it turns text into vectors and cannot "
                "write any: choose a chat model, and give this one to `serve --embedding`"
            )
        if c_api.llama_model_has_encoder(self._ptr) or not c_api.llama_model_has_decoder(self._ptr):
            raise UnsupportedModelError(
                f"{name} ({arch}) is not a decoder-only model; localspec runs those only"
            )

    @property
    def handle(self) -> Any:
        """The llama_model pointer, for the rest of this package."""
        return self._ptr

    def close(self) -> None:
        """Free the weights. May be called twice."""
        if self._ptr:
            with self.waiting():
                c_api.llama_model_free(self._ptr)
            self._ptr = None

    def answering(self) -> contextlib.AbstractContextManager[object]:
        """The context of a call that returns when the workers have answered all rows."""
        return _NOT_WAITING if self.remote is None else self.remote.watch.answering()

    def waiting(self, rows: int = 0) -> contextlib.AbstractContextManager[object]:
        """The context of a call of llama.cpp that may wait for workers; ``rows`` as in `Watch`."""
        return _NOT_WAITING if self.remote is None else self.remote.watch.waiting(rows)

    # -- facts ---------------------------------------------------------------------------------

    @functools.cached_property
    def n_ctx_train(self) -> int:
        """Tokens that the model was trained to see at once."""
        return int(c_api.llama_model_n_ctx_train(self._ptr))

    @functools.cached_property
    def positions(self) -> int | None:
        """Most tokens of a sequence, by its table of positions; None if it has none.

        Raises:
            ModelFileError: the header cannot be read any more.
        """
        if self.architecture not in _LEARNED_POSITIONS:
            return None
        return ModelFile(self.path).header.positions

    @functools.cached_property
    def n_layer(self) -> int:
        """Transformer layers."""
        return int(c_api.llama_model_n_layer(self._ptr))

    @functools.cached_property
    def gpu_layers(self) -> int:
        """Layers on a GPU, the output counted as the layer after the last."""
        if backend() == "cpu" and self.remote is None:
            return 0
        return min(self._asked_layers, self.n_layer + 1)

    @property
    def on_host(self) -> bool:
        """Whether the processor computes any of the layers."""
        return self.gpu_layers <= self.n_layer or self.host_experts > 0

    @property
    def uses_extra_buffers(self) -> bool:
        """Whether any weights were rearranged for the processor's own kernels."""
        return any(is_extra(name) for name in self.buffers)

    @property
    def uses_own_kernels(self) -> bool:
        """Whether any weights were packed for our own kernels."""
        return BUFFER in self.buffers

    @functools.cached_property
    def n_bytes(self) -> int:
        """Size of all tensors."""
        return int(c_api.llama_model_size(self._ptr))

    @functools.cached_property
    def partial_removal(self) -> bool:
        """Whether the KV cache can forget the end of a sequence, which rejected drafts need."""
        return not (
            c_api.llama_model_is_recurrent(self._ptr) or c_api.llama_model_is_hybrid(self._ptr)
        )

    @functools.cached_property
    def metadata(self) -> dict[str, str]:
        """Key-values of the header, arrays abbreviated by llama.cpp."""
        count = c_api.llama_model_meta_count(self._ptr)
        return {
            _text(
                lambda b, n, i=i: c_api.llama_model_meta_key_by_index(self._ptr, i, b, n)  # type: ignore[misc]
            ): _text(
                lambda b, n, i=i: c_api.llama_model_meta_val_str_by_index(self._ptr, i, b, n)  # type: ignore[misc]
            )
            for i in range(count)
        }

    @property
    def architecture(self) -> str:
        """``general.architecture``."""
        return self.metadata.get("general.architecture", "unknown")

    @functools.cached_property
    def gives_every_row(self) -> bool:
        """Whether rows of logits are right only where every token of a pass has one."""
        return self.architecture in _EVERY_ROW

    @functools.cached_property
    def template(self) -> str | None:
        """The Jinja chat template in the file."""
        raw = c_api.llama_model_chat_template(self._ptr, None)
        return raw.decode("utf-8", "replace") if raw else None

    @property
    def branching(self) -> bool:
        """Whether several sequences may share the beginning of its cache, as draft trees need it.

        A window of attention forgets cells on its own, so branches would come to differ.
        """
        return self.partial_removal and self.window == 0 and not self.block_sparse

    @property
    def block_sparse(self) -> bool:
        """Whether it is another model without flash attention, and where sequences share cells."""
        return self.architecture in _BLOCK_SPARSE

    @functools.cached_property
    def window(self) -> int:
        """Tokens that layers with sliding attention see; 0 if all layers see all."""
        return int(c_api.llama_model_n_swa(self._ptr))

    @property
    def chunked(self) -> bool:
        """Whether ``window`` is the length of chunks: a token then sees the chunk that it is in.

        llama.cpp publishes the length alone; Llama 4 is its only architecture with chunks.
        """
        return self.window > 0 and self.architecture == "llama4"


def _text(call: Callable[[Any, int], int]) -> str:
    """Text from a llama.cpp call that wants a buffer and returns the length it needs."""
    size = 256
    while True:
        buffer = ctypes.create_string_buffer(size)
        n = call(buffer, size)
        if n < size:
            return buffer.value.decode("utf-8", "replace")
        size = n + 1
