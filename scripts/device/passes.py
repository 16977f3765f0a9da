"""Costs of passes on this device: cold and warm, alternating widths, tokens alike and distinct."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from device import pairs
from device.machine import on_device, software
from device.pairs import ALL, PARTLY, Case
from device.rows import Row, finding, judged, ok, skipped
from localspec import GREEDY, Finished, Message, Runtime
from localspec.core.errors import LocalspecError
from localspec.llama.context import Context
from localspec.llama.devices import backend
from localspec.llama.model import Model
from localspec.llama.timing import sweep

_GROUP = "Cost of passes"
_WIDTHS = (1, 2, 4, 8)
_SWEEP_ERROR = 0.5
_TRIES = 5


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    """t(n) in several ways, overhead outside of llama.cpp, and partial offload."""
    case = pairs.trained(folder)["draft model"]
    try:
        yield from _costs(case, (*_WIDTHS,) if quick else (*_WIDTHS, 16))
        yield _changes(case)
        if not quick:
            yield from _lengths(case)
            yield _partly(case)
            yield _experts(pairs.mixture(folder, layers=8, width=512))
        # The embedded models take a third of a millisecond on a large GPU, where Python decides.
        yield from _replies(case if software() or not on_device() else pairs.grown(case, folder))
    except LocalspecError as error:
        yield finding(_GROUP, "passes", f"{type(error).__name__}: {error}")
    if backend() == "cuda":
        graphs = "off" if os.environ.get("GGML_CUDA_DISABLE_GRAPHS") else "on"
        yield ok(_GROUP, "CUDA graphs", f"{graphs}; run again with GGML_CUDA_DISABLE_GRAPHS=1")
    else:
        yield skipped(_GROUP, "CUDA graphs on and off", "not a CUDA build")
    what = "plain decoding against llama-bench"
    yield skipped(_GROUP, what, "llama-bench is not a part of this build")


def _costs(case: Case, widths: Sequence[int]) -> Iterator[Row]:
    with _computing(case.target, branches=8) as (model, context):
        cold = {n: _once(context, [5] * n) for n in widths}
        alike = {n: _median(context, [[5] * n] * _TRIES)[n] for n in widths}
        spread = _text(model, max(widths))
        alternating = _median(context, [spread[:n] for _ in range(_TRIES) for n in widths])
        # Plain decoding has passes over one token in a row, which CUDA's graphs make cheaper than
        # one after a draft.
        row = _median(context, [spread[:1]] * (2 * _TRIES))
        stored = sweep(context)
    yield ok(_GROUP, "first pass of each width", _ms(cold))
    yield ok(_GROUP, "the same width again, one token repeated", _ms(alike))
    yield ok(_GROUP, "widths in turns, distinct tokens", _ms(alternating))
    yield ok(_GROUP, "one token in a row", _ms(row))
    common = [n for n in widths if n in stored and n > 1]
    ratios = {n: (stored[n] / stored[1]) / (alternating[n] / row[1]) for n in common}
    worst = max((abs(r - 1) for r in ratios.values()), default=0.0)
    text = (
        f"{_ms({n: stored[n] for n in sorted(stored)})}; t(n)/t(1) against turns and the row: "
        + ", ".join(f"{n}: {r:.2f} times" for n, r in ratios.items())
    )
    # A curve that is one-token passes in a row was measured while kernels were compiled.
    clamped = all(stored[n] >= 0.999 * n * stored[1] for n in common)
    passed = not clamped and (worst <= _SWEEP_ERROR or software())
    yield judged(_GROUP, "what localspec measures at load", text, passed=passed)


def _changes(case: Case) -> Row:
    """Passes over one token, by their place after a wider pass: a new graph, then a captured one on
    CUDA, then a replayed one. The laboratory's `Launches` are these times, less the last of them.
    """
    with _computing(case.target) as (model, context):
        text = _text(model, 4)
        places: list[list[float]] = [[], [], [], [], []]
        for _ in range(1 + _TRIES):
            _once(context, text)
            for place in places:
                place.append(_once(context, text[:1]))
        took = [statistics.median(place[1:]) for place in places]
    listed = ", ".join(f"{1e3 * seconds:.3g} ms" for seconds in took)
    return ok(_GROUP, "one token, in the first to fifth pass after one over four", listed)


def _lengths(case: Case) -> Iterator[Row]:
    """t(1) and t(4) at several lengths of the context, by type of the KV cache."""
    for kv_type in ("f16", "q8_0"):
        parts = []
        with _computing(case.target, n_ctx=2304, kv_type=kv_type) as (model, context):
            text = _text(model, 2048)
            for length in (0, 2048):
                if length:
                    context.read(0, text)
                took = {n: _median(context, [text[:n]] * _TRIES)[n] for n in (1, 4)}
                parts.append(f"at {length}: {_ms(took)}")
        yield ok(_GROUP, f"by length of the context, KV cache {kv_type}", "; ".join(parts))


def _partly(case: Case) -> Row:
    """Partial offload: llama.cpp may compute 32 rows in another way than 31."""
    with _computing(case.target, gpu_layers=PARTLY.target) as (model, context):
        text = _text(model, 32)
        took = {n: _median(context, [text[:n]] * _TRIES)[n] for n in (24, 31, 32)}
    return ok(_GROUP, "part of the layers on the device", _ms(took))


def _experts(path: Path) -> Row:
    """Half of a mixture's layers on the host, against half of its layers' experts alone."""
    parts = []
    for name, placed in (("half of the layers", (4, 0)), ("half of the experts", (99, 4))):
        with _computing(path, gpu_layers=placed[0], host_experts=placed[1]) as (model, context):
            text = _text(model, 8)
            took = {n: _median(context, [text[:n]] * _TRIES)[n] for n in (1, 4, 8)}
        parts.append(f"{name} on the host: {_ms(took)}")
    return ok(_GROUP, "a mixture that is partly on the device", "; ".join(parts))


def _replies(case: Case) -> Iterator[Row]:
    """Plain and drafted speed of warm replies, and the share of time outside of the models."""
    options = replace(case.options(ALL), draft_max=None, drafter=None)
    question = [Message("user", "What can you do?")]
    best: dict[bool, float] = {}
    beside = 0.0
    with Runtime.open(options) as runtime:
        for draft in (True, False, True, False, True, False):
            *_, last = runtime.reply(question, sampling=GREEDY, max_tokens=48, draft=draft)
            assert isinstance(last, Finished)
            stats = last.reply.stats
            if stats.tokens_per_second > best.get(draft, 0.0):
                best[draft] = stats.tokens_per_second
                if draft:
                    taken = stats.draft_seconds + stats.verify_seconds
                    beside = 1 - taken / stats.decode_seconds
                    state = stats.speculation.state
    text = (
        f"{best[False]:.0f} tok/s plain, {best[True]:.0f} with drafts ({state}); "
        f"{beside:.1%} of the time outside of drafting and verifying"
    )
    if software() or not on_device():
        yield ok(_GROUP, "replies", text)
        return
    yield judged(_GROUP, "replies", text, passed=best[True] >= 0.97 * best[False])


@contextlib.contextmanager
def _computing(
    path: Path, n_ctx: int = 768, kv_type: str = "f16", branches: int = 0, **placed: int
) -> Iterator[tuple[Model, Context]]:
    """A model, its layers on the device as they are ``placed``, and a context on one thread."""
    model = Model(path, **placed)
    context = Context(model, n_ctx=n_ctx, threads=1, kv_type=kv_type, branches=branches)
    try:
        yield model, context
    finally:
        context.close()
        model.close()


def _once(context: Context, tokens: Sequence[int]) -> float:
    began, start = time.perf_counter(), context.length(0)
    context.forward([(0, list(tokens), len(tokens))])
    seconds = time.perf_counter() - began
    context.truncate(0, start)
    return seconds


def _median(context: Context, passes: Sequence[Sequence[int]]) -> dict[int, float]:
    """Median seconds by width, the first pass of each width left out."""
    seen: dict[int, list[float]] = {}
    for tokens in [*{len(p): p for p in passes}.values(), *passes]:
        seen.setdefault(len(tokens), []).append(_once(context, tokens))
    return {n: statistics.median(seconds[1:]) for n, seconds in seen.items()}


def _text(model: Model, n: int) -> list[int]:
    """Distinct tokens of ordinary text."""
    tokens = model.tokenize("The quick brown fox jumps over a lazy dog, and then it sleeps. " * n)
    return tokens[:n]


def _ms(seconds: dict[int, float]) -> str:
    return ", ".join(f"{n}: {1e3 * s:.3g} ms" for n, s in seconds.items())
