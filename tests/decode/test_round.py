"""The round's books: what ends a reply, what is kept, what is counted."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tables

from localspec.core.errors import AuditError, NotNumbersError
from localspec.core.logits import GREEDY, LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.round_counts import RoundCounts
from localspec.core.values import ROOT, Logits, Origin, Proposal, Tokens
from localspec.decode import round as decode
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.decode.verifiers import Match, Rejection, Verifier
from localspec.drafters.base import Off
from localspec.drafters.model.chain import ChainDrafter
from localspec.policy.costs import Costs
from localspec.policy.simple import FixedLength, Plain
from localspec.testing import Fixed, StopAt, TableModel, TableTarget

TABLE = tables.random_table(21, v=5)


def finished(
    limit: int = 30, k: int = 4, end: int | None = None, capacity: int = 1000
) -> tuple[Request, TableTarget]:
    """A greedy reply with a draft that is always right, so that every end lies inside a run."""

    target = TableTarget(TABLE, capacity=capacity)
    target.read(0, tables.PROMPT[:-1])
    request = Request(
        0,
        list(tables.PROMPT),
        LogitsProcessor(GREEDY, 5),
        Noise(0),
        limit,
        StopAt(end, ahead=False),
    )
    drafter = ChainDrafter(TableModel(TABLE), Proposal.COUPLED)
    while request.running:
        decode_round([request], target, drafter, Fixed(k))
    return request, target


@pytest.mark.parametrize("limit", range(1, 14))
def test_a_limit_inside_an_accepted_run_is_kept_to_the_token(limit: int) -> None:
    request, target = finished(limit)
    plain, _ = finished(limit, k=0)
    assert len(request.emitted) == limit
    assert request.tokens == plain.tokens
    assert target.cache[0] == request.tokens[:-1]
    assert request.finish == "length"


@pytest.mark.parametrize("k", range(8))
def test_nothing_follows_an_end_token(k: int) -> None:
    plain, _ = finished(40, k=0)
    end = plain.tokens[9]
    request, target = finished(40, k=k, end=end)
    assert request.finish == "stop"
    assert request.tokens[-1] == end
    assert request.tokens.count(end) == 1 + tables.PROMPT.count(end)
    assert target.cache[0] == request.tokens[:-1]
    tally = request.tally
    assert tally.accepted <= tally.verified <= tally.drafted
    own = tally.rounds - (request.emitted[-1].origin is Origin.ACCEPTED)
    assert len(request.emitted) == tally.accepted + own


@pytest.mark.parametrize("verifier", [Match(), Rejection()])
@pytest.mark.parametrize("ahead", [True, False])
def test_what_is_behind_the_end_of_a_reply_does_not_harm_it(
    verifier: Verifier, *, ahead: bool
) -> None:
    """Logits after a reply's end may be no numbers at all; plain decoding never asks for them. The
    verifier does where a text ends the reply, of which it is not told (``ahead``).
    """
    plain, _ = finished(40, k=0)
    end = plain.tokens[9]

    def mute(tokens: Tokens) -> Logits:
        behind = end in tokens[len(tables.PROMPT) :]
        return np.full(5, np.nan, np.float32) if behind else TABLE(tokens)

    target = TableTarget(mute)
    target.read(0, tables.PROMPT[:-1])
    request = Request(
        0,
        list(tables.PROMPT),
        LogitsProcessor(GREEDY, 5),
        Noise(0),
        40,
        StopAt(end, ahead=ahead),
        verifier=verifier,
    )
    drafter = ChainDrafter(TableModel(TABLE), Proposal.SAMPLED)
    while request.running:
        decode_round([request], target, drafter, Fixed(6))
    assert request.tokens == plain.tokens[: len(request.tokens)]
    assert request.tokens[-1] == end
    assert request.error is None


@pytest.mark.parametrize("verifier", [Match(), Rejection()])
@pytest.mark.parametrize("k", range(1, 7))
def test_a_reply_that_cannot_go_on_has_the_tokens_that_it_has_without_drafts(
    verifier: Verifier, k: int
) -> None:
    plain, _ = finished(40, k=0)
    upto = len(tables.PROMPT) + 9
    target = TableTarget(lambda t: np.full(5, np.nan, np.float32) if len(t) >= upto else TABLE(t))
    target.read(0, tables.PROMPT[:-1])
    request = Request(
        0, list(tables.PROMPT), LogitsProcessor(GREEDY, 5), Noise(0), 40, verifier=verifier
    )
    drafter = ChainDrafter(TableModel(TABLE), Proposal.SAMPLED)
    while request.running:
        decode_round([request], target, drafter, Fixed(k))
    assert isinstance(request.error, NotNumbersError)
    assert request.tokens == plain.tokens[:upto]


def test_the_only_request_of_a_round_fails_with_its_own_error_at_a_fixed_draft_length() -> None:
    """Its policy learns nothing from the round, and does not mind."""
    target = TableTarget(lambda _: np.full(5, np.nan, np.float32))
    target.read(0, tables.PROMPT[:-1])
    request = Request(0, list(tables.PROMPT), LogitsProcessor(GREEDY, 5), Noise(0), 9)
    drafter = ChainDrafter(TableModel(TABLE), Proposal.SAMPLED)
    assert decode_round([request], target, drafter, FixedLength(3, Costs({1: 0.01, 4: 0.02}))) == []
    assert isinstance(request.error, NotNumbersError)


def test_every_request_of_a_round_takes_as_long_as_the_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No matter where it stands in the list: each of them waits for all."""
    clock = itertools.count()
    monkeypatch.setattr(decode.time, "perf_counter", lambda: float(next(clock)))
    target = TableTarget(TABLE)
    requests = []
    for seq in range(3):
        target.read(seq, tables.PROMPT[:-1])
        processor = LogitsProcessor(GREEDY, 5)
        requests.append(Request(seq, list(tables.PROMPT), processor, Noise(0), 9))
    turns = decode_round(requests, target, Off(), Plain("test"))
    assert len({turn.figures.seconds for turn in turns}) == 1


def test_a_full_context_ends_the_draft_before_it_overflows() -> None:
    room = 20
    request, target = finished(limit=room - 1, capacity=room)
    assert len(target.cache[0]) <= room
    assert len(request.tokens) == len(tables.PROMPT) + room - 1


def test_positions_are_counted_once_each() -> None:
    request, _ = finished(30, k=3)
    assert request.tally.accepted_at == request.tally.judged_at
    assert sum(request.tally.accepted_at) == request.tally.accepted


def test_a_place_where_no_branch_of_a_tree_was_right_is_counted_as_missed() -> None:
    target, tally = TableTarget(TABLE), RoundCounts()
    drafter = tables.branching(tables.random_table(22, v=5), Proposal.COUPLED)
    for seed in range(8):
        target.truncate(0, 0)
        target.read(0, tables.PROMPT[:-1])
        request = Request(0, list(tables.PROMPT), LogitsProcessor(tables.WARM, 5), Noise(seed), 12)
        while request.running:
            for turn in decode_round([request], target, drafter, tables.Broad()):
                path, draft = turn.verdict.path, turn.draft
                tally.add(turn.figures)
                whole = len(turn.emitted) > len(path)
                further = bool(draft.children(path[-1] if path else ROOT))
                assert turn.figures.corrected == (whole and further)
    assert sum(tally.accepted_at) == tally.accepted
    assert 0 < min(tally.per_position) < 1


@pytest.mark.parametrize("k", range(2, 8))
def test_positions_beyond_the_end_are_not_judged(k: int) -> None:
    plain, _ = finished(30, k=0)
    tally = finished(30, k=k, end=plain.tokens[-1])[0].tally
    assert sum(tally.judged_at) == tally.verified
    assert tally.accepted_at == tally.judged_at


def test_requests_in_one_round_do_not_touch_each_other() -> None:
    """The same request gives the same text in any batch."""

    def run(seqs: list[int]) -> dict[int, list[int]]:
        target = TableTarget(TABLE)
        drafter = ChainDrafter(TableModel(TABLE), Proposal.COUPLED)
        requests = []
        for seq in seqs:
            prompt = [seq % 5, (3 * seq) % 5]
            target.read(seq, prompt[:-1])
            processor = LogitsProcessor(tables.WARM, 5)
            requests.append(Request(seq, prompt, processor, Noise(seq), 12))
        alive = requests
        while alive:
            decode_round(alive, target, drafter, Fixed(3))
            alive = [r for r in alive if r.running]
        return {r.seq: r.tokens for r in requests}

    together = run([1, 2, 3, 7])
    for seq in together:
        assert run([seq])[seq] == together[seq]


def test_the_audit_sees_a_lost_token() -> None:
    class Forgetful(TableTarget):
        def keep(self, seq: int, path: object) -> None:
            super().keep(seq, path)
            self.cache[seq].pop()

    target = Forgetful(TABLE)
    target.read(0, tables.PROMPT[:-1])
    request = Request(
        0,
        list(tables.PROMPT),
        LogitsProcessor(GREEDY, 5),
        Noise(0),
        9,
    )
    drafter = ChainDrafter(TableModel(TABLE), Proposal.COUPLED)
    assert decode_round([request], target, drafter, Fixed(2)) == []
    assert isinstance(request.error, AuditError)
    assert "target has cached" in str(request.error)
