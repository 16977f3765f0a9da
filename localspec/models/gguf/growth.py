"""Models that compute what a small one computes and cost what a large one costs.

The residual stream is padded with zeros; heads, feed-forward neurons and whole layers are added
whose output matrices are zero. So the logits, and with them every acceptance figure, are those of
the small model, while all the weights of the large one are read and multiplied. A block of zero
bytes decodes to zeros in every ggml type, so nothing is quantized again; the padding is holes in
the file.

Exact where the width grows by a power of four: RMS norm divides by the root of the mean square,
which shrinks by d/d', and sqrt(d/d') is then a power of two.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from localspec.core.errors import UsageError
from localspec.models.gguf.ggml_types import BLOCKS, tensor_bytes
from localspec.models.gguf.header import MOST_LAYERS, TensorInfo, raw_metadata, read_header
from localspec.models.gguf.llama_shape import LlamaShape
from localspec.models.gguf.writer import RawValue, Tensor, Zeros, write_gguf

_F32 = 0
_FF_STEP = 256
_FF_RATIO = 3.5
"""Feed-forward width by model width, as in models of this family."""
_WIDEST = 8192
"""Beyond that, models of today grow deeper instead."""
_CLOSE = 0.05
"""How far from the size asked for a wider model may be."""
_EPSILON = "llama.attention.layer_norm_rms_epsilon"


class SmallModel:
    """A small model of the llama architecture, to be grown."""

    def __init__(self, path: Path) -> None:
        """Read its header.

        Raises:
            ModelNotFoundError, ModelFileError: there is no such model.
            UsageError: another architecture.
        """
        header = read_header(path)
        if header.architecture != "llama":
            raise UsageError(f"{path}: only models of the llama architecture can be grown")
        self.path, self._header = path, header
        self.shape = LlamaShape(
            width=header.n_embd,
            layers=header.n_layer,
            feed_forward=header.of_model("feed_forward_length") or 0,
            heads=header.n_head,
            kv_heads=header.n_head_kv,
            head_size=header.key_length,
            vocabulary=header.named["token_embd.weight"].shape[1],
        )

    def n_bytes(self, shape: LlamaShape) -> int:
        """Bytes of all tensors of a model grown to this shape."""
        more = shape.layers - self.shape.layers  # each of them is like the last small one
        names = self._names(self.shape.layers)
        last = [n for n in names if n.startswith(f"blk.{self.shape.layers - 1}.")]
        return self._sum(names, shape) + more * self._sum(last, shape)

    def _sum(self, names: Iterable[str], shape: LlamaShape) -> int:
        return sum(tensor_bytes(*self._stored(name, shape)) or 0 for name in names)

    def shape_for(self, n_bytes: int) -> LlamaShape:
        """A plausible shape of about that size: first the width, then the depth, then
        feed-forward.

        Raises:
            UsageError: the small model is larger already.
        """
        if n_bytes < self.n_bytes(self.shape):
            raise UsageError(f"{self.path} is larger than {n_bytes / 1e9:g} GB already")

        def error(shape: LlamaShape) -> float:
            return abs(self.n_bytes(shape) / n_bytes - 1)

        powers = [p for p in range(8) if p == 0 or self.shape.width * 4**p <= _WIDEST]
        candidates = [self._deep_enough(n_bytes, 4**power) for power in powers]
        close = [shape for shape in candidates if error(shape) <= _CLOSE]
        return close[-1] if close else min(candidates, key=error)

    def _deep_enough(self, n_bytes: int, times: int) -> LlamaShape:
        """With the width multiplied, the fewest layers whose feed-forward need not be too wide."""
        small = self.shape
        least = _FF_STEP * math.ceil(small.feed_forward / _FF_STEP)
        widest = max(_FF_RATIO * small.width * times, least)

        def shape(layers: int, feed_forward: int) -> LlamaShape:
            return replace(
                small,
                width=small.width * times,
                layers=layers,
                feed_forward=feed_forward,
                heads=small.heads * times,
                kv_heads=small.kv_heads * times,
            )

        for layers in range(small.layers, MOST_LAYERS):
            lean = self.n_bytes(shape(layers, least))
            step = self.n_bytes(shape(layers, least + _FF_STEP)) - lean
            feed_forward = least + _FF_STEP * max(0, round((n_bytes - lean) / step))
            if feed_forward <= widest:
                break
        return shape(layers, feed_forward)

    def grow(self, shape: LlamaShape, path: Path) -> None:
        """Write the grown model to a new file.

        Raises:
            OSError: it cannot be written.
        """
        metadata: dict[str, str | int | float | RawValue] = {
            key: RawValue(raw) for key, raw in raw_metadata(self.path).items()
        }
        epsilon = self._header.metadata[_EPSILON]
        assert isinstance(epsilon, float)
        metadata |= {**shape.sizes(), _EPSILON: epsilon * self.shape.width / shape.width}
        tensors = []
        for name in self._names(shape.layers):
            ggml_type, stored = self._stored(name, shape)
            parts = partial(self._parts, name, shape)
            tensors.append(Tensor(name, stored, ggml_type, parts))
        with path.open("xb") as file:
            write_gguf(file, metadata, tensors)

    def _names(self, layers: int) -> list[str]:
        """Tensor names of a model with that many layers, in file order."""
        outside = [n for n in self._header.named if not n.startswith("blk.")]
        inside = [n.removeprefix("blk.0.") for n in self._header.named if n.startswith("blk.0.")]
        return outside + [f"blk.{i}.{n}" for i in range(layers) for n in inside]

    def _stored(self, name: str, shape: LlamaShape) -> tuple[int, tuple[int, ...]]:
        """Type and shape of a tensor of the grown model, the type as in the last small layer."""
        if _kind(name).endswith("norm"):
            return _F32, shape.tensor("norm")
        like = name
        if name.startswith("blk."):
            _, layer, rest = name.split(".", 2)
            like = f"blk.{min(int(layer), self.shape.layers - 1)}.{rest}"
        return self._header.named[like].ggml_type, shape.tensor(_kind(name))

    def _parts(self, name: str, shape: LlamaShape) -> Iterator[bytes | Zeros]:
        """The bytes of a tensor of the grown model."""
        small = self._header.named.get(name)
        if _kind(name).endswith("norm"):
            yield self._norm(small, shape.width)
            return
        ggml_type, stored = self._stored(name, shape)
        whole = tensor_bytes(ggml_type, stored) or 0
        if small is None:
            yield Zeros(whole)
            return
        row = whole // stored[1]
        columns, rows = small.shape
        _, per_block, block_bytes = BLOCKS[ggml_type]
        used = columns // per_block * block_bytes
        data = self._data(small)
        for i in range(rows):
            yield data[i * used : (i + 1) * used]
            if row > used:
                yield Zeros(row - used)
        if whole > rows * row:
            yield Zeros(whole - rows * row)

    def _norm(self, small: TensorInfo | None, width: int) -> bytes:
        """Weights of a norm, scaled so that the wider one gives the same; ones in a new layer."""
        ones = struct.pack("<f", 1.0)
        if small is None:
            return ones * width
        scale = math.sqrt(self.shape.width / width)
        n = small.shape[0]
        weights = struct.unpack(f"<{n}f", self._data(small))
        return struct.pack(f"<{n}f", *(w * scale for w in weights)) + ones * (width - n)

    def _data(self, tensor: TensorInfo) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self._header.data_offset + tensor.offset)
            return file.read(tensor.n_bytes)


def _kind(name: str) -> str:
    """The part of a tensor's name that says what it is."""
    return name.removesuffix(".weight").rsplit(".", 1)[-1]
