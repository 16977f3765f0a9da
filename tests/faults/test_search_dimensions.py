"""What `batches` and `models` vary in a request is looked at: a defect that shows with it alone is
found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tables
from frequencies import FALSE_ALARM

from faults.batch_chances import p_values
from faults.registry import SEARCHES
from faults.test_search_exactness import SAMPLED, SHARED, is_wrong, of_the_next_row
from localspec.core import sampler_chain
from localspec.core.adapter_list import Blend
from localspec.core.emitted import TokenLogprobs
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise, Stream
from localspec.core.repetition import Repetitions
from localspec.core.sampler_chain import Candidates, SamplerChain
from localspec.core.target import Target
from localspec.core.values import Distribution, Draft, Logits, Scores, TargetRows, Verdict
from localspec.decode.judged import CachedRows, Judged
from localspec.decode.logprobs import TokenScorer
from localspec.decode.request import Request
from localspec.drafters.base import Ask
from localspec.drafters.lookup.request_memory import Passage
from localspec.drafters.lookup.suffix import Suffix
from localspec.generation.infill_sampling import InfillProcessor
from localspec.generation.stop_condition import LineLimits, StopCondition, TextStream

CASES = 120
"""In which each defect is looked for,"""
USUAL_FIRST = 12
FIRST = {
    "tokens that begin others": 0,
    "DRY": 23,
    "no DRY": 23,
    "Mirostat under a grammar": 64,
    "a grammar that guides no draft": 29,
    "a prediction": 22,
    "an earlier request": 35,
    "no breakers": 37,
}
"""from one on that shows it: the search itself begins with 0."""


def finds(folder: Path, defect: str) -> bool:
    search, first = SEARCHES["batches"](folder), FIRST.get(defect, USUAL_FIRST)
    return any(is_wrong(search, seed) for seed in range(first, first + CASES))


# -- a draft that wins where it should be judged ---------------------------------------------------


def sampling(request: Request) -> Sampling:
    return request.processor.sampling


def condition(request: Request) -> StopCondition:
    assert isinstance(request.stop, StopCondition)
    return request.stop


WINS: dict[str, Callable[[Request, Draft], bool]] = {
    "DRY": lambda r, _: sampling(r).dries and not sampling(r).mirostat,
    "XTC": lambda r, _: sampling(r).excludes and not sampling(r).mirostat,
    "typical": lambda r, _: sampling(r).typical_p < 1,
    "top-n-sigma": lambda r, _: sampling(r).top_n_sigma > 0,
    "dynamic temperature": lambda r, _: sampling(r).dynatemp_range > 0,
    "Mirostat 1": lambda r, _: sampling(r).mirostat == 1,
    "Mirostat 2": lambda r, _: sampling(r).mirostat == 2,
    "another order": lambda r, _: sampling(r).samplers != Sampling().samplers,
    "Mirostat under a grammar": lambda r, _: r.processor.moves and ruled(r),
    "infill": lambda r, _: isinstance(r.processor, InfillProcessor),
    "stop texts under a grammar": lambda r, _: ruled(r) and bool(condition(r).stream._stop),
    "indentation": lambda r, _: condition(r)._limits._indent > 0,
    "two ends": lambda r, _: len(r.stop.end_ids) > 1,
    "short drafts": lambda r, _: r.drafting.most is not None,
    "a grammar that guides no draft": lambda r, _: ruled(r) and not r.guided,
    "processed log-probabilities": lambda r, _: r.scorer is not None and r.scorer._mode != "raw",
    "a prediction": lambda _, draft: draft.source == "prediction",
    "an earlier request": lambda _, draft: tuple(draft.tokens) in COPIED,
}
"""Requests, or drafts of them, by what `batches` varies."""

COPIED: set[tuple[int, ...]] = set()
"""Drafts from the memory of requests."""
VERDICT, COPY = Request._verdict, Suffix._copied


def ruled(request: Request) -> bool:
    return request.processor.constraint is not None


def noted(
    self: Suffix, ask: Ask, passage: Passage, k: int
) -> tuple[list[int], list[float], list[int]]:
    found = COPY(self, ask, passage, k)
    COPIED.add(tuple(found[0]))
    return found


@pytest.mark.parametrize("where", WINS)
def test_a_draft_that_wins_is_found_under(
    where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    let_win(WINS[where], monkeypatch)
    assert finds(tmp_path, where)


def let_win(where: Callable[[Request, Draft], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first drafted token is taken, whatever the target says."""

    def lax(self: Request, draft: Draft, p: CachedRows) -> Verdict:
        found = VERDICT(self, draft, p)
        if found.path or not len(draft) or not where(self, draft):
            return found
        return dataclasses.replace(found, token=int(draft.tokens[0]))

    COPIED.clear()
    monkeypatch.setattr(Suffix, "_copied", noted)
    monkeypatch.setattr(Request, "_verdict", lax)


# -- other defects ---------------------------------------------------------------------------------


def nothing(*_: object) -> None:
    """A step that is left out."""


def fixed_temperature(self: SamplerChain, found: Candidates, _: Sequence[int]) -> None:
    found.divide(self._s.temperature or 1e-6)


def moved_by_what_was_rejected(
    self: Request, draft: Draft, scores: Scores, p: CachedRows
) -> Judged:
    judged = JUDGED(self, draft, scores, p)
    if self.processor.moves and len(draft) > len(judged.verdict.path):
        self.processor = self.processor.after(p(0), int(draft.tokens[-1]))
    return judged


def a_place_later(self: Noise, position: int, index: int, stream: Stream) -> float:
    return UNIFORM(self, position + (stream is Stream.EXCLUDE), index, stream)


def by_tokens(self: TextStream, piece: bytes) -> str:
    self._held += piece.decode("utf-8", "replace")
    return self._release(final=False)


def always_raw(
    self: TokenScorer, i: int, token: int, logits: Logits, _: TargetRows
) -> TokenLogprobs:
    return self.scored(logits[i], token)


def without_the_last(self: TokenScorer, p: Distribution, token: int) -> TokenLogprobs:
    found = DRAWN(self, p, token)
    return dataclasses.replace(found, top=found.top[:-1])


def any_length(self: Request, target: Target, batch: int) -> int:
    left = min(self.limit - len(self.emitted) - 1, target.capacity - len(self.tokens))
    return min(left, target.deepest(batch))


JUDGED, UNIFORM, DRAWN = Request._judged, Noise.uniform, TokenScorer.drawn

DEFECTS: dict[str, tuple[object, str, object]] = {
    "no DRY": (SamplerChain, "_dry", nothing),
    "no XTC": (SamplerChain, "_xtc", nothing),
    "no typical": (SamplerChain, "_typical", nothing),
    "no top-n-sigma": (SamplerChain, "_top_n_sigma", nothing),
    "a temperature that is fixed": (SamplerChain, "_temperature", fixed_temperature),
    "no Mirostat": (sampler_chain, "truncated", nothing),
    "a mu that stays": (LogitsProcessor, "after", lambda self, *_: self),
    "a mu that rejected drafts move": (Request, "_judged", moved_by_what_was_rejected),
    "another place's coin": (Noise, "uniform", a_place_later),
    "no breakers": (Repetitions, "_limit", lambda _, known: len(known.tokens)),
    "no infill": (InfillProcessor, "_sure", lambda _, p, __: p),
    "tokens that begin others": (InfillProcessor, "_merge", nothing),
    "a stop text that is shown in part": (TextStream, "_doubtful", lambda _: 0),
    "characters that are cut at tokens": (TextStream, "feed", by_tokens),
    "lines without a limit": (LineLimits, "within", lambda _, text: text),
    "log-probabilities that are raw": (TokenScorer, "at", always_raw),
    "an alternative too few": (TokenScorer, "drawn", without_the_last),
    "drafts of any length": (Request, "_room", any_length),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_batches_finds(defect: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place, name, instead = DEFECTS[defect]
    monkeypatch.setattr(place, name, instead)
    assert finds(tmp_path, defect)


XTC = dataclasses.replace(tables.WARM, xtc_probability=0.5, xtc_threshold=0.15)
MIROSTAT = dataclasses.replace(tables.WARM, mirostat=2, mirostat_tau=1.2, mirostat_eta=1.0)


@pytest.mark.parametrize(("settings", "defect"), [(XTC, "no XTC"), (MIROSTAT, "a mu that stays")])
def test_batch_chances_finds(
    settings: Sampling, defect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wishes = (dataclasses.replace(SAMPLED, sampling=settings), SAMPLED)
    case = dataclasses.replace(SHARED, wishes=wishes)
    assert p_values(case, 300, 0)[0] > FALSE_ALARM
    monkeypatch.setattr(*DEFECTS[defect])
    assert p_values(case, 300, 0)[0] < 1e-9


# -- on real models --------------------------------------------------------------------------------

ON_MODELS: dict[str, tuple[Callable[[Request, Draft], bool], tuple[int, ...]]] = {
    "a grammar": (lambda r, _: ruled(r), (2, 6)),
    "a prediction": (WINS["a prediction"], (6, 7)),
    "an earlier request": (WINS["an earlier request"], (52, 53)),
    "further samplers": (lambda r, _: sampling(r).chained, (3, 6)),
    "a request beside others": (lambda r, _: r.seq > 0, (3, 6)),
}
"""Where a draft wins, and cases in which that shows."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("where", ON_MODELS)
def test_a_draft_that_wins_is_found_on_real_models_under(
    where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    applies, seeds = ON_MODELS[where]
    let_win(applies, monkeypatch)
    search = SEARCHES["models"](tmp_path)
    assert any(is_wrong(search, seed) for seed in seeds)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("place", "name", "instead", "seeds"),
    [
        (Blend, "owner", lambda _, owner: owner, (46, 49)),
        (TokenScorer, "at", of_the_next_row, (1, 2)),
    ],
    ids=["a cache that all adapters share", "log-probabilities of another row"],
)
def test_models_finds(
    place: type,
    name: str,
    instead: object,
    seeds: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(place, name, instead)
    search = SEARCHES["models"](tmp_path)
    assert any(is_wrong(search, seed) for seed in seeds)
