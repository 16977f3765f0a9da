"""Try llama.cpp's samplers on the device for a draft model: what is equal, and what it costs.

A context can run samplers at the end of its passes. Top-k on the device leaves 64 logits and their
ids of a row, from which the draft is then drawn as from the row; less is copied from the device,
and less is read. localspec does not use it: this script says what it would give on a machine.

Times are medians and least values of passes over one token and of the draws after them, in turns
of eight. Without --draft, the model is a small one of random weights with 151,936 ids.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from device import machine
from device.sampled_context import K, Maker, greedy, top_k
from device.sampler_equality import SETTINGS, Equality, Sides, equalities
from device.samplers import Drawing, drawings, milliseconds, times_as_long, write_draft

from localspec.errors import LocalspecError, UnsupportedModelError
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.threads import choose_threads

_CHAINS: dict[str, tuple[Maker, ...]] = {
    "greedy": (greedy,),
    f"top-k {K}": (top_k,),
    f"top-k {K}, greedy": (top_k, greedy),
}
_KV_TYPES = ("f16", "q8_0")


def main() -> int:
    """Exit code 1 where llama.cpp refuses something, or the model cannot be loaded."""
    asked = _parsed()
    for name, value in machine.facts():
        print(f"{name:<12} {value}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = asked.draft or write_draft(Path(folder))
            model = Model(path, gpu_layers=asked.gpu_layers)
            try:
                if model.n_vocab <= K:
                    raise UnsupportedModelError(f"{path.name} has no more than {K} ids")
                _tried(model, asked.threads or _threads(model), asked.turns)
            finally:
                model.close()
    except LocalspecError as error:
        print(f"backend_samplers: {error}", file=sys.stderr)
        return 1
    return 0


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draft", type=Path, metavar="FILE", help="a GGUF")
    parser.add_argument("--gpu-layers", type=int, metavar="N", help="default: all")
    parser.add_argument("--threads", type=int, metavar="N", help="default: the best of some")
    parser.add_argument("--turns", type=int, default=24, metavar="N", help="of eight passes a side")
    asked = parser.parse_args()
    for name in ("threads", "turns"):
        value = getattr(asked, name)
        if value is not None and value < 1:
            parser.error(f"--{name} must be at least 1")
    return asked


def _threads(model: Model) -> int:
    """The number of threads that a draft model would get."""
    if not model.on_host:
        return 1
    context = Context(model, n_ctx=256, threads=1)
    try:
        return choose_threads(context)
    finally:
        context.close()


def _tried(model: Model, threads: int, turns: int) -> None:
    print(
        f"{'draft':<12} {model.n_vocab} ids, {model.n_bytes / 1e6:.0f} MB, {model.gpu_layers} of "
        f"{model.n_layer + 1} layers on the device, {threads} "
        f"thread{'s' if threads > 1 else ''}\n"
    )
    _chains(model, threads)
    print(f"\n{'passes':<44}candidates against the best of the whole row, and q of both")
    for kv_type in _KV_TYPES:
        for what, found in equalities(model, threads, kv_type):
            print(f"  {what + ', ' + kv_type:<42} {_equal(found)}", flush=True)
    head = "".join(f"{name:<17}" for name in ("pass", "draw", "both"))
    print(f"\n{'ms, median (least)':<32}{head}times as long")
    for name, sampling in SETTINGS.items():
        plain, sampled = drawings(model, sampling, threads, turns)
        for side, drawing in (("whole rows", plain), (f"top-k {K}", sampled)):
            print(
                f"  {f'{name}, {side}':<30}{_row(drawing)}{times_as_long(plain, drawing)}",
                flush=True,
            )


def _chains(model: Model, threads: int) -> None:
    """The candidates that each chain leaves of a row, and the memory of its context."""
    print(
        f"{'chain':<18} {'logits left':>11}  {'chosen, best':<16} MiB of buffers, rows each: 1, 16"
    )
    plain, flash = 0.0, ""
    for name, makers in _CHAINS.items():
        memory = list[float]()
        for rows_each in (1, 16):
            sides = Sides(model, makers, rows_each, n_ctx=1024, threads=threads)
            try:
                best = int(sides.answers((0, 8, 1))[0][0].argmax())
                left, chosen = len(sides.sampled.candidates(7).ids), sides.sampled.chosen(7)
                memory.append(sides.sampled.buffers)
                plain, refused = sides.buffers, sides.sampled.refused
                flash = sides.plain.flash_attention or "not said"
            finally:
                sides.close()
        ids = f"{chosen if chosen >= 0 else 'none'}, {best}"
        print(
            f"{name:<18} {left:>11}  {ids:<16} {memory[0]:.1f}, {memory[1]:.1f}"
            f"{f'   refused: {refused}' if refused else ''}",
            flush=True,
        )
    print(f"{'none':<18} {model.n_vocab:>11}  {'':<16} {plain:.1f}\nflash attention: {flash}")


def _equal(found: Equality) -> str:
    return f"{found.text}; confidence at temperature 0 apart by up to {found.surer:.2g}"


def _row(drawing: Drawing) -> str:
    return "".join(
        f"{milliseconds(of):<17}" for of in (drawing.passes, drawing.draws, drawing.seconds)
    )


if __name__ == "__main__":
    sys.exit(main())
