"""Sequences that decode get neighbouring streams once gaps have cost as much as moving them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import memory_files
import numpy as np
import pytest

from localspec.core.errors import AuditError, DecodeError
from localspec.core.logits import GREEDY, LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.target import Work
from localspec.core.values import Draft, Proposal, chain_parents, no_draft
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.drafters.base import Off
from localspec.llama.context import Context
from localspec.llama.limits import ROLLBACK
from localspec.llama.model import Model
from localspec.llama.pass_layout import padded
from localspec.llama.pass_shapes import ObservedTimes
from localspec.llama.target import LlamaTarget
from localspec.policy.simple import Plain

N_SEQ = 6
PROMPTS = [np.random.default_rng(i).integers(3, 250, 9 + 7 * i).tolist() for i in range(N_SEQ)]
MOVES = {"full", "latent"}
"""Kinds of memory whose sequences are no more than their cells."""


class Weights:
    """Every part of a pass takes so many seconds for the weights, and a tenth of that for a row."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def pass_seconds(self, n: int) -> float:
        return self._seconds * (1 + n / 10)


class Fours:
    """Each part reads weights, then computes rows by fours, and what is left one by one."""

    def pass_seconds(self, n: int) -> float:
        return 0.5 + n // 4 + n % 4 * 0.4


@pytest.fixture(params=memory_files.KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path: Path = tmp_path_factory.mktemp("kinds") / f"{kind}.gguf"
    made = Model(memory_files.KINDS[kind](path))
    yield made
    made.close()


def context(model: Model, n_seq: int = N_SEQ) -> Context:
    return Context(model, n_ctx=128, n_seq=n_seq, n_batch=128, rollback=ROLLBACK, threads=1)


def begin(target: LlamaTarget, prompt: list[int], seq: int, n: int) -> Request:
    target.read(seq, prompt[:-1])
    return Request(seq, list(prompt), LogitsProcessor(GREEDY, 300), Noise(0), n)


def play(target: LlamaTarget, requests: list[Request]) -> None:
    while running := [r for r in requests if r.running]:
        decode_round(running, target, Off(), Plain("test"))
        for r in requests:
            target.audit(r.seq)


def alone(model: Model, prompt: list[int], n: int) -> list[int]:
    made = context(model, 1)
    target = LlamaTarget(made)
    request = begin(target, prompt, 0, n)
    play(target, [request])
    made.close()
    return request.tokens


def left_with_gaps(model: Model, seconds: float) -> tuple[Context, LlamaTarget, list[Request]]:
    """Six replies, of which the second, third and fifth end early."""
    made = context(model)
    target = LlamaTarget(made, times=Weights(seconds))
    requests = [
        begin(target, prompt, seq, 4 if seq in (1, 2, 4) else 30)
        for seq, prompt in enumerate(PROMPTS)
    ]
    play(target, requests)
    return made, target, requests


def test_replies_that_are_left_get_neighbouring_streams(model: Model, kind: str) -> None:
    made, _, requests = left_with_gaps(model, 10.0)
    streams = sorted(made.stream(seq) for seq in (0, 3, 5))
    if kind in MOVES:
        assert streams[-1] - streams[0] == 2
    else:
        assert [made.stream(seq) for seq in range(N_SEQ)] == [*range(N_SEQ)]
    for request, prompt in zip(requests, PROMPTS, strict=True):
        assert request.tokens == alone(model, prompt, 30)[: len(request.tokens)]
    made.close()


def test_a_gap_where_a_picture_is_being_read_stays(model: Model) -> None:
    """A stream with the first rows of a picture cannot be given away; none is exchanged."""
    made = context(model, 3)
    target = LlamaTarget(made, times=Weights(10.0))
    requests = [begin(target, PROMPTS[seq], seq, 8) for seq in (0, 2)]
    made.unfinished.add(1)
    play(target, requests)
    assert [made.stream(seq) for seq in range(3)] == [0, 1, 2]
    for request in requests:
        assert request.tokens == alone(model, PROMPTS[request.seq], 8)
    made.close()


def test_sequences_at_rest_keep_what_they_hold(model: Model) -> None:
    """The next turn of their conversations goes on from there."""
    made, target, requests = left_with_gaps(model, 10.0)
    again = requests[1]
    assert target.length(1) == len(again.tokens) - 1
    (scores,) = target.score([Work(1, again.tokens[-1], no_draft("test"))])
    follows = int(np.argmax(scores.logits[0]))
    assert [*again.tokens, follows] == alone(model, PROMPTS[1], 5)
    made.close()


def test_nothing_moves_where_that_costs_more_than_gaps(model: Model) -> None:
    made, _, _ = left_with_gaps(model, 1e-9)
    assert [made.stream(seq) for seq in range(N_SEQ)] == [*range(N_SEQ)]
    made.close()


def test_a_sequence_that_holds_tokens_does_not_change_its_stream_by_itself(model: Model) -> None:
    made = context(model, 2)
    LlamaTarget(made).read(1, PROMPTS[0])
    with pytest.raises(AuditError, match="holds tokens"):
        made.exchange(0, 1)
    made.close()


# -- widths that are quicker -------------------------------------------------------------------

ROOM = dict.fromkeys(range(8), 100)


def test_a_pass_is_widened_by_idle_neighbours_where_that_is_quicker() -> None:
    rows = {2: 1, 3: 1, 4: 1}
    assert padded(rows, ROOM, Fours(), idle=[0, 1, 5], most=512) == {**rows, 5: 1}
    assert padded(rows, ROOM, Fours(), idle=[0, 1], most=512) == {1: 1, **rows}
    assert padded(rows, ROOM, Fours(), idle=[0, 6], most=512) == rows  # no neighbours
    assert padded(rows, ROOM | {5: 0}, Fours(), idle=[5], most=512) == rows  # full
    assert padded(rows, ROOM, Weights(1.0), idle=[1, 5], most=512) == rows


def test_a_pass_with_gaps_is_widened_too() -> None:
    rows = {0: 1, 1: 1, 3: 1, 4: 1, 5: 1, 6: 1}
    assert padded(rows, ROOM, Fours(), idle=[2, 7], most=512) == dict.fromkeys(range(8), 1)


# -- times that are observed -------------------------------------------------------------------


def test_before_any_pass_was_seen_twice_all_cost_about_the_same() -> None:
    times = ObservedTimes()
    times.learn(4, 9.0)
    assert times.pass_seconds(1) == pytest.approx(times.pass_seconds(8), rel=0.01)
    assert times.pass_seconds(1) < times.pass_seconds(8)


def test_the_least_of_the_last_times_counts_and_other_widths_are_in_proportion() -> None:
    times = ObservedTimes()
    for seconds in (5.0, 1.0, 7.0):
        times.learn(2, seconds)
        times.learn(6, 3 * seconds)
    assert times.pass_seconds(2) == 1.0
    assert times.pass_seconds(4) == pytest.approx(2.0)
    assert times.pass_seconds(12) == pytest.approx(6.0)
    assert times.pass_seconds(1) == 1.0
    for _ in range(8):
        times.learn(2, 4.0)
    assert times.pass_seconds(2) == 4.0


@pytest.mark.parametrize("drafted", [0, 3, ROLLBACK])
def test_a_round_whose_second_pass_fails_leaves_nothing_of_the_first(
    model: Model, kind: str, drafted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Context(model, n_ctx=128, n_seq=2, n_batch=64, rollback=ROLLBACK, threads=1)
    target = LlamaTarget(made)
    for seq in range(2):
        target.read(seq, PROMPTS[seq][:-1])
    before, real, passes = [target.length(0), target.length(1)], Context.forward, []

    def forward(self: Context, *arguments: Any, **named: Any) -> Any:
        if passes:
            raise DecodeError("the device is gone")
        passes.append(arguments)
        return real(self, *arguments, **named)

    monkeypatch.setattr(made, "n_batch", 1 + drafted)  # one pass for each
    monkeypatch.setattr(Context, "forward", forward)
    tokens = np.full(drafted, 5, np.int32)
    draft = Draft(tokens, chain_parents(drafted), Proposal.DETERMINISTIC, None, "test")
    with pytest.raises(DecodeError, match="the device is gone"):
        target.score([Work(seq, PROMPTS[seq][-1], draft) for seq in range(2)])
    monkeypatch.undo()
    for seq in range(2):
        target.audit(seq)
        assert target.length(seq) in {before[seq], 0} if kind not in MOVES else {before[seq]}
    made.close()
