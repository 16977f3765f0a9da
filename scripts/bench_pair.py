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

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from localspec.config.paths import cache_dir
from localspec.demo import FOLDER

_ALIGNMENT = 32
_MAX_LAYERS = 512
"""llama.cpp aborts beyond that."""
_FF_STEP = 256
_FF_RATIO = 3.5
"""Feed-forward width by model width, as in models of this family."""
_WIDEST = 8192
"""Beyond that, models of today grow deeper instead."""
_CLOSE = 0.05
"""How far from the size asked for a wider model may be."""


@dataclass(frozen=True)
class Shape:
    """The dimensions that cost depends on."""

    width: int
    layers: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_size: int

    def tensor(self, kind: str, vocabulary: int) -> tuple[int, int]:
        """(rows, columns) of a matrix, by the last part of its name."""
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        return {
            "token_embd": (vocabulary, self.width),
            "output": (vocabulary, self.width),
            "attn_q": (queries, self.width),
            "attn_k": (keys, self.width),
            "attn_v": (keys, self.width),
            "attn_output": (self.width, queries),
            "ffn_gate": (self.feed_forward, self.width),
            "ffn_up": (self.feed_forward, self.width),
            "ffn_down": (self.width, self.feed_forward),
        }[kind]


class Source:
    """A small llama-architecture GGUF."""

    def __init__(self, path: Path) -> None:
        self.reader = gguf.GGUFReader(path)
        self.tensors = {t.name: t for t in self.reader.tensors}
        if self.number("general.architecture") != "llama":
            raise SystemExit(f"{path}: only the llama architecture can be grown")
        heads = self.number("llama.attention.head_count")
        width = self.number("llama.embedding_length")
        self.shape = Shape(
            width=width,
            layers=self.number("llama.block_count"),
            feed_forward=self.number("llama.feed_forward_length"),
            heads=heads,
            kv_heads=self.number("llama.attention.head_count_kv"),
            head_size=width // heads,
        )
        self.eps = self.number("llama.attention.layer_norm_rms_epsilon")
        self.vocabulary = int(self.tensors["token_embd.weight"].shape[1])

    def number(self, key: str) -> Any:
        """The value of a key."""
        return self.reader.fields[key].contents()

    def like(self, name: str) -> str:
        """The tensor that a name of the grown model takes its type from."""
        if not name.startswith("blk."):
            return name
        _, layer, rest = name.split(".", 2)
        return f"blk.{min(int(layer), self.shape.layers - 1)}.{rest}"


def kind_of(name: str) -> str:
    """The part of a tensor's name that says what it is."""
    return name.removesuffix(".weight").rsplit(".", 1)[-1]


def bytes_of(source: Source, name: str, shape: Shape) -> int:
    """Size of one tensor of the grown model."""
    like = source.tensors[source.like(name)]
    if kind_of(name).endswith("norm"):
        return 4 * shape.width
    rows, columns = shape.tensor(kind_of(name), source.vocabulary)
    block, size = gguf.GGML_QUANT_SIZES[like.tensor_type]
    if columns % block:
        raise SystemExit(
            f"{name}: {columns} columns are no multiple of the type's block of {block}"
        )
    return rows * columns // block * size


def names_of(source: Source, layers: int) -> list[str]:
    """Tensor names of a model with that many layers, in file order."""
    outside = [n for n in source.tensors if not n.startswith("blk.")]
    inside = [n.removeprefix("blk.0.") for n in source.tensors if n.startswith("blk.0.")]
    return outside + [f"blk.{i}.{n}" for i in range(layers) for n in inside]


def total_bytes(source: Source, shape: Shape) -> int:
    """Size of all tensors."""
    return sum(bytes_of(source, n, shape) for n in names_of(source, shape.layers))


def shape_for(source: Source, target_bytes: int) -> Shape:
    """A plausible shape of about that size: first the width, then the depth, then feed-forward."""

    def error(shape: Shape) -> float:
        return abs(total_bytes(source, shape) / target_bytes - 1)

    powers = [p for p in range(8) if p == 0 or source.shape.width * 4**p <= _WIDEST]
    candidates = [_deep_enough(source, target_bytes, 4**power) for power in powers]
    close = [shape for shape in candidates if error(shape) <= _CLOSE]
    return close[-1] if close else min(candidates, key=error)


def _deep_enough(source: Source, target_bytes: int, times: int) -> Shape:
    """With the width multiplied, the fewest layers whose feed-forward need not be too wide."""
    small = source.shape
    least = _FF_STEP * math.ceil(small.feed_forward / _FF_STEP)
    widest = max(_FF_RATIO * small.width * times, least)

    def shape(layers: int, feed_forward: int) -> Shape:
        heads, kv_heads = small.heads * times, small.kv_heads * times
        return Shape(small.width * times, layers, feed_forward, heads, kv_heads, small.head_size)

    for layers in range(small.layers, _MAX_LAYERS):
        lean = total_bytes(source, shape(layers, least))
        step = total_bytes(source, shape(layers, least + _FF_STEP)) - lean
        feed_forward = least + _FF_STEP * max(0, round((target_bytes - lean) / step))
        if feed_forward <= widest:
            break
    return shape(layers, feed_forward)


def grown(source: Source, name: str, shape: Shape) -> np.ndarray | None:
    """The nonzero bytes of a tensor, as (rows, row bytes); None for a tensor of a new layer."""
    tensor = source.tensors.get(name)
    kind = kind_of(name)
    if kind.endswith("norm"):
        row = np.ones(shape.width, np.float32)
        if tensor is not None:
            scale = math.sqrt(source.shape.width / shape.width)
            row[: source.shape.width] = np.asarray(tensor.data, np.float32).ravel() * scale
        return row.view(np.uint8)[None]
    return None if tensor is None else np.ascontiguousarray(tensor.data).view(np.uint8)


def grow(source: Source, shape: Shape, path: Path) -> None:
    """Write the grown model."""
    writer = gguf.GGUFWriter(path, "llama")
    _copy_fields(source, writer, shape)
    sizes: list[tuple[str, int, int]] = []
    for name in names_of(source, shape.layers):
        like, n = source.tensors[source.like(name)], bytes_of(source, name, shape)
        if kind_of(name).endswith("norm"):
            writer.add_tensor_info(name, (shape.width,), np.dtype(np.float32), n)
            sizes.append((name, n, n))
            continue
        rows, columns = shape.tensor(kind_of(name), source.vocabulary)
        row_bytes = n // rows
        plain = like.tensor_type in {gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16}
        dtype = np.dtype(np.uint8)
        if plain:
            dtype = np.dtype(
                np.float32 if like.tensor_type == gguf.GGMLQuantizationType.F32 else np.float16
            )
        stored = (rows, columns) if plain else (rows, row_bytes)
        writer.add_tensor_info(name, stored, dtype, n, None if plain else like.tensor_type)
        sizes.append((name, n, row_bytes))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        at = _aligned(file.seek(0, 2))
        for name, n, row_bytes in sizes:
            data = grown(source, name, shape)
            if data is not None:
                for i, row in enumerate(data):
                    file.seek(at + i * row_bytes)
                    file.write(row.tobytes())
            at = _aligned(at + n)
        file.truncate(at)


def _aligned(n: int) -> int:
    return (n + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT


def _copy_fields(source: Source, writer: gguf.GGUFWriter, shape: Shape) -> None:
    changed = {
        "llama.embedding_length": shape.width,
        "llama.block_count": shape.layers,
        "llama.feed_forward_length": shape.feed_forward,
        "llama.attention.head_count": shape.heads,
        "llama.attention.head_count_kv": shape.kv_heads,
        "llama.attention.layer_norm_rms_epsilon": source.eps * source.shape.width / shape.width,
    }
    given = {
        "llama.attention.key_length": shape.head_size,
        "llama.attention.value_length": shape.head_size,
        "llama.rope.dimension_count": shape.head_size,
    }
    for field in source.reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        if field.name in given:
            continue
        value = changed.get(field.name, field.contents())
        sub = field.types[1] if len(field.types) > 1 else None
        writer.add_key_value(field.name, value, field.types[0], sub_type=sub)
    for name, value in given.items():
        writer.add_uint32(name, value)


def main() -> None:
    """Grow the embedded pair, or another, into the cache."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--gb", type=float, default=1.0, help="target's weights, in 10^9 bytes")
    parser.add_argument(
        "--draft-gb", type=float, default=0.06, help="draft's weights, in 10^9 bytes"
    )
    parser.add_argument("--target", type=Path, default=FOLDER / "target.gguf", help="small target")
    parser.add_argument("--draft", type=Path, default=FOLDER / "draft.gguf", help="small draft")
    parser.add_argument(
        "--out", type=Path, default=cache_dir() / "bench", help="folder to write to"
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    made = [
        make(arguments.target, arguments.out / f"target-{arguments.gb:g}gb.gguf", arguments.gb),
        make(
            arguments.draft,
            arguments.out / f"draft-{arguments.draft_gb:g}gb.gguf",
            arguments.draft_gb,
        ),
    ]
    print(f"try: scripts/localspec chat {made[0]} --draft {made[1]}")


def make(small: Path, out: Path, gb: float) -> Path:
    """Grow one file to about ``gb``; it appears under its name only once it is whole."""
    source = Source(small)
    wanted = int(gb * 1e9)
    if wanted < total_bytes(source, source.shape):
        raise SystemExit(f"{small} is larger than {gb:g} GB already")
    shape = shape_for(source, wanted)
    partial = out.with_suffix(".partial")
    grow(source, shape, partial)
    partial.replace(out)
    print(f"{out}: {total_bytes(source, shape) / 1e9:.2f} GB, {shape}")
    return out


if __name__ == "__main__":
    main()
