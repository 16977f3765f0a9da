"""How fast this machine computes with weights: seconds of a pass for each byte, by its width.

Measured on models of zeros, whose files are holes: two layers of the size that models with eight
billion weights have, large enough not to stay in a cache. The time of a pass does not depend on
the values of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from localspec.kernels.formats import FORMATS
from localspec.llama.context import Context
from localspec.llama.devices import physical_cores
from localspec.llama.model import Model
from localspec.llama.passes import Passes
from localspec.llama.threads import choose_threads
from localspec.llama.timing import least_seconds
from localspec.models.gguf.llama_shape import LlamaShape
from localspec.models.gguf.writer import Tensor, write_gguf

TYPES = ("Q4_0", "Q4_K")
"""Types of weights that are measured; others are taken for Q4_K."""
WIDTHS = (1, 4, 8, 2, 5, 16)
_BUDGET_S = 0.4
_SHAPE = LlamaShape(
    width=4096, layers=2, feed_forward=14336, heads=32, kv_heads=8, head_size=128, vocabulary=512
)
_DEEPER = replace(_SHAPE, layers=6)
"""A second model for GPUs, where what a pass costs whatever its layers takes longer than two of
them."""


def write_model(path: Path, kind: str, shape: LlamaShape = _SHAPE) -> None:
    """A model of zeros of the llama architecture, with matrices of a type, such as Q4_K.

    Raises:
        OSError: the file cannot be written.
    """
    tensors = [
        Tensor(f"{name}.weight", sizes, FORMATS["F32" if len(sizes) == 1 else kind].ggml_type)
        for name, sizes in shape.tensors().items()
    ]
    with path.open("xb") as file:
        write_gguf(file, shape.metadata(), tensors)


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
        write_model(path, kind, shape)
        try:
            with (
                closing(
                    Model(
                        path,
                        gpu_layers=gpu_layers,
                        generates=False,
                        extra_buffers=extra_buffers,
                        own_kernels=own_kernels,
                    )
                ) as model,
                closing(Context(model, n_ctx=256, n_batch=64, threads=physical_cores())) as context,
            ):
                if model.on_host:
                    choose_threads(context)
                return least_seconds(Passes(context).seconds, WIDTHS, _BUDGET_S), model.n_bytes
        finally:
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
