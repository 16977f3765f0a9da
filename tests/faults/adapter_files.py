"""Odd and damaged LoRA adapters. What our look at a file lets pass is computed with by llama.cpp,
which aborts on tensors that do not go together.
"""

from __future__ import annotations

import functools
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf_tools
import moe_files
import numpy as np

from faults import header_values, mutations
from faults.entries import outcome
from faults.mutations import Chance
from localspec.core.adapter_file import AdapterFile
from localspec.core.adapter_list import AdapterUse
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.models.compat.adapters import require_fitting
from localspec.models.gguf.ggml_types import BLOCKS, tensor_bytes
from localspec.models.gguf.header import TensorInfo
from localspec.models.gguf.model_file import ModelFile

TARGETS = ("tied", "untied", "experts")
_KEYS = ("general.type", "adapter.type", "adapter.lora.alpha", "general.alignment", "split.count")
"""Metadata that we or llama.cpp read."""
_RANKS, _ODD = (1, 4, 32, 256), (0, 1, 2, 3, 31, 1 << 20, 1 << 33, 1 << 62, 1 << 63)
_NAMES = ("{}\0", "\0{}", "{}.lora_a", "{}\0_norm.weight", "{}_norm.weight", "{} ", "{0}{0}{0}")


@dataclass(frozen=True)
class Tensor:
    """A tensor as a file lists it."""

    name: str
    shape: tuple[int, ...]
    kind: int = 0

    @property
    def data(self) -> bytes:
        """Random numbers, at most a megabyte."""
        n = min(tensor_bytes(self.kind, self.shape or (1,)) or 64, 1 << 20)
        if self.kind:
            return bytes([17]) * n
        return np.random.default_rng(1).normal(0, 0.1, n // 4).astype(np.float32).tobytes()


@functools.cache
def target(kind: str) -> tuple[Model, ModelFile]:
    """A model to adapt, in memory alone, and what its file held."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "target.gguf"
        if kind == "experts":
            moe_files.write_moe(path, "qwen3moe", moe_files.Size(layers=1, experts=4))
        else:
            output = {"output.weight": np.ones((259, 64), np.float32)}
            gguf_tools.write_llama(path, seed=3, biases=output if kind == "untied" else None)
        file = ModelFile(path)
        assert file.header.named
        return Model(path, gpu_layers=0), file


def pair(base: TensorInfo, rank: int) -> list[Tensor]:
    """What adapts a tensor of the target."""
    into, out, *rest = (*base.shape, 1)[: max(2, len(base.shape))]
    a, b = (into, rank, *rest), (rank, out, *rest)
    if base.name == "token_embd.weight":
        a, b = (rank, out), (rank, into)
    return [Tensor(f"{base.name}.lora_a", a), Tensor(f"{base.name}.lora_b", b)]


ALPHA = b"adapter.lora.alpha"


def encoded(
    architecture: str,
    tensors: Sequence[Tensor],
    *,
    key: bytes = ALPHA,
    alpha: bytes = struct.pack("<If", 6, 8.0),
) -> bytes:
    """An adapter's file, whose alpha is stored as these bytes."""
    text = lambda raw: struct.pack("<Q", len(raw)) + raw  # noqa: E731 - a line is enough
    texts = {"general.architecture": architecture, "general.type": "adapter"}
    texts["adapter.type"] = "lora"
    raw = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(texts) + 1)
    for name, value in texts.items():
        raw += text(name.encode()) + struct.pack("<I", 8) + text(value.encode())
    raw += text(key) + alpha
    data = b""
    for tensor in tensors:
        shape = tensor.shape
        raw += text(tensor.name.encode()) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        raw += struct.pack("<IQ", tensor.kind, len(data))
        data += tensor.data
        data = data.ljust(-(-len(data) // 32) * 32, b"\0")
    return raw.ljust(-(-len(raw) // 32) * 32, b"\0") + data


def _odd(tensor: Tensor, chance: Chance) -> tuple[Tensor, str]:
    """A tensor with one thing changed, and what."""
    name, shape, kind = tensor.name, list(tensor.shape), tensor.kind
    match chance.randrange(5):
        case 0:
            kind = chance.choice((*BLOCKS, 4, 5, 31, 99))
        case 1:
            shape[-1] = chance.choice((*_RANKS, *_ODD))
        case 2:
            shape = [*shape, chance.choice((0, 1, 2, 3))][:4]
        case 3:
            shape = shape[1:]
        case 4:
            name = chance.choice(_NAMES).format(name)
    return Tensor(name, tuple(shape), kind), f"{name!a} is {shape} of type {kind}"


def adapters(chance: Chance, folder: Path) -> str | None:
    """An adapter of one to four tensors of a model, most of them odd or damaged."""
    model, file = target(chance.choice(TARGETS))
    tensors: list[Tensor] = []
    for base in chance.sample(file.header.tensors, chance.choice((1, 1, 2, 4))):
        tensors += pair(base, chance.choice(_RANKS))
    kind = chance.randrange(4)
    for _ in range(chance.choice((1, 1, 2)) if kind <= 1 else 0):
        at = chance.randrange(len(tensors))
        changed, change = _odd(tensors[at], chance)
        if chance.makes(change):
            tensors[at] = changed
    raw = encoded(file.header.architecture, tensors)
    if kind == 2:
        key, value = chance.choice(_KEYS), chance.choice(header_values.VALUES)
        if chance.makes(f"{key} is {value[:40].hex()}"):
            raw = header_values.changed(raw, {key: value})
    if kind == 3:
        raw = mutations.in_bytes(raw, chance)
    path = folder / "adapter.gguf"
    path.write_bytes(raw)
    return outcome(lambda: compute(model, file, path))


def compute(model: Model, file: ModelFile, path: Path) -> None:
    """Read a few tokens with an adapter that passes our look at it.

    Raises:
        LocalspecError: it does not, or llama.cpp refuses it.
    """
    require_fitting(ModelFile(path), file)
    adapters = model.adapters
    adapters.add(AdapterFile.read(path), "odd")
    context = Context(model, n_ctx=64, threads=1)
    try:
        context.adapt(adapters.blend([AdapterUse("odd", 0.5)]))
        for tokens in ([5, 6, 7], [8], [*range(10, 40)]):
            context.forward([(0, tokens, 1)])
    finally:
        context.close()
        adapters.remove("odd")
        adapters.free(adapters.unnamed())
