"""Recorded evidence: what drafters would have proposed at every place of known replies.

A reply is fixed (under `match` it does not depend on drafts), so is what stands at every place:

- of a drafter that predicts the next token from all tokens before it (a draft model), one
  confidence and one verdict for each place; a draft that starts anywhere consists of these;
- of a drafter that copies from the text, a chain for each place where a draft may start: the
  confidences of its tokens, and how many of the first ones are right.

Confidences are stored in 250 steps on a logarithmic scale towards 1, verdicts as bits. What
recorded them is in the history (docs/benchmarks.md, "Programs kept in the history").
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FILE = Path(__file__).parent / "evidence.bin"
LONGEST = 62
"""Tokens of a chain at most."""
_STEPS = 250.0
_NEAREST = 1e-4
"""Distance from 1 of the largest confidence."""
_SCALE = _STEPS / np.log(1 / _NEAREST)

Bytes = NDArray[np.uint8]


def unpacked(values: Bytes) -> NDArray[np.float64]:
    """The confidences."""
    found: NDArray[np.float64] = 1.0 - np.exp(-values.astype(float) / _SCALE)
    return found


@dataclass(frozen=True, slots=True)
class Chain:
    """A drafter's draft from one place."""

    confidences: Sequence[float]
    accepted: int
    """Its first tokens that are right."""


NO_CHAIN = Chain((), 0)


class Predictions:
    """Evidence of a drafter that predicts each token from all before it."""

    def __init__(self, confidences: Bytes, right: NDArray[np.bool_]) -> None:
        self.confidences, self.right = confidences, right
        self._values: list[float] = unpacked(confidences).tolist()
        misses = [*np.flatnonzero(~right).tolist(), len(right)]
        self._next_miss = np.array(misses)[np.searchsorted(misses, np.arange(len(right)))].tolist()

    def at(self, place: int) -> Chain:
        """The draft that starts at ``place``."""
        end = min(place + LONGEST, len(self._values))
        return Chain(self._values[place:end], min(self._next_miss[place], end) - place)

    def known(self, place: int) -> tuple[float, bool]:
        """Confidence and verdict of the token at ``place``."""
        return self._values[place], bool(self.right[place])


class Copies:
    """Evidence of a drafter that copies from the text."""

    def __init__(self, lengths: Bytes, accepted: Bytes, confidences: Bytes) -> None:
        self.lengths, self.accepted, self.confidences = lengths, accepted, confidences
        values = unpacked(confidences).tolist()
        ends = np.cumsum(lengths.astype(int)).tolist()
        starts = [0, *ends[:-1]]
        self._chains = [
            Chain(values[a:b], int(n)) for a, b, n in zip(starts, ends, accepted, strict=True)
        ]

    def at(self, place: int) -> Chain:
        """The draft that starts at ``place``."""
        return self._chains[place]


Source = Predictions | Copies


@dataclass(frozen=True, slots=True)
class Recorded:
    """A reply and what every drafter knew of it."""

    workload: str
    temperature: float
    prompt: int
    """Tokens of the prompt."""
    sources: Mapping[str, Source]

    @property
    def length(self) -> int:
        """Tokens of the reply."""
        source = next(iter(self.sources.values()))
        return len(source.right if isinstance(source, Predictions) else source.lengths)

    def cut(self, length: int) -> Recorded:
        """Its first ``length`` tokens."""
        return Recorded(
            self.workload,
            self.temperature,
            self.prompt,
            {name: _cut(source, length) for name, source in self.sources.items()},
        )


def _cut(source: Source, length: int) -> Source:
    if isinstance(source, Predictions):
        return Predictions(source.confidences[:length], source.right[:length])
    lengths = source.lengths[:length]
    room = np.arange(len(lengths), 0, -1)
    accepted = np.minimum(source.accepted[:length], room).astype(np.uint8)
    return Copies(lengths, accepted, source.confidences[: int(lengths.sum())])


def load(path: Path = FILE) -> list[Recorded]:
    """All recorded replies."""
    with np.load(io.BytesIO(zlib.decompress(path.read_bytes())), allow_pickle=False) as file:
        columns = dict(file)
    names = dict.fromkeys(key.partition("/")[0] for key in columns if "/" in key)
    lengths = columns["length"].tolist()
    split: dict[str, list[Source]] = {}
    for name in names:
        confidences = columns[f"{name}/confidences"]
        if f"{name}/right" in columns:
            right = np.unpackbits(columns[f"{name}/right"])[: sum(lengths)].astype(bool)
            split[name] = [
                Predictions(c, r)
                for c, r in zip(_parts(confidences, lengths), _parts(right, lengths), strict=True)
            ]
        else:
            chains = _parts(columns[f"{name}/lengths"], lengths)
            split[name] = [
                Copies(n, a, c)
                for n, a, c in zip(
                    chains,
                    _parts(columns[f"{name}/accepted"], lengths),
                    _parts(confidences, [int(n.sum()) for n in chains]),
                    strict=True,
                )
            ]
    return [
        Recorded(str(w), float(t), int(p), {name: split[name][i] for name in names})
        for i, (w, t, p) in enumerate(
            zip(columns["workload"], columns["temperature"], columns["prompt"], strict=True)
        )
    ]


def _parts(values: NDArray[np.generic], lengths: Sequence[int]) -> list[NDArray[np.generic]]:
    return np.split(values, np.cumsum(lengths)[:-1])
