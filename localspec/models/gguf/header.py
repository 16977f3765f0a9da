"""The header of a GGUF file: metadata, vocabulary and tensor list, without the weights.

It is read from a file, or through any function that returns a range of bytes: the first megabytes
of a file on the Hub tell whether a pair matches and fits, before it is downloaded.

Headers are not trusted. Every count and length is checked against the size of the file and against
what any model needs (`localspec.models.gguf.source`): a damaged or hostile header ends in a
ModelFileError, within bounded memory.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from localspec.core.errors import ModelFileError, ModelNotFoundError
from localspec.models.gguf.ggml_types import tensor_bytes
from localspec.models.gguf.source import Fetch, RawTensor, Source
from localspec.models.gguf.vocabulary_damage import vocabulary_damage

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = 32
MOST_LAYERS = 512
"""LLAMA_MAX_LAYERS."""
_SCALINGS = frozenset({"none", "linear", "yarn", "longrope"})
_MOST_EXPERTS = 1024
"""LLAMA_MAX_EXPERTS."""
_MOST_TENSORS, _MOST_ENTRIES = 1 << 17, 1 << 16
"""Limits of one file; the largest known have about 3000 tensors and 60 entries."""
_HEADS_KV = "attention.head_count_kv"
_EPSILONS = ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Place, shape and type of a tensor."""

    name: str
    shape: tuple[int, ...]
    """Fastest dimension first, as in the file."""
    ggml_type: int
    n_bytes: int
    offset: int
    """Bytes from `Header.data_offset`, the start of the tensor data."""


@dataclass(frozen=True)
class Header:
    """Key-values and tensor list of one GGUF file."""

    name: str
    """Name of the file, for messages."""
    version: int
    metadata: Mapping[str, object]
    """Texts are str, arrays tuples; texts in arrays stay bytes, since tokens need not be UTF-8."""
    tensors: tuple[TensorInfo, ...]
    data_offset: int
    """Bytes before the tensor data."""
    size: int
    """Bytes of the file."""

    @property
    def architecture(self) -> str:
        """``general.architecture``."""
        return self.text("general.architecture") or "unknown"

    def text(self, key: str) -> str | None:
        """A text of the metadata; None if it is missing."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def integer(self, key: str) -> int | None:
        """An integer of the metadata; the largest of an array (one per layer); None if missing."""
        value = self.metadata.get(key)
        if isinstance(value, tuple) and value and all(isinstance(v, int) for v in value):
            value = max(value)
        return int(value) if isinstance(value, int) and not isinstance(value, bool) else None

    def of_model(self, key: str) -> int | None:
        """An integer under the architecture's prefix: ``of_model("block_count")``."""
        return self.integer(f"{self.architecture}.{key}")

    @property
    def context(self) -> int:
        """Context length of the training, in tokens; 0 if not stated."""
        return self.of_model("context_length") or 0

    @property
    def positions(self) -> int | None:
        """Tokens that its table of learned positions is for; None if it computes positions."""
        table = self.named.get("position_embd.weight")
        return None if table is None else table.shape[-1]

    @property
    def n_embd(self) -> int:
        """Width of the residual stream; 0 if not stated."""
        return self.of_model("embedding_length") or 0

    @property
    def n_layer(self) -> int:
        """Transformer layers; 0 if not stated."""
        return self.of_model("block_count") or 0

    @property
    def next_layers(self) -> int:
        """The last of its layers, for multi-token prediction; 0 if not stated."""
        return self.of_model("nextn_predict_layers") or 0

    @property
    def trunk(self) -> int:
        """Layers before those."""
        return self.n_layer - self.next_layers

    @property
    def n_head(self) -> int:
        """Attention heads of the layer with the most; 0 if not stated."""
        return self.of_model("attention.head_count") or 0

    @property
    def n_head_kv(self) -> int:
        """Key and value heads of the layer with the most."""
        return self.of_model(_HEADS_KV) or self.n_head

    def heads_kv(self) -> tuple[int, ...]:
        """Key and value heads of every layer; 0 for a layer without a KV cache."""
        value = self.metadata.get(f"{self.architecture}.{_HEADS_KV}")
        if isinstance(value, tuple) and len(value) == self.n_layer:
            return value
        return (self.n_head_kv,) * self.n_layer

    @property
    def key_length(self) -> int:
        """Width of one head's key."""
        return self.of_model("attention.key_length") or self.n_embd // max(1, self.n_head)

    @property
    def value_length(self) -> int:
        """Width of one head's value."""
        return self.of_model("attention.value_length") or self.n_embd // max(1, self.n_head)

    @property
    def template(self) -> str | None:
        """The Jinja chat template; None if the file has none."""
        return self.text("tokenizer.chat_template")

    @property
    def licence(self) -> str | None:
        """``general.license``, as the uploader states it."""
        return self.text("general.license")

    @functools.cached_property
    def tokens(self) -> tuple[bytes, ...]:
        """The vocabulary's raw entries by id; empty if the file has none."""
        found = self.metadata.get("tokenizer.ggml.tokens")
        if isinstance(found, tuple) and all(isinstance(t, bytes) for t in found):
            return found
        return ()

    @property
    def n_vocab(self) -> int:
        """Entries of the vocabulary; 0 if the file has none."""
        return len(self.tokens)

    @functools.cached_property
    def named(self) -> Mapping[str, TensorInfo]:
        """The tensors by name."""
        return {tensor.name: tensor for tensor in self.tensors}

    @functools.cached_property
    def weight_bytes(self) -> int:
        """Bytes of all tensors of this file."""
        return sum(t.n_bytes for t in self.tensors)

    @property
    def end(self) -> int:
        """Bytes that the complete file has."""
        if not self.tensors:  # then there is no padding before them
            return min(self.data_offset, self.size)
        return self.data_offset + max(t.offset + t.n_bytes for t in self.tensors)

    @property
    def shards(self) -> int:
        """Files of the model; only the first holds the vocabulary."""
        return self.integer("split.count") or 1


def read_header(path: Path) -> Header:
    """The header of a local file.

    Raises:
        ModelNotFoundError: there is no such file.
        ModelFileError: not a GGUF, cut short, damaged, or unreadable.
    """
    with _opened(path) as (fetch, size):
        return parse_header(fetch, size, name=path.name)


def read_opening(path: Path) -> Mapping[str, object]:
    """The metadata of a local file before its vocabulary; empty if the file cannot be read."""
    metadata: dict[str, object] = {}
    with contextlib.suppress(ModelFileError, ModelNotFoundError), _opened(path) as (fetch, size):
        source = Source(fetch, size, path.name)
        *_, n_pairs = _counts(source, size, path.name)
        for _ in range(n_pairs):
            key = source.key()
            if key.startswith("tokenizer."):
                break
            metadata[key] = source.value(source.number("I"))
    return metadata


def raw_metadata(path: Path) -> Mapping[str, bytes]:
    """The metadata of a local file as it is stored: by key, the type and the bytes of the value.

    Raises:
        ModelNotFoundError, ModelFileError: as `read_header`.
    """
    with _opened(path) as (fetch, size):
        source = Source(fetch, size, path.name)
        *_, n_pairs = _counts(source, size, path.name)
        found: dict[str, bytes] = {}
        for _ in range(n_pairs):
            key, start = source.key(), source.position
            source.value(source.number("I"))
            found[key] = fetch(start, source.position)
        return found


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[Fetch, int]]:
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise ModelFileError(f"{path} is a pipe or a device; give a .gguf file")
        with path.open("rb") as file:
            size = file.seek(0, 2)

            def fetch(start: int, end: int) -> bytes:
                file.seek(start)
                return file.read(end - start)

            yield fetch, size
    except FileNotFoundError:
        raise ModelNotFoundError(f"no model file at {path}") from None
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}") from None


def parse_header(fetch: Fetch, size: int, name: str = "the file") -> Header:
    """The header of a file of ``size`` bytes; fetches no more of it than needed.

    Raises:
        ModelFileError: not a GGUF, cut short or damaged; the message has ``name``.
        LocalspecError: an error of ``fetch``.
    """
    source = Source(fetch, size, name)
    version, n_tensors, n_pairs = _counts(source, size, name)
    metadata: dict[str, object] = {}
    for _ in range(n_pairs):
        key = source.key()
        metadata[key] = source.value(source.number("I"))
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise source.damaged("its alignment is not a power of two")
    raw = [source.tensor() for _ in range(n_tensors)]
    data_offset = -(-source.position // alignment) * alignment
    header = Header(
        name=name,
        version=version,
        metadata=MappingProxyType(metadata),
        tensors=_sized(raw, size - data_offset, source),
        data_offset=data_offset,
        size=size,
    )
    invalid = _invalid_value(header)
    if invalid is not None:
        raise source.damaged(invalid)
    return header


def _invalid_value(header: Header) -> str | None:
    """The first value that no model has; llama.cpp aborts on these. None if all are plausible."""
    layers, ahead = header.of_model("block_count"), header.next_layers
    if layers is not None and not 1 <= layers <= MOST_LAYERS:
        return f"it states {layers} layers"
    most = MOST_LAYERS if layers is None else layers
    if not 0 <= ahead <= most:
        return f"it states {ahead} of {most} layers for prediction"
    for key in _EPSILONS:
        value = header.metadata.get(f"{header.architecture}.{key}")
        if isinstance(value, float) and not 0 <= value < math.inf:
            return f"its {key} is {value}"
    heads = header.metadata.get(f"{header.architecture}.{_HEADS_KV}")
    if isinstance(heads, tuple) and any(type(n) is not int for n in heads):
        return f"its {_HEADS_KV} are not all whole numbers"
    scaling = header.text(f"{header.architecture}.rope.scaling.type")
    if scaling is not None and scaling not in _SCALINGS:
        return f"its rope.scaling.type is {scaling!r}"
    return _invalid_experts(header) or vocabulary_damage(header.metadata)


def _invalid_experts(header: Header) -> str | None:
    count = header.of_model("expert_count") or 0
    used = header.of_model("expert_used_count") or 0
    if not 0 <= used <= count <= _MOST_EXPERTS or (count and not used):
        return f"it uses {used} of {count} experts"
    return None


def _counts(source: Source, size: int, name: str) -> tuple[int, int, int]:
    """Version, number of tensors, number of metadata entries."""
    if size < 4 or source.take(4) != _MAGIC:
        raise ModelFileError(f"{name} is not a GGUF file")
    version = source.number("I")
    if version not in _VERSIONS:
        raise ModelFileError(f"{name} has version {version} of GGUF; localspec reads 2 and 3")
    return version, source.count(24, _MOST_TENSORS), source.count(12, _MOST_ENTRIES)


def _sized(raw: list[RawTensor], available: int, source: Source) -> tuple[TensorInfo, ...]:
    """Tensors with their sizes; a tensor of an unknown type reaches to the next one."""
    ends = sorted({*(offset for *_, offset in raw), max(0, available)})
    following = dict(itertools.pairwise(ends))
    found = []
    for name, shape, kind, offset in raw:
        n_bytes = tensor_bytes(kind, shape)
        if n_bytes is None:
            n_bytes = following.get(offset, offset) - offset
        if n_bytes > 1 << 50:
            raise source.damaged(f"tensor {name!r} is impossibly large")
        found.append(TensorInfo(name, shape, kind, n_bytes, offset))
    return tuple(found)
