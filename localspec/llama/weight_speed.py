"""How fast this machine computes with weights: seconds of a pass for each byte, by its width.

Measured on models of zeros, whose files are holes: two layers of the size that models with eight
billion weights have, large enough not to stay in a cache. The time of a pass does not depend on
the values of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from localspec.llama.context import Context
from localspec.llama.devices import physical_cores
from localspec.llama.model import Model
from localspec.llama.numpy_llama import LlamaShape
from localspec.llama.passes import Passes
from localspec.llama.threads import choose_threads
from localspec.llama.timing import least_seconds
from localspec.models.gguf.ggml_types import tensor_bytes
from localspec.models.gguf.writer import Tensor, Zeros, write_gguf

TYPES = {"Q4_0": 2, "Q4_K": 12}
"""Types of weights that are measured, as ggml types; others are taken for Q4_K."""
WIDTHS = (1, 4, 8, 2, 5, 16)
_BUDGET_S = 0.4
_F32 = 0
_SHAPE = LlamaShape(width=4096, hidden=14336, layers=2, heads=32, kv_heads=8, vocabulary=512)
_DEEPER = replace(_SHAPE, layers=6)
"""A second model for GPUs, where what a pass costs whatever its layers takes longer than two of
them."""


def write_model(path: Path, ggml_type: int, shape: LlamaShape = _SHAPE) -> None:
    """A model of zeros of the llama architecture, with matrices of a type.

    Raises:
        OSError: the file cannot be written.
    """
    tensors = [
        _zeros(name, sizes, _F32 if len(sizes) == 1 else ggml_type)
        for name, sizes in shape.tensors().items()
    ]
    with path.open("xb") as file:
        write_gguf(file, shape.metadata(), tensors)


def _zeros(name: str, shape: tuple[int, ...], ggml_type: int) -> Tensor:
    parts = partial(_hole, tensor_bytes(ggml_type, shape) or 0)
    return Tensor(f"{name}.weight", shape, ggml_type, parts)


def _hole(n_bytes: int) -> Iterator[Zeros]:
    yield Zeros(n_bytes)


def curve(
    folder: Path, kind: str, *, gpu_layers: int, extra_buffers: bool, own_kernels: bool = False
) -> dict[int, float]:
    """Seconds for each byte of weights of a type, by the tokens of a pass; about half a second. On
    a GPU, those that four more layers take.

    Raises:
        OSError: no file can be written in ``folder``.
        LocalspecError: llama.cpp refuses the model.
    """

    def passes(shape: LlamaShape) -> tuple[dict[int, float], int]:
        path = folder / f"{kind}.gguf"
        write_model(path, TYPES[kind], shape)
        model = Model(
            path,
            gpu_layers=gpu_layers,
            alone=False,
            extra_buffers=extra_buffers,
            own_kernels=own_kernels,
        )
        try:
            context = Context(model, n_ctx=256, n_batch=64, threads=physical_cores())
            try:
                if model.on_host:
                    choose_threads(context)
                return least_seconds(Passes(context).seconds, WIDTHS, _BUDGET_S), model.n_bytes
            finally:
                context.close()
        finally:
            model.close()
            path.unlink()

    seconds, n_bytes = passes(_SHAPE)
    if gpu_layers:
        return each_more((seconds, n_bytes), passes(_DEEPER))
    return {width: s / n_bytes for width, s in seconds.items()}


def each_more(
    few: tuple[Mapping[int, float], int], more: tuple[Mapping[int, float], int]
) -> dict[int, float]:
    """Seconds of each byte that the second model has more, by width; of all its bytes where it was
    not slower.
    """
    (short, small), (long, large) = few, more
    common = sorted(short.keys() & long.keys())
    slope = {n: (long[n] - short[n]) / (large - small) for n in common}
    return {n: s if s > 0 else long[n] / large for n, s in slope.items()}
