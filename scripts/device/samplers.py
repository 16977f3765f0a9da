"""llama.cpp's samplers in a draft model's passes: what is exact, and what is quicker.

With top-k on the device, 64 logits and their ids come to the host in place of the whole row, and
the draft is drawn from these as it is from a row. localspec does not do that; on each device this
trial says what it would give.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from device import pairs
from device.rows import Row, ok, skipped
from device.sampled_context import K, SampledContext
from device.sampler_equality import SETTINGS, Equality, Sides, equalities
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise, Stream
from localspec.core.values import Distribution
from localspec.drafters.model.proposal import confidence
from localspec.errors import LocalspecError
from localspec.llama.context import Context
from localspec.llama.model import Model

_VOCABULARY = 151_936
_GROUP = "Trials: nothing depends on them"


def write_draft(folder: Path) -> Path:
    """A small model of random weights, with the vocabulary of a large one."""
    sys.path.insert(0, str(pairs.ROOT / "tests"))
    import gguf_tools

    few = len(gguf_tools.byte_vocabulary())
    # Logits as wide as those of language models: some hundred within 8 of the best one.
    return gguf_tools.write_llama(
        folder / "draft-152k.gguf",
        vocabulary=gguf_tools.byte_vocabulary(_VOCABULARY - few),
        layers=4,
        context=4096,
        scale=6.0,
    )


@dataclass(slots=True)
class Drawing:
    """Passes over one token and what a draft does after each, timed."""

    context: Context
    passes: list[float] = field(default_factory=list)
    """Seconds until the results are on the host."""
    draws: list[float] = field(default_factory=list)
    """Seconds from there to the next token, its q and the confidence in it."""
    _noise: Noise = field(default_factory=lambda: Noise(1))

    def once(self, token: int, processor: LogitsProcessor, *, counts: bool) -> None:
        """A pass over ``token``, and the draw of the next one; timed if it ``counts``."""
        began = time.perf_counter()
        ((row,),) = self.context.forward([(0, [token], 1)])
        done = time.perf_counter()
        if isinstance(self.context, SampledContext):
            found = self.context.candidates(0)
            q = processor(found.logits, [])
            confidence(q, found.logits)
            q = Distribution(found.ids[q.ids], q.probs)
        else:
            q = processor(row, [])
            confidence(q, row)
        self._noise.draw(q, self.context.appended(0), Stream.SAMPLE)
        ended = time.perf_counter()
        if counts:
            self.passes.append(done - began)
            self.draws.append(ended - done)

    @property
    def seconds(self) -> list[float]:
        """Seconds of passes with their draws."""
        return [a + b for a, b in zip(self.passes, self.draws, strict=True)]


_IN_A_ROW = 8
"""Passes of one side before those of the other, as a draft makes them."""
_GRAPHS = 3
"""The first of these, which are not counted: CUDA captures a graph at the second equal pass."""


def drawings(model: Model, sampling: Sampling, threads: int, turns: int) -> tuple[Drawing, Drawing]:
    """Draws from whole rows and from what top-k left of them, in turns.

    Raises:
        LocalspecError: llama.cpp refuses a pass.
    """
    sides = Sides(model, n_ctx=1024, threads=threads)
    processor = LogitsProcessor(sampling, model.n_vocab)
    both = Drawing(sides.plain), Drawing(sides.sampled)
    try:
        sides.read(32)
        for turn in range(1 + turns):
            tokens = sides.next(_GRAPHS + _IN_A_ROW)
            for drawing in both if turn % 2 else both[::-1]:
                for i, token in enumerate(tokens):
                    drawing.once(token, processor, counts=turn > 0 and i >= _GRAPHS)
            sides.truncate(32)
    finally:
        sides.close()
    return both


def times_as_long(plain: Drawing, sampled: Drawing) -> str:
    """The ratio of passes with their draws, of the medians and of the least."""
    median, least = (of(sampled.seconds) / of(plain.seconds) for of in (statistics.median, min))
    return f"{median:.2f} ({least:.2f})"


def milliseconds(seconds: Sequence[float]) -> str:
    """Median and least."""
    return f"{1e3 * statistics.median(seconds):.3f} ({1e3 * min(seconds):.3f})"


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Equality, and time in turns. Never a finding: nothing depends on it."""
    what = f"drafts from a top-k of {K} by the device"
    try:
        model = Model(write_draft(folder))
        try:
            yield from _rows(model, what, turns=4 if quick else 12)
        finally:
            model.close()
    except LocalspecError as error:
        yield skipped(_GROUP, what, f"{type(error).__name__}: {error}")


def _rows(model: Model, what: str, turns: int) -> Iterator[Row]:
    sides = Sides(model, n_ctx=256, threads=1)
    refused = sides.sampled.refused
    sides.close()
    if refused is not None:
        yield skipped(_GROUP, what, refused)
        return
    found = sum((equality for _, equality in equalities(model, 1, "f16")), Equality())
    yield ok(_GROUP, f"{what}: candidates, their logits, q", found.text)
    for name, sampling in SETTINGS.items():
        plain, sampled = drawings(model, sampling, 1, turns)
        parts = [
            f"{side}: pass {milliseconds(drawing.passes)}, draw {milliseconds(drawing.draws)} ms"
            for side, drawing in (("whole rows", plain), ("candidates", sampled))
        ]
        parts.append(f"{times_as_long(plain, sampled)} times as long; medians (least)")
        yield ok(_GROUP, f"{what}: {name}, 152k ids", "; ".join(parts))
