"""The searches for wrong tokens and wrong passes: their first seeds, and that each finds a defect
that was put in its way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tables
from frequencies import FALSE_ALARM

from faults import batch_chances, guests
from faults.registry import SEARCHES
from faults.runner import Runner
from localspec.core import kernel
from localspec.core.emitted import TokenLogprobs
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise, Stream
from localspec.core.values import (
    Distribution,
    Draft,
    Logits,
    Proposal,
    TargetRows,
    Verdict,
    no_draft,
)
from localspec.decode import verifiers
from localspec.decode.judged import CachedRows
from localspec.decode.logprobs import TokenScorer
from localspec.decode.request import Request
from localspec.decode.verifiers import VERIFIERS, Match
from localspec.drafters.base import Ask
from localspec.drafters.model.tree import TreeDrafter
from localspec.llama import pass_shapes
from localspec.llama.pass_layout import PassTimes, padded
from localspec.llama.team import team

FIRST = {"tables": 20, "batches": 60, "batch_chances": 1, "passes": 150}
"""Cases of each search that are quick enough for every run."""


def found(name: str, seeds: int, folder: Path) -> list[str]:
    told: list[str] = []
    runner = Runner({name: SEARCHES[name](folder)}, told.append)
    for seed in range(seeds):
        runner.one(name, seed)
    return told


@pytest.mark.parametrize("name", FIRST)
def test_the_first_seeds_find_nothing(name: str, tmp_path: Path) -> None:
    assert found(name, FIRST[name], tmp_path) == []


def boundless(
    rows: Mapping[int, int],
    room: Mapping[int, int],
    times: PassTimes,
    idle: Sequence[int] = (),
    *,
    most: int,
) -> dict[int, int]:
    """Pads as far as the streams have room, as it was once."""
    return padded(rows, room, times, idle, most=1 << 30)


def test_passes_that_are_padded_beyond_the_batch_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pass_shapes, "padded", boundless)
    assert any("this context takes" in told for told in found("passes", 12, tmp_path))


def test_drafts_that_share_too_little_of_a_pass_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a cut into several passes, drafts that are longer than their share would not fit."""
    monkeypatch.setattr(pass_shapes.PassShapes, "groups", lambda _self, work: [[*work]])
    assert found("passes", 20, tmp_path)


# -- several requests on tables ------------------------------------------------------------------


class Lax(Match):
    """Takes the first drafted token whatever the target says."""

    def __call__(
        self, draft: Draft, rows: TargetRows, noise: Noise, position: int, ends: Container[int] = ()
    ) -> Verdict:
        found = super().__call__(draft, rows, noise, position, ends)
        if found.path or not len(draft):
            return found
        return dataclasses.replace(found, token=int(draft.tokens[0]))


def without_the_draft(self: CachedRows, i: int) -> Distribution:
    """Penalties and grammars that do not see the drafted tokens before a row."""
    return self._processor(self._logits[i], self._tokens[: self._length])


def of_the_next_row(
    self: TokenScorer, i: int, token: int, logits: Logits, p: TargetRows
) -> TokenLogprobs:
    """Log-probabilities of a row too far on."""
    return self.scored(logits[min(i + 1, len(logits) - 1)], token)


def for_all(_self: Request, step: Callable[[], object]) -> object:
    """What fails for one request fails for all."""
    return step()


def by_place(self: Noise, position: int, stream: Stream, index: int = 0) -> int:
    """Noise that is that of all requests."""
    return Noise(0).key(position, stream, index) if self.seed else NOISE_KEY(self, position, stream)


NOISE_KEY = Noise.key

DEFECTS = {
    "a verifier that lets the draft win": (VERIFIERS, "match", Lax()),
    "rows that do not see the draft": (CachedRows, "_compute", without_the_draft),
    "log-probabilities of another row": (TokenScorer, "at", of_the_next_row),
    "errors of one that reach all": (Request, "attempt", for_all),
    "noise that all requests share": (Noise, "key", by_place),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_batches_finds(defect: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place, name, wrong = DEFECTS[defect]
    if isinstance(place, dict):
        monkeypatch.setitem(place, name, wrong)
    else:
        monkeypatch.setattr(place, name, wrong)
    search = SEARCHES["batches"](tmp_path)
    assert any(is_wrong(search, seed) for seed in range(40))


def test_batches_finds_rows_that_are_mixed_up_where_several_are_processed_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if kernel.loaded() is None or team(2) is None:
        pytest.skip("the kernel is not compiled, or llama.cpp computes without OpenMP")
    ahead = LogitsProcessor.ahead
    monkeypatch.setattr(LogitsProcessor, "ahead", lambda self, rows: ahead(self, rows)[::-1])
    search = SEARCHES["batches"](tmp_path)
    assert any(is_wrong(search, seed) for seed in range(200) if search.case(seed).together > 1)


def is_wrong(search: object, seed: int) -> bool:
    try:
        return search.wrong(search.case(seed)) is not None
    except Exception:  # noqa: BLE001 - whatever it is, it is a fault: see `Runner`
        return True


# -- distributions -------------------------------------------------------------------------------

SAMPLED = guests.Wish(
    prompt=(0, 1),
    seed=0,
    sampling=tables.WARM,
    verifier="rejection",
    limit=2,
    ends=frozenset(),
    rule=None,
    defect=None,
    at=0,
    rounds=None,
    own=False,
)
RULED = dataclasses.replace(SAMPLED, rule=5, sampling=dataclasses.replace(tables.WARM, top_p=0.9))
SHARED = batch_chances.Case(
    seed=4,
    v=5,
    sharpness=1.0,
    likeness=1.0,
    drafters=("sampled chain",),
    nodes=3,
    leaves=1,
    wishes=(SAMPLED, RULED, dataclasses.replace(SAMPLED, verifier="match")),
)
"""Sampled drafts, that are unlike the target, in every request."""


DRAWS = 800
"""Draws for a test of what is right, which makes two tests of `FALSE_ALARM` each."""
WRONG = 500
"""By 400, each wrong q below has p < 1e-10, from either of two streams of noise, and 1e-9 is asked
for."""


def least_p(case: batch_chances.Case = SHARED, draws: int = DRAWS) -> float:
    return min(batch_chances.p_values(case, draws, 0)[:2])


@pytest.mark.parametrize("shape", ["sampled chain", "distinct tree", "chain"])
def test_rejection_in_a_batch_is_exact_for_sampled_drafts(shape: str) -> None:
    assert least_p(dataclasses.replace(SHARED, drafters=(shape,))) > FALSE_ALARM


STUCK = dataclasses.replace(
    SHARED,
    seed=84,
    v=4,
    nodes=4,
    leaves=4,
    wishes=(dataclasses.replace(SAMPLED, rule=933, limit=3),),
    lacks=0,
)
"""After token 2 the grammar allows token 0 alone, which no draft proposes."""


def stuck_p(drafter: str) -> float:
    return batch_chances.p_values(dataclasses.replace(STUCK, drafters=(drafter,)), 1400, 0)[0]


@pytest.mark.parametrize("drafter", ["sampled chain", "distinct tree", "chain", "tree"])
def test_what_may_follow_a_drawn_token_changes_nothing_of_its_chances(drafter: str) -> None:
    assert stuck_p(drafter) > FALSE_ALARM


@pytest.mark.parametrize("drafter", ["sampled chain", "distinct tree", "tree"])
def test_a_draft_that_is_dropped_for_what_was_drawn_is_found(
    drafter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be proposed after a token of it, so the whole draft is thrown away."""
    kind = guests.Shaped if drafter in tables.SHAPES else TreeDrafter
    grown, q, stuck = kind._one, kind._q, list[bool]()

    def seen(self: Any, *place: Any) -> Distribution | None:
        found: Distribution | None = q(self, *place)
        stuck.append(found is None)
        return found

    def dropped(self: Any, ask: Ask) -> Draft:
        stuck.clear()
        draft: Draft = grown(self, ask)
        return no_draft(self.name) if any(stuck) else draft

    monkeypatch.setattr(kind, "_q", seen)
    monkeypatch.setattr(kind, "_one", dropped)
    assert stuck_p(drafter) < 1e-6


ONE_OF = verifiers._proposal_of


def one_hot(draft: Draft, earlier: list[int], child: int) -> Distribution:
    """q is taken to be certain of the drafted token."""
    return ONE_OF(dataclasses.replace(draft, probs=None), earlier, child)


def flat(draft: Draft, earlier: list[int], child: int) -> Distribution:
    """q is taken to be the same for all tokens of its support."""
    q = ONE_OF(draft, earlier, child)
    return Distribution(q.ids, np.full(len(q.ids), 1 / len(q.ids)))


def warm(draft: Draft, earlier: list[int], child: int) -> Distribution:
    """q of another temperature than the token was drawn at."""
    q = ONE_OF(draft, earlier, child)
    sharp = q.probs**4
    return Distribution(q.ids, sharp / sharp.sum())


def test_q_taken_as_certain_changes_no_distribution() -> None:
    """It is no negative control: whatever token is drafted, without regard to the target's noise,
    one that is accepted with probability p(x), and otherwise drawn from p without x, follows p.
    It costs acceptance alone. Exactly, for every drafted token:
    """
    p = Distribution(np.arange(4, dtype=np.int32), np.array([0.4, 0.3, 0.2, 0.1]))
    for x in range(4):
        q = Distribution(np.array([x], np.int32), np.ones(1))
        left = verifiers.residual(p, q)
        emitted = [
            p.probability(y) * (y == x) + (1 - p.probability(x)) * left.probability(y)
            for y in range(4)
        ]
        assert emitted == pytest.approx(p.probs)


def test_q_taken_as_certain_is_found_exact_by_frequencies_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verifiers, "_proposal_of", one_hot)
    assert least_p() > FALSE_ALARM


@pytest.mark.parametrize("wrong", [flat, warm])
def test_another_q_than_the_one_drawn_from_is_found(
    wrong: Callable[..., Distribution], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifiers, "_proposal_of", wrong)
    assert least_p(draws=WRONG) < 1e-9


def test_a_q_that_knows_no_grammar_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The draft is drawn under the mask, and q is taken from before it."""

    def unmasked(self: guests.Shaped, ask: Ask) -> Draft:
        draft = SHAPED(self, ask)
        if draft.probs is None or not len(draft):
            return draft
        free = LogitsProcessor(ask.processor.sampling, SHARED.v)
        paths = [draft.prefix(int(parent)) for parent in draft.parents]
        probs = tuple(free(self._table([*ask.tokens, *path]), ()) for path in paths)
        return dataclasses.replace(draft, probs=probs)

    monkeypatch.setattr(guests.Shaped, "_one", unmasked)
    assert batch_chances.p_values(SHARED, DRAWS, 0)[1] < 1e-9


SHAPED = guests.Shaped._one


def test_noise_that_drafts_and_tests_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft that is drawn with the number that it is then tested with is accepted too often."""

    def coupled(q: Distribution, ask: Ask, position: int, node: int) -> list[int]:
        u = ask.noise.uniform(position, 0, Stream.ACCEPT)
        return [int(q.ids[min(int(q.probs.cumsum().searchsorted(u)), len(q.ids) - 1)])]

    monkeypatch.setitem(tables.SHAPES, "sampled chain", (coupled, Proposal.SAMPLED))
    assert least_p(draws=WRONG) < 1e-9


def test_batch_chances_finds_a_wrong_residual(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The search itself, not its test alone: it draws again, and has a bound to stay below."""
    monkeypatch.setattr(verifiers, "residual", lambda p, _: p)
    search = SEARCHES["batch_chances"](tmp_path)
    monkeypatch.setattr(batch_chances, "_DRAWS", 300)
    monkeypatch.setattr(batch_chances, "_AGAIN", 3)
    assert search.wrong(SHARED) is not None
