"""The cost of strict mode: processor seconds of passes on one thread, strict and not, in turns.

Every kind of context is measured in processes of its own, since llama.cpp decides about tiled
products once for a process. Processor time of one thread hardly depends on what else runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from localspec.llama import library
from localspec.llama.context import Context
from localspec.llama.limits import STRICT_BATCH
from localspec.llama.model import Model
from localspec.llama.passes import ordinary_tokens
from localspec.llama.strict import StrictContext, recipes
from localspec.models.gguf.header import read_header

WIDTHS = (1, 2, 3, 4, 8, 16, 32)
_PROMPT = 512
"""Tokens whose reading is timed."""


def passes(path: Path, prefix: int, times: int, *, strict: bool) -> dict[str, float]:
    """The least seconds of a pass by its tokens, and of reading a prompt."""
    extra = True
    if strict:
        library.untile()
        types = {tensor.ggml_type for tensor in read_header(path).tensors}
        extra = recipes(types, tiled=library.tiled())[0].extra_buffers
    model = Model(path, extra_buffers=extra)
    kind, batch = (StrictContext, STRICT_BATCH) if strict else (Context, 512)
    context = kind(model, n_ctx=prefix + _PROMPT + 64, n_batch=batch, threads=1)
    known = ordinary_tokens(model, 199)
    tokens = [known[i * 31 % len(known)] for i in range(prefix + _PROMPT)]
    found: dict[str, float] = {}
    for _ in range(times):
        context.truncate(0, 0)
        began = time.process_time()
        context.read(0, tokens[:_PROMPT])
        _least(found, "prompt", time.process_time() - began)
        context.truncate(0, min(prefix, _PROMPT))
        context.read(0, tokens[context.length(0) : prefix])
        for width in WIDTHS:
            began = time.process_time()
            context.forward([(0, tokens[:width], width)])
            _least(found, str(width), time.process_time() - began)
            context.truncate(0, prefix)
    return found


def _least(found: dict[str, float], key: str, seconds: float) -> None:
    found[key] = min(found.get(key, seconds), seconds)


def main() -> None:
    """Print the ratios for each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="GGUF files")
    parser.add_argument("--prefix", type=int, default=128, help="tokens before each pass")
    parser.add_argument("--times", type=int, default=5, help="passes of each width")
    parser.add_argument("--turns", type=int, default=3, help="processes of each kind")
    parser.add_argument("--kind", choices=("strict", "usual"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.kind:
        strict = asked.kind == "strict"
        print(json.dumps(passes(asked.files[0], asked.prefix, asked.times, strict=strict)))
        return
    print("seconds of strict passes by those of usual ones, by tokens:")
    print("".join(f"{width:>8}" for width in (*WIDTHS, "prompt")))
    for file in asked.files:
        least: dict[str, dict[str, float]] = {"strict": {}, "usual": {}}
        for _ in range(asked.turns):
            for kind, found in least.items():
                for key, seconds in _measured(file, kind, asked).items():
                    _least(found, key, seconds)
        ratios = [least["strict"][k] / least["usual"][k] for k in least["usual"]]
        names = [*map(str, WIDTHS), "prompt"]
        by_name = dict(zip(least["usual"], ratios, strict=True))
        print(
            "".join(f"{by_name[name]:8.2f}" for name in names),
            f"{file.parent.name}/{file.name}",
            flush=True,
        )


def _measured(file: Path, kind: str, asked: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, "-P", __file__, str(file), "--kind", kind]
    command += ["--prefix", str(asked.prefix), "--times", str(asked.times)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
