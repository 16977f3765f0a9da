"""What one request brings upon itself ends that request and no other, after the tokens that plain
decoding would have emitted before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np
import pytest
import tables
from ruled import Ruled

from localspec.core.constraint import TokenMask
from localspec.core.emitted import LogprobsMode
from localspec.core.errors import (
    AuditError,
    ContextFullError,
    DecodeError,
    NotNumbersError,
    PassRefusedError,
)
from localspec.core.logits import GREEDY, LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.target import Work
from localspec.core.values import (
    Distribution,
    Draft,
    Logits,
    Proposal,
    Scores,
    Tokens,
    chain_parents,
)
from localspec.decode import judged
from localspec.decode import request as request_module
from localspec.decode.logprobs import TokenScorer
from localspec.decode.request import NEVER, ROWS_MOST_SECONDS, Request, StopRule
from localspec.decode.round import decode_round
from localspec.decode.verifiers import Match, Verifier
from localspec.drafters.base import Ask, Drafter, Off
from localspec.drafters.cascade import Cascade
from localspec.drafters.lookup.suffix import Suffix
from localspec.drafters.model.chain import ChainDrafter
from localspec.policy import Policy
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.simple import Plain
from localspec.policy.storage import Knowledge
from localspec.testing import Fixed, TableModel, TableTarget

V = 8
TABLE = tables.random_table(81, v=V)
DRAFT = tables.blend(TABLE, tables.random_table(82, v=V), 0.2)


def request(
    seq: int,
    constraint: Ruled | None = None,
    *,
    scorer: TokenScorer | None = None,
    stop: StopRule = NEVER,
    greedy: bool = False,
    verifier: Verifier | None = None,
) -> Request:
    return Request(
        seq,
        list(tables.PROMPT),
        LogitsProcessor(GREEDY if greedy else tables.WARM, V, constraint),
        Noise(seq),
        30,
        stop,
        verifier or Match(),
        scorer=scorer,
    )


def drafters() -> Drafter:
    return Cascade([ChainDrafter(TableModel(DRAFT), Proposal.COUPLED), Suffix(2)])


def run(
    requests: Sequence[Request],
    target: TableTarget | None = None,
    drafter: Drafter | None = None,
    policy: Policy | None = None,
) -> dict[int, list[int]]:
    """The tokens that each request was given, before it ended or failed."""
    target, drafter = target or TableTarget(TABLE), drafter or drafters()
    given: dict[int, list[int]] = {r.seq: [] for r in requests}
    for r in requests:
        target.read(r.seq, r.tokens[:-1])
    running = [*requests]
    while running:
        for result in decode_round(running, target, drafter, policy or Fixed(5)):
            given[result.request.seq] += [one.token for one in result.emitted]
        running = [r for r in running if r.running]
    for r in requests:
        assert (target.length(r.seq) == 0) is (r.error is not None)
    return given


def alone(one: Request) -> list[int]:
    return run([one], drafter=Off(), policy=Plain("test"))[one.seq]


class Broken(Ruled):
    """Any token may follow, and one of its methods fails from some place of the text on."""

    def __init__(self, method: str, error: Exception, after: int) -> None:
        super().__init__(lambda _: set(range(V)), len(tables.PROMPT))
        self._method, self._error = method, error
        self._from = len(tables.PROMPT) + after

    def _call(self, method: str, before: Sequence[int]) -> None:
        if method == self._method and len(before) >= self._from:
            raise self._error

    def mask(self, before: Sequence[int]) -> TokenMask | None:
        self._call("mask", before)
        return super().mask(before)

    def forced(self, before: Sequence[int]) -> list[int]:
        self._call("forced", before)
        return []

    def legal(self, before: Sequence[int], tokens: Sequence[int]) -> int:
        self._call("legal", before)
        return len(tokens)

    def over(self, before: Sequence[int]) -> bool:
        self._call("over", before)
        return False

    def expect(self, before: Sequence[int], draft: Draft) -> None:
        self._call("expect", before)

    def take(self, before: Sequence[int]) -> bool:
        self._call("take", before)
        return False


METHODS = ("mask", "take", "forced", "legal", "over", "expect")


@pytest.mark.parametrize("error", [AuditError("a defect"), ValueError("a defect")])
@pytest.mark.parametrize("after", [0, 1, 3, 7])
@pytest.mark.parametrize("method", METHODS)
def test_a_grammar_that_fails_ends_its_own_reply_alone(
    method: str, after: int, error: Exception
) -> None:
    requests = [request(0), request(1, Broken(method, error, after)), request(2, greedy=True)]
    fixed = tables.shaped_drafter("argmax chain", DRAFT)  # `legal` is asked for fixed drafts alone
    given = run(requests, drafter=fixed if method == "legal" else None)
    bad = requests[1]
    assert bad.error is error
    assert [requests[i].error for i in (0, 2)] == [None, None]
    for r in (requests[0], requests[2]):
        assert given[r.seq] == alone(request(r.seq, greedy=r.seq == 2))
    assert given[1] == alone(request(1))[: len(given[1])]


@pytest.mark.parametrize("after", [0, 1, 3, 7])
def test_tokens_before_the_one_that_a_grammar_fails_at_are_given_to_the_reader(after: int) -> None:
    bad = request(1, Broken("take", AuditError("a defect"), 1 + after))
    assert run([request(0), bad])[1] == alone(request(1))[:after]
    assert bad.tokens == [*tables.PROMPT, *alone(request(1))[:after]]


def spoilt(tokens: Tokens) -> Logits:
    """The last id, which the grammar forbids, is not a number from the sixth place on."""
    row = TABLE(tokens).copy()
    row[V - 1] = np.nan if len(tokens) >= len(tables.PROMPT) + 5 else row[V - 1]
    return row


@pytest.mark.parametrize("mode", ["raw", "processed"])
def test_raw_logprobs_cost_no_token_that_plain_decoding_gives(mode: LogprobsMode) -> None:
    """They see the id that is masked: plain decoding ends there too, and no earlier."""

    def own(seq: int) -> Request:
        rule = Ruled(lambda _: set(range(V - 1)), len(tables.PROMPT))
        return request(seq, rule, scorer=TokenScorer(2, mode, str), greedy=True)

    plain, drafted, other = own(1), own(1), request(0)
    right = run([plain], TableTarget(spoilt), Off(), Plain("test"))[1]
    drafter = ChainDrafter(TableModel(TABLE), Proposal.COUPLED)  # right as far as it can be
    found = run([drafted, other], TableTarget(spoilt), drafter)
    assert found[1] == right
    assert len(right) == (5 if mode == "raw" else 30)
    assert drafted.tally.accepted > 0
    assert isinstance(drafted.error, NotNumbersError) is (mode == "raw")
    assert type(drafted.error) is type(plain.error)


class Ends(StopRule):
    """A detokenizer that fails at one token."""

    def __init__(self, at: int) -> None:
        self._left = at

    def take(self, token: int) -> tuple[str, None]:
        self._left -= 1
        if self._left < 0:
            raise ValueError("no text")
        return "", None


@pytest.mark.parametrize("at", range(6))
def test_a_text_that_cannot_be_made_ends_its_own_reply_alone(at: int) -> None:
    requests = [request(0), request(1, stop=Ends(at))]
    given = run(requests)
    assert given[0] == alone(request(0))
    assert given[1] == alone(request(1))[:at]
    assert isinstance(requests[1].error, ValueError)


class Loses(TableTarget):
    """Keeps one token too few of a sequence, once."""

    done = False

    def keep(self, seq: int, path: Sequence[int]) -> None:
        super().keep(seq, path)
        if seq == 1 and self.length(1) > 12 and not self.done:
            self.done = True
            self.cache[1].pop()


def test_lengths_that_disagree_end_their_own_reply_alone() -> None:
    requests = [request(seq) for seq in range(3)]
    given = run(requests, Loses(TABLE))
    assert isinstance(requests[1].error, AuditError)
    for seq in (0, 2):
        assert requests[seq].error is None
        assert given[seq] == alone(request(seq))


class Outside(Drafter):
    """Drafts a token that there is not, for one request."""

    name = "outside"

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        ids = [np.array([99 if ask.seq == 1 else 1], np.int32) for ask in asks]
        kind = Proposal.DETERMINISTIC
        return [Draft(one, chain_parents(1), kind, None, self.name) for one in ids]


class Strict(TableTarget):
    """Refuses tokens that there are not, before anything is computed."""

    def score(self, work: Sequence[Work]) -> list[Scores]:
        if any(token >= V for w in work for token in w.draft.tokens):
            raise PassRefusedError("a token outside the vocabulary")
        return super().score(work)


def test_a_draft_that_makes_a_pass_impossible_ends_its_own_reply_alone() -> None:
    requests = [request(seq) for seq in range(3)]
    given = run(requests, Strict(TABLE), Outside())
    assert isinstance(requests[1].error, PassRefusedError)
    for seq in (0, 2):
        assert given[seq] == alone(request(seq))


class Fails(Drafter):
    """Fails for one request, or for all."""

    name = "fails"

    def __init__(self, fails: Callable[[Sequence[Ask]], Exception | None]) -> None:
        self._fails = fails

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        error = self._fails(asks)
        if error is not None:
            raise error
        return Off().propose(asks)


def test_a_drafter_that_fails_for_one_request_ends_that_one_alone() -> None:
    requests = [request(seq) for seq in range(3)]
    broken = Fails(lambda asks: KeyError("x") if any(a.seq == 1 for a in asks) else None)
    given = run(requests, drafter=broken)
    assert [type(r.error) for r in requests] == [type(None), KeyError, type(None)]
    assert given[2] == alone(request(2))


def test_a_pass_that_fails_ends_all_that_are_in_it() -> None:
    with pytest.raises(DecodeError):
        run([request(0), request(1)], drafter=Fails(lambda _: DecodeError("the device is lost")))


def test_a_draft_that_its_grammar_forbids_whole_is_none() -> None:
    """It has been cut to nothing, which is not the same as not having been cut."""
    only = Ruled(lambda _: {3, 4}, len(tables.PROMPT))
    one, target = request(0, only), TableTarget(TABLE)
    target.read(0, one.tokens[:-1])

    class Forbidden(Outside):
        def propose(self, asks: Sequence[Ask]) -> list[Draft]:
            kind = Proposal.DETERMINISTIC
            ids = np.array([5], np.int32)
            return [Draft(ids, chain_parents(1), kind, None, self.name) for _ in asks]

    (result,) = decode_round([one], target, Forbidden(), Fixed(3))
    assert len(result.draft) == 0


class Widths(TableTarget):
    """Notes how long drafts are."""

    def __init__(self) -> None:
        super().__init__(TABLE)
        self.drafted: list[int] = []

    def score(self, works: Sequence[Work]) -> list[Scores]:
        self.drafted += [len(work.draft) for work in works]
        return super().score(works)


def test_where_rows_take_long_drafts_are_as_short_as_the_others_can_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Samplers over a whole vocabulary: the rows of a long draft would hold up everybody."""
    drafter = ChainDrafter(TableModel(TABLE), Proposal.COUPLED)  # right as far as it can be
    quick, costly = Widths(), Widths()
    same = run([request(0)], quick, drafter, Fixed(12))
    clock, compute = [0.0], judged.CachedRows._compute

    def slow(rows: judged.CachedRows, i: int) -> Distribution:
        clock[0] += ROWS_MOST_SECONDS / 3.5
        return compute(rows, i)

    monkeypatch.setattr(judged.CachedRows, "_compute", slow)
    monkeypatch.setattr(request_module, "time", SimpleNamespace(thread_time=lambda: clock[0]))
    asked = request(0)
    found = run([asked], costly, ChainDrafter(TableModel(TABLE), Proposal.COUPLED), Fixed(12))
    assert found == same
    assert max(quick.drafted) == 12
    first, *later = costly.drafted
    assert first == 12  # nothing was known yet
    assert max(later) == 2
    assert asked.row_seconds == pytest.approx(ROWS_MOST_SECONDS / 3.5)


def test_a_full_context_ends_the_only_request_of_a_round() -> None:
    full = request(0)
    target = TableTarget(TABLE, capacity=len(full.tokens) - 1)
    policy = Controller(Knowledge({0: Costs({1: 1.0, 2: 1.1})}), ["suffix"], free=["suffix"])
    assert decode_round([full], target, Suffix(2), policy) == []
    assert isinstance(full.error, ContextFullError)
