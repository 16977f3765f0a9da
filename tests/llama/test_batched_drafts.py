"""Several requests in one pass of llama.cpp, on every kind of memory: padded, joining, leaving."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import memory_files
import numpy as np
import pytest
from conftest import Files
from head_pairs import Pair

from localspec.core.errors import PassRefusedError
from localspec.core.files.paths import DEMO_DIR
from localspec.core.logits import GREEDY, LogitsProcessor
from localspec.core.media_rows import row_ids
from localspec.core.noise import Noise
from localspec.core.plan import DraftPlan, Evidence, Outcome, RequestState
from localspec.core.target import Work
from localspec.core.values import Draft, Proposal, chain_parents, no_draft
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.drafters.base import Ask, Drafter, Off
from localspec.llama.context import Context
from localspec.llama.draft_model import LlamaDraftModel
from localspec.llama.heads.hidden_states import LayerInputs, StoredStates
from localspec.llama.library import c_api
from localspec.llama.limits import ROLLBACK, STRICT_BATCH
from localspec.llama.model import Model
from localspec.llama.pass_layout import EveryPassEqual, padded, seconds
from localspec.llama.strict import StrictContext
from localspec.llama.target import LlamaTarget
from localspec.policy.controller import WIDE
from localspec.policy.simple import Plain
from localspec.testing import Fixed

N_SEQ = 4
TOKENS = 30


def chain(tokens: Sequence[int]) -> Draft:
    ids = np.array(tokens, np.int32)
    return Draft(ids, chain_parents(len(ids)), Proposal.DETERMINISTIC, None, "half right")


class HalfRight(Drafter):
    """Drafts as many tokens as the sequence's number and its place say, the last ones wrong."""

    name = "half right"

    def __init__(self, right: Sequence[Sequence[int]]) -> None:
        self._right = right

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._one(ask) for ask in asks]

    def _one(self, ask: Ask) -> Draft:
        fits = (t for t in self._right if list(t[: len(ask.tokens)]) == list(ask.tokens))
        text = next(fits, [*ask.tokens, *[7] * 9])
        n = min((ask.position * 3 + ask.seq) % 9, ask.budget.depth)
        tokens = [*text[ask.position : ask.position + n]]
        wrong = [(token + 1) % 250 for token in tokens[n // 2 :]]
        return chain([*tokens[: n // 2], *wrong]) if tokens else no_draft(self.name)


class Linear:
    """Passes that take as long as they have rows."""

    def pass_seconds(self, n: int) -> float:
        return float(n)


@pytest.fixture(params=memory_files.KINDS, scope="module")
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Model]:
    path: Path = tmp_path_factory.mktemp("kinds") / f"{request.param}.gguf"
    made = Model(memory_files.KINDS[request.param](path))
    yield made
    made.close()


PROMPTS = [np.random.default_rng(i).integers(3, 250, 7 + 9 * i).tolist() for i in range(6)]


def context(model: Model, n_seq: int = N_SEQ) -> Context:
    return Context(model, n_ctx=256, n_seq=n_seq, n_batch=256, rollback=ROLLBACK, threads=1)


def begin(target: LlamaTarget, prompt: list[int], seq: int, n: int = TOKENS) -> Request:
    target.truncate(seq, 0)
    target.read(seq, prompt[:-1])
    return Request(seq, list(prompt), LogitsProcessor(GREEDY, 300), Noise(0), n)


def alone(model: Model, prompt: list[int]) -> list[int]:
    made = context(model, 1)
    target = LlamaTarget(made)
    request = begin(target, prompt, 0)
    while request.running:
        decode_round([request], target, Off(), Plain("test"))
    made.close()
    return request.tokens


@pytest.mark.parametrize("times", [EveryPassEqual(), Linear()], ids=["padding", "splitting"])
def test_replies_in_a_batch_are_those_of_plain_decoding_alone(model: Model, times: object) -> None:
    """More requests than sequences: they leave gaps among the ids, and others fill them."""
    right = [alone(model, prompt) for prompt in PROMPTS]
    made = context(model)
    target, drafter = LlamaTarget(made, times=times), HalfRight(right)
    waiting, running, requests = [*PROMPTS], [], []
    while waiting or running:
        free = [i for i in range(N_SEQ) if all(r.seq != i for r in running)]
        if waiting and free:
            running.append(begin(target, waiting.pop(0), free[0], TOKENS - 4 * len(waiting)))
            requests.append(running[-1])
        decode_round(running, target, drafter, Fixed(8))
        for seq in range(N_SEQ):
            target.audit(seq)
        running = [r for r in running if r.running]
    made.close()
    for request, text in zip(requests, right, strict=True):
        assert request.error is None
        assert request.tokens == text[: len(request.tokens)]
    assert sum(r.tally.accepted for r in requests) > 0


class Looking(Fixed):
    """Widens every second plain pass to four rows of each request."""

    def __init__(self) -> None:
        super().__init__(0)
        self.widths: set[int] = set()

    def plan(self, states: Sequence[RequestState]) -> list[DraftPlan]:
        return [DraftPlan((), WIDE if s.emitted % 2 else ()) for s in states]

    def learn(self, outcomes: Sequence[Outcome], evidence: Sequence[Evidence]) -> None:
        self.widths |= {o.width for o in outcomes}


def test_a_plain_pass_over_several_that_is_widened_changes_no_token(model: Model) -> None:
    prompts = PROMPTS[:2]
    right = [alone(model, prompt) for prompt in prompts]
    made, policy = context(model), Looking()
    target = LlamaTarget(made)
    widened = target.deepest(len(prompts)) >= 3  # not a recurrent state of several sequences
    requests = [begin(target, prompt, seq, TOKENS) for seq, prompt in enumerate(prompts)]
    while requests[0].running:
        decode_round([r for r in requests if r.running], target, Off(), policy)
        for seq in range(2):
            target.audit(seq)
    made.close()
    for request, text in zip(requests, right, strict=True):
        assert request.error is None
        assert request.tokens == text[: len(request.tokens)]
    assert policy.widths == ({1, 4} if widened else {1})


def test_a_request_whose_context_is_full_ends_alone(model: Model) -> None:
    """Those beside it go on, also where its rows leave no room for padding."""
    made = context(model)
    capacity, target = made.capacity, LlamaTarget(made)
    text = np.random.default_rng(9).integers(3, 250, capacity - 5).tolist()
    full, other = begin(target, text, 0, 50), begin(target, PROMPTS[2], 2)
    right = alone(model, PROMPTS[2])
    running = [full, other]
    while running:
        decode_round(running, target, HalfRight([right]), Fixed(8))
        running = [r for r in running if r.running]
    made.close()
    assert full.error is not None
    assert len(full.tokens) == capacity + 1
    assert other.error is None
    assert other.tokens == right


# -- the shape of a pass -----------------------------------------------------------------------


class Steps:
    """Passes of four rows cost as much as one; a pass costs at least that."""

    def pass_seconds(self, n: int) -> float:
        return float(-(-n // 4))


ROOM = dict.fromkeys(range(9), 100)


def test_equal_rows_of_neighbours_are_left_as_they_are() -> None:
    assert padded({0: 3, 1: 3, 2: 3}, ROOM, EveryPassEqual(), most=512) == {0: 3, 1: 3, 2: 3}


def test_short_drafts_are_padded_where_another_part_costs_more() -> None:
    rows = {0: 5, 1: 4, 2: 3, 3: 4}
    assert padded(rows, ROOM, EveryPassEqual(), most=512) == dict.fromkeys(range(4), 5)
    assert padded(rows, ROOM, Linear(), most=512) == rows


def test_one_long_draft_does_not_make_the_others_long_where_rows_cost() -> None:
    rows = {0: 1, 1: 16, 2: 1, 3: 2}
    shape = padded(rows, ROOM, Steps(), most=512)
    assert seconds(shape, Steps()) == min(
        seconds(rows, Steps()), seconds(dict.fromkeys(range(4), 16), Steps()), 2 + 4
    )


def test_nothing_is_padded_beyond_its_context() -> None:
    assert padded({0: 1, 1: 5}, {0: 3, 1: 100}, EveryPassEqual(), most=512)[0] <= 3


def test_a_gap_is_filled_where_the_sequence_there_rests_and_a_part_costs_more() -> None:
    assert padded({0: 2, 2: 2}, ROOM, EveryPassEqual(), idle=[1], most=512) == {0: 2, 1: 2, 2: 2}
    assert padded({0: 2, 2: 2}, ROOM, Linear(), idle=[1], most=512) == {0: 2, 2: 2}
    assert padded({0: 2, 2: 2}, ROOM, EveryPassEqual(), most=512) == {0: 2, 2: 2}


def test_parts_are_counted_as_llama_cpp_makes_them() -> None:
    class One:
        def pass_seconds(self, n: int) -> float:
            return 1.0

    assert seconds({0: 3, 1: 3, 2: 3}, One()) == 1
    assert seconds({0: 5, 1: 4, 2: 3, 3: 4}, One()) == 4
    assert seconds({0: 2, 2: 2, 4: 2}, One()) == 3
    assert seconds({0: 8, 1: 1, 2: 8}, One()) == 3


def test_a_pass_over_nothing_is_none(model: Model) -> None:
    made = context(model)
    assert LlamaTarget(made).score([]) == []
    made.close()


def test_scores_come_in_the_order_of_the_work(model: Model) -> None:
    made = context(model)
    target = LlamaTarget(made)
    for seq in (0, 1):
        target.read(seq, PROMPTS[seq][:-1])
    work = [Work(seq, PROMPTS[seq][-1], no_draft("test")) for seq in (0, 1)]
    first = [s.logits.copy() for s in target.score(work)]
    for seq in (0, 1):
        target.truncate(seq, 0)
        target.read(seq, PROMPTS[seq][:-1])
    second = [s.logits.copy() for s in target.score(work[::-1])]
    np.testing.assert_array_equal(first[0], second[1])
    np.testing.assert_array_equal(first[1], second[0])
    made.close()


def test_hidden_states_belong_to_their_sequences_in_a_pass_of_several_parts(
    head_pairs: dict[str, Pair],
) -> None:
    model = Model(head_pairs["eagle3, owning"].target)
    tap = LayerInputs((1,), int(c_api.llama_model_n_embd(model.handle)))
    drafts = {0: [11, 12, 13, 14], 1: [15], 3: [16, 17]}

    def states(seqs: Sequence[int]) -> dict[int, np.ndarray]:
        made, stored = context(model), StoredStates(tap)
        target = LlamaTarget(made, stored, Linear())
        for seq in seqs:
            target.read(seq, PROMPTS[seq][:-1])
        target.score([Work(seq, PROMPTS[seq][-1], chain(drafts[seq])) for seq in seqs])
        found = {}
        for seq in seqs:
            target.keep(seq, range(len(drafts[seq])))
            first, end = stored.span(seq)
            assert end == len(PROMPTS[seq]) + len(drafts[seq])
            found[seq] = stored.rows(seq, first, end).copy()
        made.close()
        return found

    together = states([0, 1, 3])
    for seq, rows in together.items():
        np.testing.assert_allclose(rows, states([seq])[seq], atol=1e-5)
    model.close()


class Far(HalfRight):
    """Drafts as far as its budget goes, the last half wrong."""

    def _one(self, ask: Ask) -> Draft:
        fits = (t for t in self._right if list(t[: len(ask.tokens)]) == list(ask.tokens))
        text = next(fits, [*ask.tokens, *[7] * 99])
        n = ask.budget.depth
        tokens = [*text[ask.position : ask.position + n]]
        wrong = [(token + 1) % 250 for token in tokens[n // 2 :]]
        return chain([*tokens[: n // 2], *wrong]) if tokens else no_draft(self.name)


class Long(Far):
    """As far, and right up to a place that differs from round to round."""

    def _one(self, ask: Ask) -> Draft:
        text = next(t for t in self._right if list(t[: len(ask.tokens)]) == list(ask.tokens))
        tokens = [*text[ask.position : ask.position + ask.budget.depth]]
        right = (ask.position * 7 + ask.seq) % 64
        wrong = [(token + 1) % 250 for token in tokens[right:]]
        return chain([*tokens[:right], *wrong]) if tokens else no_draft(self.name)


def test_drafts_of_up_to_62_tokens_in_a_batch_are_those_of_plain_decoding(model: Model) -> None:
    """Where memory is for many sequences, four requests have as much of a pass as one has alone."""
    right = []
    for prompt in PROMPTS[:4]:
        made = context(model, 1)
        target = LlamaTarget(made)
        request = begin(target, prompt, 0, 190)
        while request.running:
            decode_round([request], target, Off(), Plain("test"))
        made.close()
        right.append(request.tokens)
    made = context(model, 16)
    target = LlamaTarget(made, times=EveryPassEqual())
    requests = [begin(target, p, 3 * i, 190 - 20 * i) for i, p in enumerate(PROMPTS[:4])]
    running, rounds = requests, []
    while running:
        found = decode_round(running, target, Long(right), Fixed(62))
        rounds += [(len(found), len(one.draft), len(one.verdict.path)) for one in found]
        running = [r for r in running if r.running]
    made.close()
    for request, text in zip(requests, right, strict=True):
        assert request.error is None
        assert request.tokens == text[: len(request.tokens)]
    if model.partial_removal:  # a recurrent state is taken back by a few tokens
        assert max(drafted for batch, drafted, _ in rounds if batch == 4) == 62
        assert max(accepted for batch, _, accepted in rounds if batch == 4) > 32


class Hasty(Far):
    """As far, and for one request further than any pass goes."""

    def _one(self, ask: Ask) -> Draft:
        return chain([7] * 140) if ask.seq == 1 else super()._one(ask)


def test_a_draft_that_no_pass_can_hold_ends_its_own_reply_alone(files: Files) -> None:
    model = Model(files.target)
    right = [alone(model, prompt) for prompt in PROMPTS[:4]]
    made = StrictContext(model, n_ctx=256, n_seq=4, n_batch=STRICT_BATCH, threads=1)
    target = LlamaTarget(made, times=EveryPassEqual())
    requests = [begin(target, prompt, seq) for seq, prompt in enumerate(PROMPTS[:4])]
    running = requests
    while running:
        decode_round(running, target, Hasty(right), Fixed(62))
        running = [r for r in running if r.running]
    made.close()
    model.close()
    assert isinstance(requests[1].error, PassRefusedError)
    for seq in (0, 2, 3):
        assert requests[seq].error is None
        assert requests[seq].tokens == right[seq]


@pytest.mark.parametrize(("strict", "n_seq"), [(True, 8), (False, 8), (False, 32)])
def test_no_pass_is_wider_than_the_batch_whoever_ends_first(
    files: Files, *, strict: bool, n_seq: int
) -> None:
    """The fourth of them leaves a gap at once, which would be filled with rows beyond the batch."""
    kind, batch = (StrictContext, STRICT_BATCH) if strict else (Context, 512)
    model = Model(files.target)
    plain = context(model, 1)
    texts = [np.random.default_rng(i).integers(3, 250, 9).tolist() for i in range(n_seq - 1)]
    right = []
    for text in texts:
        one = LlamaTarget(plain)
        request = begin(one, text, 0, 30)
        while request.running:
            decode_round([request], one, Off(), Plain("test"))
        right.append(request.tokens)
    plain.close()
    made = kind(model, n_ctx=256, n_seq=n_seq, n_batch=batch, threads=1)
    target = LlamaTarget(made, times=EveryPassEqual())
    requests = [begin(target, t, i, 1 if i == 3 else 30) for i, t in enumerate(texts)]
    running = requests
    while running:
        decode_round(running, target, Far(right), Fixed(62))
        running = [r for r in running if r.running]
    made.close()
    model.close()
    for request, text in zip(requests, right, strict=True):
        assert request.error is None
        assert request.tokens == text[: len(request.tokens)]


@pytest.mark.parametrize("behind", [0, 3])
def test_a_draft_model_knows_its_length_behind_pictures_that_touch(behind: int) -> None:
    """It sees none of their rows, which take no position in it."""
    model = Model(DEMO_DIR / "draft.gguf")
    context = Context(model, n_ctx=128, threads=1)
    draft = LlamaDraftModel(context, model.n_vocab)
    shown = [*row_ids(b"one", 5), *row_ids(b"two", 4), *row_ids(b"three", 6)]
    draft.extend([(0, [*range(5, 15), *shown, *range(5, 5 + behind)], 0)])
    assert context.length(0) == context.appended(0) == 25 + behind
    context.audit(0)
    context.close()
    model.close()
