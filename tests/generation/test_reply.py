"""Prefill, replies and examined positions on a target that is a table: no llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import ruled
import tables
from runnables import Costs, Hooked, Pair, V, letters

from localspec.core.adapter_list import AS_LOADED
from localspec.core.errors import AuditError, Interrupted, NotNumbersError, UsageError
from localspec.core.events import Finished, Notice, Reading, Reply, Token
from localspec.core.interrupt import Interrupt
from localspec.core.logits import GREEDY, LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.reply_request import ReplyRequest
from localspec.core.values import Proposal
from localspec.drafters.base import Ask, Committed, Drafter, Off
from localspec.drafters.lookup.ngram import NGram
from localspec.drafters.model.chain import ChainDrafter
from localspec.generation import examine
from localspec.generation.examine import examination
from localspec.generation.part_sizes import PART
from localspec.generation.scheduler import Scheduler
from localspec.policy.simple import Plain
from localspec.testing import Fixed, TableModel

TABLE = tables.random_table(31, v=V)
PROMPT = [int(i) for i in np.random.default_rng(0).integers(0, V, 3 * PART)]


class Counting(Hooked):
    """Records what was read."""

    def __init__(self, capacity: int = 4096, *, cuts: bool = True) -> None:
        super().__init__(TABLE, capacity, cuts_anywhere=cuts)
        self.parts: list[list[int]] = []

    @property
    def tokens_read(self) -> list[int]:
        return [token for part in self.parts for token in part]

    def read(self, seq: int, tokens: Sequence[int]) -> None:
        self.parts.append(list(tokens))
        super().read(seq, tokens)


class Bench:
    """A scheduler of one sequence of a table."""

    def __init__(
        self, target: Counting, drafter: Drafter | None = None, costs: Costs | None = None
    ) -> None:
        self.target, self.drafter = target, drafter or Off()
        self.scheduler = Scheduler(Pair(target, self.drafter, costs or Costs()))
        self.prefill = self.scheduler.prefill
        self.events: list[object] = []

    def reply(
        self,
        prompt: list[int],
        n: int = 12,
        *,
        stop: tuple[str, ...] = (),
        k: int = 0,
        interrupt: Interrupt | None = None,
    ) -> Reply:
        request = ReplyRequest(
            prompt=letters(prompt), sampling=GREEDY, max_tokens=n, stop=stop, seed=0
        )
        policy = Fixed(k) if k else Plain("test")
        self.events = [*self.scheduler.submit(request, interrupt or Interrupt(), policy)]
        last = self.events[-1]
        assert isinstance(last, Finished)
        return last.reply

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Token))


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every scheduler ends with its test."""
    made: list[Scheduler] = []
    begin = Scheduler.__init__

    def noted(self: Scheduler, *arguments: object, **more: object) -> None:
        begin(self, *arguments, **more)
        made.append(self)

    monkeypatch.setattr(Scheduler, "__init__", noted)
    yield
    for scheduler in made:
        scheduler.close()


def plain_text(prompt: list[int], n: int) -> str:
    tokens = list(prompt)
    for _ in range(n):
        tokens.append(int(np.argmax(TABLE(tokens))))
    return letters(tokens[len(prompt) :])


def a_prompt_whose_reply_is_long() -> list[int]:
    for first in range(V):
        prompt = [*PROMPT, first, (7 * first + 3) % V]
        reply = plain_text(prompt, 14)
        if "a" not in reply and len(set(reply)) > 4:
            return prompt
    raise AssertionError("no prompt of this table has a long reply")


LONG = a_prompt_whose_reply_is_long()


# -- prefill -----------------------------------------------------------------------------------


def test_a_prompt_is_read_in_parts_but_for_its_last_token() -> None:
    bench = Bench(Counting())
    reply = bench.reply(LONG)
    assert bench.target.tokens_read == LONG[:-1]
    assert [len(part) for part in bench.target.parts] == [PART, PART, PART + 1]
    readings = [event for event in bench.events if isinstance(event, Reading)]
    assert [r.done for r in readings] == [0, PART, 2 * PART, len(LONG)]
    assert reply.text == plain_text(LONG, 12)


def test_a_target_whose_passes_are_not_aborted_begins_with_short_parts() -> None:
    target = Counting()
    target.aborts = False
    bench = Bench(target)
    reply = bench.reply(LONG)
    assert [len(part) for part in bench.target.parts][:3] == [64, 64, 128]
    assert reply.text == plain_text(LONG, 12)


def test_a_second_turn_reads_only_what_is_new() -> None:
    bench = Bench(Counting())
    first = bench.reply(LONG)
    turn = [*LONG, *first.tokens, 5, 6, 7]
    bench.target.parts.clear()
    reply = bench.reply(turn)
    assert bench.target.tokens_read == turn[len(LONG) + len(first.tokens) - 1 : -1]
    assert reply.stats.cached_tokens == len(LONG) + len(first.tokens) - 1
    assert bench.target.cache[0] == [*turn, *reply.tokens][:-1]


def test_a_prompt_that_differs_in_the_middle_truncates_the_cache_there() -> None:
    bench = Bench(Counting())
    bench.reply(LONG)
    changed = [*LONG[:300], (LONG[300] + 1) % V, *LONG[301:]]
    bench.target.parts.clear()
    reply = bench.reply(changed)
    assert reply.stats.cached_tokens == 300
    assert bench.target.tokens_read == changed[300:-1]


def test_a_cache_that_cannot_be_cut_is_read_again_from_its_beginning() -> None:
    bench = Bench(Counting(cuts=False))
    bench.reply(LONG)
    bench.target.parts.clear()
    reply = bench.reply(LONG[:-5])
    assert reply.stats.cached_tokens == 0
    assert bench.target.tokens_read == LONG[:-6]


def test_the_same_prompt_again_reads_nothing() -> None:
    bench = Bench(Counting())
    first = bench.reply(LONG)
    bench.target.parts.clear()
    assert bench.reply(LONG).text == first.text
    assert bench.target.parts == []


def test_a_cache_shorter_than_believed_is_refused() -> None:
    bench = Bench(Counting())
    bench.reply(LONG)
    del bench.target.cache[0][10:]
    with pytest.raises(AuditError, match="target has cached 10 tokens"):
        bench.reply(LONG)


class ReadsAlong(Off):
    """Records what it is told of a prompt."""

    def __init__(self) -> None:
        self.followed: list[int] = []
        self.prompts = 0

    def prompt_read(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        self.followed.append(upto)

    def commit(self, committed: Sequence[Committed]) -> list[object]:
        self.prompts += len(committed[0].new_tokens) == len(committed[0].all_tokens)
        return []


@pytest.mark.parametrize(("k", "prompts"), [(0, 0), (3, 1)])
def test_drafters_follow_each_part_and_read_the_prompt_where_drafts_are_expected(
    k: int, prompts: int
) -> None:
    drafter = ReadsAlong()
    bench = Bench(Counting(), drafter)
    bench.reply(LONG, k=k)
    assert drafter.followed == [PART, 2 * PART, len(LONG) - 1]
    assert drafter.prompts == prompts


class ReadsLate(Off):
    """A drafter that computes: records how far it reads, and after how many rounds."""

    def __init__(self, target: Counting) -> None:
        self.reads: list[tuple[int, int]] = []
        self._read = self._rounds = 0
        target.before_score = self._round

    def _round(self) -> None:
        self._rounds += 1

    def unread(self, seq: int, tokens: Sequence[int]) -> int:
        return len(tokens) - 1 - self._read

    def read_missed(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        self.reads.append((upto, self._rounds))
        self._read = upto


def late(prompt: list[int], n: int, k: int) -> list[tuple[int, int]]:
    target = Counting()
    drafter = ReadsLate(target)
    Bench(target, drafter).reply(prompt, n, k=k)
    return drafter.reads


def test_a_draft_model_reads_the_end_of_a_prompt_after_the_first_token() -> None:
    assert late(PROMPT[:100], 12, 3) == [(100, 1)]
    assert late(PROMPT[: PART + 90], 12, 3) == [(PART, 0), (PART + 90, 1)]


def test_a_draft_model_does_not_read_for_a_reply_that_has_ended_or_is_plain() -> None:
    assert late(PROMPT[:100], 1, 3) == []
    assert late(PROMPT[:100], 12, 0) == []


def test_after_the_first_token_a_reply_is_drafted_for_and_is_that_of_plain_decoding() -> None:
    bench = Bench(Counting(), ChainDrafter(TableModel(TABLE), Proposal.COUPLED))
    reply = bench.reply(PROMPT[:100], 24, k=4)
    assert reply.text == plain_text(PROMPT[:100], 24)
    assert reply.origins[0] == "plain"
    assert reply.stats.accepted > 0
    assert reply.stats.rounds < 24


# -- interrupts --------------------------------------------------------------------------------


def test_an_interrupt_before_the_request_runs_ends_it_with_nothing_read() -> None:
    bench, interrupt = Bench(Counting()), Interrupt()
    interrupt.set()
    reply = bench.reply(LONG, interrupt=interrupt)
    assert (reply.finish_reason, reply.tokens, bench.target.parts) == ("interrupt", (), [])


def test_an_interrupt_within_prefill_keeps_the_parts_read_before() -> None:
    bench, interrupt = Bench(Counting()), Interrupt()
    bench.target.before_read = interrupt.set
    reply = bench.reply(LONG, interrupt=interrupt)
    bench.target.before_read = lambda: None
    assert reply.finish_reason == "interrupt"
    assert bench.prefill.sequences.tokens[0] == LONG[:PART]
    resumed = bench.reply(LONG)
    assert resumed.stats.cached_tokens == PART
    assert resumed.text == plain_text(LONG, 12)


def test_an_interrupt_while_decoding_keeps_the_tokens_emitted() -> None:
    bench, interrupt = Bench(Counting()), Interrupt()
    rounds: Iterator[int] = iter(range(100))

    def fourth_round() -> None:
        if next(rounds) == 3:
            interrupt.set()

    bench.target.before_score = fourth_round
    reply = bench.reply(LONG, interrupt=interrupt)
    bench.target.before_score = lambda: None
    assert (reply.finish_reason, len(reply.tokens)) == ("interrupt", 4)
    assert reply.text == plain_text(LONG, 4)
    assert bench.reply(LONG).finish_reason == "length"  # the next request is not affected


# -- the end of a reply ------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 4])
def test_a_stop_string_ends_the_reply_and_is_not_part_of_it(k: int) -> None:
    whole = plain_text(LONG, 12)
    stop = whole[5:8]
    drafter = ChainDrafter(TableModel(TABLE), Proposal.COUPLED) if k else None
    bench = Bench(Counting(), drafter)
    reply = bench.reply(LONG, stop=(stop,), k=k)
    assert reply.finish_reason == "stop"
    assert reply.text == bench.text == whole[: whole.index(stop)]
    assert len(reply.tokens) == whole.index(stop) + len(stop)


def test_text_held_back_for_a_stop_string_comes_with_the_last_token() -> None:
    whole = plain_text(LONG, 12)
    bench = Bench(Counting())
    reply = bench.reply(LONG, 6, stop=(whole[4:6] + "?",))
    assert reply.text == bench.text == whole[:6]


def test_a_reply_cut_by_the_context_says_so() -> None:
    bench = Bench(Counting(capacity=len(LONG) + 4))
    reply = bench.reply(LONG, 5)
    assert reply.finish_reason == "length"
    assert any("context" in notice for notice in bench.notices)


# -- notices -----------------------------------------------------------------------------------


class GivesUp(NGram):
    """Cannot draft."""

    @property
    def problem(self) -> str | None:
        return "the file is damaged"

    def propose(self, asks: Sequence[Ask]) -> list[object]:
        return Off().propose(asks)


def test_a_problem_is_reported_once_for_all_replies() -> None:
    error = OSError(28, "No space left on device")
    bench = Bench(Counting(), GivesUp(), Costs(error=error))
    bench.reply(LONG, k=2)
    assert bench.notices.count("the file is damaged") == 1
    assert sum("No space left on device" in notice for notice in bench.notices) == 1
    bench.reply(LONG, k=2)
    assert bench.notices == []


# -- examined positions ------------------------------------------------------------------------


def test_what_an_examined_position_lacks_is_read_in_parts() -> None:
    bench = Bench(Counting(), ChainDrafter(TableModel(TABLE), Proposal.COUPLED))
    before = [*LONG] * (1 + 200 // len(LONG))
    parts = 0
    while (found := bench.prefill.row_after(before, [0], "", AS_LOADED)) is None:
        parts += 1
    assert parts > 2
    assert np.array_equal(found[1], TABLE(before))


class Behind(ChainDrafter):
    """Records how much it is asked to read at a time."""

    def read_missed(self, seq: int, tokens: Sequence[int], upto: int) -> None:
        before = self.unread(seq, tokens)
        super().read_missed(seq, tokens, upto)
        PARTS.append(before - self.unread(seq, tokens))


PARTS: list[int] = []


def test_what_the_draft_lacks_is_read_in_parts_too() -> None:
    PARTS.clear()
    drafter = Behind(TableModel(TABLE), Proposal.COUPLED)
    bench = Bench(Counting(), drafter)
    before = [*LONG] * (1 + 1200 // len(LONG))
    while bench.prefill.row_after(before, [0], "", AS_LOADED) is None:
        assert len(PARTS) < 100
    assert sum(PARTS) + drafter.unread(0, before) >= 1200
    assert 0 < max(PARTS) <= 256
    assert drafter.unread(0, before) <= 256


def test_logits_that_are_not_numbers_are_refused_where_a_position_is_examined() -> None:
    """A reply may be right beside them: its grammar has them masked."""
    row = TABLE(LONG).copy()
    row[3] = np.nan
    with pytest.raises(NotNumbersError):
        examination(
            row,
            None,
            LONG,
            0,
            None,
            processor=LogitsProcessor(GREEDY, V, ruled.Ruled(lambda _: {0, 1}, len(LONG))),
            noise=Noise(0),
            text=str,
            cancelled=lambda: False,
        )


def test_the_gap_to_a_rival_ends_with_its_client_and_after_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It went through all steps, 17 s with typical-p and 151,936 tokens, for nobody."""
    row, asked = TABLE(LONG), list[int]()
    far = int(np.argmin(row))

    def cancelled() -> bool:
        asked.append(0)
        return len(asked) == 5

    def gap(leaves: Callable[[], bool]) -> float | None:
        processor, noise = LogitsProcessor(tables.WARM, V), Noise(0)
        return examination(
            row, None, LONG, far, 0, processor=processor, noise=noise, text=str, cancelled=leaves
        ).gap

    assert gap(lambda: False)
    with pytest.raises(Interrupted):
        gap(cancelled)
    assert len(asked) == 5
    monkeypatch.setattr(examine, "_GAP_S", -1.0)
    with pytest.raises(UsageError, match="how far these two tokens are apart"):
        gap(lambda: False)


def test_an_examined_position_has_the_probabilities_of_target_and_draft() -> None:
    other = tables.random_table(32, v=V)
    drafter = ChainDrafter(TableModel(other), Proposal.COUPLED)
    bench = Bench(Counting(), drafter)
    first = bench.reply(LONG)
    before = [*LONG, *first.tokens[:5]]
    while (place := bench.prefill.row_after(before, [0], "", AS_LOADED)) is None:
        pass
    seq, row = place
    found = examination(
        row,
        drafter.logits(seq, before),
        before,
        first.tokens[5],
        None,
        processor=LogitsProcessor(tables.WARM, V),
        noise=Noise(0),
        text=lambda token: chr(ord("a") + token),
        cancelled=lambda: False,
    )
    processor = LogitsProcessor(tables.WARM, V)
    p, q = processor(TABLE(before), before), processor(other(before), before)
    assert found.chosen.p == pytest.approx(p.probability(first.tokens[5]))
    assert found.chosen.q == pytest.approx(q.probability(first.tokens[5]))
    assert found.candidates[0].token == int(np.argmax(TABLE(before)))
    assert bench.prefill.sequences.tokens[0] == before
    assert bench.reply(LONG).text == first.text  # the cache is as good as before
