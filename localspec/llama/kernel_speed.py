"""How fast passes are with our own kernels or with llama.cpp's, on small models of some formats.

``python -m localspec.llama.kernel_speed FOLDER [LIBRARY LIBRARIES UNIT]`` prints seconds by format
and width as JSON. In a process of its own, since kernels are chosen once for each.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

from localspec.llama import own_kernels
from localspec.llama.context import Context
from localspec.llama.devices import physical_cores
from localspec.llama.model import Model
from localspec.llama.passes import Passes
from localspec.llama.weight_speed import write_model
from localspec.models.gguf.llama_shape import LlamaShape

KINDS = ("Q4_K", "Q6_K")
"""Formats of what most files hold (Q4_K_M)."""
WIDTHS = (1, 4, 16, 128)
_TURNS = 3
_SHAPE = LlamaShape(
    width=2048, layers=1, feed_forward=8192, heads=16, kv_heads=4, head_size=128, vocabulary=512
)
"""60 million weights, 34 MB in four bits: more than the cache of a core holds."""


def seconds(path: Path, *, own: bool) -> dict[int, float]:
    """The least seconds of some passes of each width."""
    with (
        closing(Model(path, gpu_layers=0, generates=False, own_kernels=own)) as model,
        closing(Context(model, n_ctx=256, n_batch=128, threads=physical_cores())) as context,
    ):
        passes = Passes(context)
        turns = [{n: passes.seconds(n) for n in WIDTHS} for _ in range(_TURNS)]
    return {n: min(turn[n] for turn in turns) for n in WIDTHS}


def main(arguments: list[str]) -> int:
    """Measure all formats with models in a folder, which are written where they are not there."""
    folder, own = Path(arguments[0]), arguments[1:]
    if own:
        own_kernels.register(Path(own[0]), Path(own[1]), own[2])
    found = {}
    for kind in KINDS:
        path = folder / f"{kind}.gguf"
        if not path.exists():
            write_model(path, kind, _SHAPE)
        found[kind] = seconds(path, own=bool(own))
    sys.stdout.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
