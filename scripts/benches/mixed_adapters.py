"""Replies with different adapters at the same time: what taking turns costs.

Two random adapters of a target are loaded. Two replies run together without adapters, with the same
one and with two different ones, which cannot share passes; and one alone without and with one.
Printed are tokens per second of all together, plain, and the longest pause between two tokens.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import gguf

from localspec import Options, ReplyRequest, Runtime, Sampling
from localspec.core.adapter_list import AdapterUse
from localspec.core.events import Token

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "helpers"))

from gguf_tools import write_lora

_ADAPTED = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_PROMPT = "def total(items):\n    "
_ENDLESS = Sampling(temperature=1.0)
_Uses = tuple[AdapterUse, ...]


def adapters(target: Path, folder: Path, rank: int, n: int) -> list[_Uses]:
    """Random adapters of all matrices of the layers, each as what a request asks for."""
    reader = gguf.GGUFReader(target)
    field = reader.get_field("general.architecture")
    assert field is not None
    shapes = {
        tensor.name: (int(tensor.shape[1]), int(tensor.shape[0]))
        for tensor in reader.tensors
        if tensor.name.split(".")[-2] in _ADAPTED
    }
    found: list[_Uses] = []
    for seed in range(n):
        path = folder / f"adapter-{seed}.gguf"
        write_lora(path, shapes, seed=seed, rank=rank, strength=0.05, arch=str(field.contents()))
        found.append((AdapterUse(str(path), 1.0),))
    return found


def together(runtime: Runtime, uses: Sequence[_Uses], tokens: int) -> tuple[float, float]:
    """Tokens per second of replies that run together, and the longest pause between two of one."""
    pauses = []

    def one(use: _Uses, seed: int) -> None:
        request = ReplyRequest(
            prompt=_PROMPT,
            adapters=use,
            sampling=_ENDLESS,
            seed=seed,
            max_tokens=tokens,
            draft=False,
        )
        at: list[float] = [
            time.perf_counter() for event in runtime.submit(request) if isinstance(event, Token)
        ]
        counts.append(len(at))
        pauses.append(max(b - a for a, b in itertools.pairwise(at)))

    counts: list[int] = []
    threads = [threading.Thread(target=one, args=(use, i)) for i, use in enumerate(uses)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began), max(pauses)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=48, help="of each reply")
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        first, second = adapters(asked.target, Path(name), asked.rank, 2)
        options = Options(
            model=str(asked.target),
            drafter=("off",),
            parallel=2,
            context=512,
            offline=True,
            threads=asked.threads,
        )
        with Runtime.open(options) as runtime:
            for use in (first, second):
                runtime.load_adapter(Path(use[0].path))
            rows: dict[str, list[_Uses]] = {
                "one without": [()],
                "one with an adapter": [first],
                "two without": [(), ()],
                "two with the same": [first, first],
                "two with different ones": [first, second],
            }
            for uses in rows.values():
                together(runtime, uses, 4)
            for what, uses in rows.items():
                speed, pause = together(runtime, uses, asked.tokens)
                print(f"{what:24} {speed:6.1f} tokens/s, pauses up to {1000 * pause:4.0f} ms")


if __name__ == "__main__":
    main()
