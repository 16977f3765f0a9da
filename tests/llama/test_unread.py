"""Unread tokens: how many there may be, and what happens if a pass fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import memory_files
import numpy as np
import pytest

from localspec.core.errors import AuditError, DecodeError, Interrupted
from localspec.core.logits import GREEDY, LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.target import Work
from localspec.core.values import Draft, Logits, Proposal, chain_parents, no_draft
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.drafters.base import Ask, Drafter, Off
from localspec.llama.context import Context
from localspec.llama.limits import ROLLBACK
from localspec.llama.model import Model
from localspec.llama.target import LlamaTarget
from localspec.models.gguf.sizes import OUTPUTS
from localspec.policy import Policy
from localspec.policy.simple import Plain
from localspec.testing import Fixed

PROMPT = np.random.default_rng(0).integers(3, 250, 40).tolist()
BATCH = 128
WRONG = ROLLBACK + 2
"""Rejected tokens: more than any recurrent state here is taken back by."""


@dataclass
class Stack:
    """A target of one kind of memory; every pass that it makes is written down."""

    model: Model
    context: Context
    target: LlamaTarget
    passes: list[int]


@pytest.fixture(params=["recurrent", "hybrid"])
def stack(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stack]:
    yield from made(request.param, tmp_path, monkeypatch)


@pytest.fixture
def branching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    yield from made("full", tmp_path, monkeypatch, branches=8)


def made(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, branches: int = 0
) -> Iterator[Stack]:
    model = Model(memory_files.KINDS[kind](folder / f"{kind}.gguf"))
    rollback = 0 if branches else ROLLBACK
    context = Context(
        model, n_ctx=512, n_batch=BATCH, branches=branches, rollback=rollback, threads=1
    )
    passes: list[int] = []
    decode = context._decode

    def watched(n: int, *more: object) -> None:
        passes.append(n)
        decode(n, *more)

    monkeypatch.setattr(context, "_decode", watched)
    yield Stack(model, context, LlamaTarget(context), passes)
    context.close()
    model.close()


def chain(tokens: Sequence[int]) -> Draft:
    ids = np.array(tokens, np.int32)
    return Draft(ids, chain_parents(len(ids)), Proposal.DETERMINISTIC, None, "test")


def alone(model: Model, tokens: Sequence[int]) -> Logits:
    """Logits after the tokens, read into a fresh context."""
    context = Context(model, n_ctx=512, n_batch=BATCH, threads=1)
    try:
        context.read(0, tokens[:-1])
        return context.forward([(0, [tokens[-1]], 1)])[0][0].copy()
    finally:
        context.close()


def leave_unread(stack: Stack, n: int = 45) -> list[int]:
    """Have a draft accepted but for its last tokens; what is known then."""
    stack.target.read(0, PROMPT[:-1])
    draft = [7 + i % 200 for i in range(n)]
    stack.target.score([Work(0, PROMPT[-1], chain(draft))])
    stack.target.keep(0, range(n - WRONG))
    return [*PROMPT, *draft[:-WRONG]]


def next_reply(stack: Stack, known: Sequence[int], prompt: Sequence[int], same: int) -> Logits:
    """Logits after another prompt, whose beginning is read only where the cache lacks it."""
    held = list(known[: stack.target.length(0)])
    try:
        stack.target.truncate(0, min(same, len(held)))
    except DecodeError:
        stack.target.truncate(0, 0)
    stack.target.read(0, prompt[stack.target.length(0) : -1])
    (scores,) = stack.target.score([Work(0, prompt[-1], no_draft("test"))])
    return scores.logits[0]


def test_after_an_interrupt_the_next_reply_is_right(stack: Stack) -> None:
    known = leave_unread(stack)
    stack.context.stop.set()
    try:
        stack.target.score([Work(0, 9, chain([11] * 45))])
    except Interrupted:
        pass
    else:
        stack.target.keep(0, ())
    stack.context.stop.clear()
    prompt = [*PROMPT[:20], 33, 34]
    row = next_reply(stack, [*known, 9], prompt, same=20)
    np.testing.assert_allclose(row, alone(stack.model, prompt), atol=0.02)


def test_a_pass_that_fails_takes_what_is_unread_with_it(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = leave_unread(stack, 12)

    def fails(*_: object) -> None:
        raise DecodeError("llama.cpp failed")

    with monkeypatch.context() as patch:
        patch.setattr(stack.context, "_decode", fails)
        with pytest.raises(DecodeError, match=r"llama\.cpp failed"):
            stack.target.score([Work(0, 9, chain([11] * 12))])
    assert stack.target.length(0) == stack.context.length(0) == 0
    prompt = [*PROMPT[:20], *range(30, 60)]
    row = next_reply(stack, known, prompt, same=20)
    np.testing.assert_allclose(row, alone(stack.model, prompt), atol=0.02)
    stack.target.keep(0, ())
    stack.target.audit(0)


class AllButTheLast(Drafter):
    """Drafts what plain decoding says, but for the last tokens of each draft."""

    name = "almost"

    def __init__(self, right: Sequence[int]) -> None:
        self._right = right

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        (ask,) = asks
        tokens = [*self._right[ask.position : ask.position + ask.budget.depth]]
        if not tokens:
            return [no_draft(self.name)]
        wrong = [(token + 1) % 250 for token in tokens[-WRONG:]]
        return [chain([*tokens[:-WRONG], *wrong])]


def decoded(stack: Stack, drafter: object, policy: Policy, n: int = 200) -> list[int]:
    stack.target.truncate(0, 0)
    stack.target.read(0, PROMPT[:-1])
    processor = LogitsProcessor(GREEDY, stack.model.n_vocab)
    request = Request(0, list(PROMPT), processor, Noise(0), n)
    while request.running:
        decode_round([request], stack.target, drafter, policy)
    return request.tokens


@pytest.mark.parametrize("k", [9, 20, 40])
def test_what_is_unread_does_not_pile_up(stack: Stack, k: int) -> None:
    plain = decoded(stack, Off(), Plain("test"))
    stack.passes.clear()
    assert decoded(stack, AllButTheLast(plain), Fixed(k)) == plain
    assert max(stack.passes[1:]) <= OUTPUTS  # the first one reads the prompt


def test_the_audit_sees_a_cache_that_is_not_what_it_is_taken_for(stack: Stack) -> None:
    leave_unread(stack, 12)
    stack.target.audit(0)
    stack.context.truncate(0, 0)
    with pytest.raises(AuditError, match="0 tokens"):
        stack.target.audit(0)


def test_the_audit_sees_unread_tokens_without_bound(stack: Stack) -> None:
    leave_unread(stack, 12)
    stack.target._known[0].unread = [5] * stack.context.n_batch
    with pytest.raises(AuditError, match="read again"):
        stack.target.audit(0)


def test_the_audit_sees_a_branch_that_was_left_behind(branching: Stack) -> None:
    side_path(branching, 3)
    branching.target.audit(0)
    branching.context._branches.shared[0] = 10
    with pytest.raises(AuditError, match="expected 10"):
        branching.target.audit(0)


def side_path(stack: Stack, n: int) -> None:
    """Keep n tokens of a side branch, which are then unread."""
    stack.target.read(0, PROMPT[:-1])
    tokens = np.arange(10, 11 + n, dtype=np.int32)
    parents = np.array([-1, -1, *range(1, n)], np.int32)
    tree = Draft(tokens, parents, Proposal.DETERMINISTIC, None, "test")
    stack.target.score([Work(0, PROMPT[-1], tree)])
    stack.target.keep(0, range(1, n + 1))


def test_no_pass_that_decodes_is_so_wide_that_another_kernel_computes_it(branching: Stack) -> None:
    """llama.cpp's CPU backend computes attention by tiles from 64 tokens on."""
    side_path(branching, 12)
    branching.passes.clear()
    parents = np.array([-1, -1, *range(58)], np.int32)
    tree = Draft(np.full(60, 9, np.int32), parents, Proposal.DETERMINISTIC, None, "test")
    branching.target.score([Work(0, 8, tree)])
    branching.target.keep(0, ())
    assert sum(branching.passes) == 12 + 1 + 60
    assert max(branching.passes) < 64


def test_a_prompt_is_read_in_the_passes_of_plain_decoding_whatever_is_unread(
    branching: Stack,
) -> None:
    side_path(branching, 9)
    branching.passes.clear()
    branching.target.read(0, [20] * 60)
    assert branching.passes == [9, 60]


def test_the_end_of_a_prompt_is_read_in_the_pass_of_its_last_token(branching: Stack) -> None:
    target = branching.target
    target.read(0, PROMPT[:5])
    branching.passes.clear()
    assert target.most_along(0) == branching.context.n_batch - 1
    target.read_along(0, PROMPT[5:-1])
    assert target.length(0) == len(PROMPT) - 1
    branching.context.stop.set()
    with pytest.raises(Interrupted):
        target.score([Work(0, PROMPT[-1], no_draft("test"))])
    branching.context.stop.clear()
    target.audit(0)
    (found,) = target.score([Work(0, PROMPT[-1], no_draft("test"))])
    row = found.logits[0].copy()
    target.keep(0, ())
    target.audit(0)
    assert branching.passes == [len(PROMPT) - 5] * 2
    np.testing.assert_allclose(row, alone(branching.model, PROMPT), atol=0.02)


def test_a_pass_of_their_own_that_fails_leaves_them_unread(branching: Stack) -> None:
    target = branching.target
    target.read(0, PROMPT[:5])
    target.read_along(0, PROMPT[5:-1])
    branching.context.stop.set()
    with pytest.raises(Interrupted):  # the rows of a draft do not wait for so many
        target.score([Work(0, PROMPT[-1], chain([11] * 4))])
    branching.context.stop.clear()
    assert target.length(0) == len(PROMPT) - 1
    target.audit(0)
    (found,) = target.score([Work(0, PROMPT[-1], no_draft("test"))])
    np.testing.assert_allclose(found.logits[0], alone(branching.model, PROMPT), atol=0.02)
    target.keep(0, ())
    target.audit(0)


@pytest.mark.parametrize("recorded", [-7, 0, 90])
@pytest.mark.parametrize("kind", ["full", "sliding", "recurrent", "hybrid"])
def test_an_emptied_sequence_is_sound_whatever_was_recorded(
    kind: str, recorded: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stack in made(kind, tmp_path, monkeypatch):
        stack.target.read(0, PROMPT[:-1])
        stack.context._lengths[0] = recorded
        with pytest.raises(AuditError):
            stack.target.audit(0)
        stack.target.truncate(0, 0)
        stack.target.audit(0)
        assert stack.context.length(0) == 0
        row = next_reply(stack, (), PROMPT, same=0)
        np.testing.assert_allclose(row, alone(stack.model, PROMPT), atol=0.02)


def test_a_branch_that_was_left_behind_goes_with_the_sequence(branching: Stack) -> None:
    side_path(branching, 3)
    branching.context._branches.shared[0] = 0
    branching.target.truncate(0, 0)
    branching.target.audit(0)


def test_no_sequence_is_cut_to_less_than_nothing(branching: Stack) -> None:
    branching.target.read(0, PROMPT[:9])
    with pytest.raises(AuditError, match="-1"):
        branching.target.truncate(0, -1)
    branching.target.audit(0)
    assert branching.target.length(0) == 9


def test_a_state_that_cannot_be_taken_back_reads_nothing_along(stack: Stack) -> None:
    assert stack.target.most_along(0) == 0


def test_rows_behind_unread_tokens_are_right_where_llama_cpp_gives_the_first_ones(
    tmp_path: Path,
) -> None:
    model = Model(memory_files.write_cogvlm(tmp_path / "every.gguf"))
    context = Context(model, n_ctx=128, branches=8, threads=1)
    plain = Context(model, n_ctx=128, threads=1)
    target = LlamaTarget(context)
    target.read(0, PROMPT[:10])
    beside = np.array([50, 60, 61], np.int32), np.array([-1, -1, 1], np.int32)
    target.score([Work(0, PROMPT[10], Draft(*beside, Proposal.DETERMINISTIC, None, "test"))])
    target.keep(0, [1, 2])  # a side branch: its tokens are read again
    (found,) = target.score([Work(0, 70, chain([80, 81]))])
    plain.read(0, [*PROMPT[:11], 60, 61])
    wanted = [plain.forward([(0, [token], 1)])[0][0].copy() for token in (70, 80, 81)]
    assert np.abs(found.logits - np.array(wanted)).max() < 0.01
    context.truncate(0, 0)
    (last,) = context.forward([(0, [*PROMPT[:11], 60, 61, 70], 1)])
    assert np.abs(last[0] - wanted[0]).max() < 0.01
    context.close()
    plain.close()
    model.close()
