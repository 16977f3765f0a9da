"""The embedded pair: exact, accepted as its card says, and tokenized as it was trained."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from frequencies import FALSE_ALARM, p_value_by_looks
from tokenizers import Tokenizer

from localspec import GREEDY, Finished, Message, Options, Reply, Runtime, Sampling
from localspec.bench.exactness import verify
from localspec.bench.lab import Lab
from localspec.bench.workloads import VERIFY
from localspec.core.events import Reading
from localspec.core.files.paths import DEMO_DIR
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.reply_request import ReplyRequest
from localspec.core.target import Work
from localspec.core.values import no_draft
from localspec.decode.request import Request
from localspec.decode.round import decode_round
from localspec.llama.model import Model
from localspec.testing import Fixed

DATA = Path(__file__).parents[1] / "data" / "demo"
FULL = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
K = 4


def heldout() -> list[list[Message]]:
    """The user's messages of each conversation, turn by turn."""
    entries = json.loads((DATA / "heldout.json").read_text(encoding="utf-8"))
    return [[Message(m["role"], m["content"]) for m in e["messages"]] for e in entries]


def answer(runtime: Runtime, messages: list[Message], **settings: object) -> Reply:
    *_, last = runtime.reply(messages, **settings)
    assert isinstance(last, Finished)
    return last.reply


def test_sizes_are_those_of_a_toy() -> None:
    assert (DEMO_DIR / "target.gguf").stat().st_size <= 12_000_000
    assert (DEMO_DIR / "draft.gguf").stat().st_size <= 2_000_000


def test_a_chat_of_three_turns_reads_each_turn_once() -> None:
    with Runtime.open(Options(drafter=("model",), draft_max=K)) as runtime:
        assert runtime.info.draft is not None
        chat = []
        for i, text in enumerate(("Hello!", "What is localspec?", "Thank you!")):
            chat.append(Message("user", text))
            reply = answer(runtime, chat, sampling=GREEDY, max_tokens=60)
            assert reply.text.strip()
            assert (reply.stats.cached_tokens > 0) is (i > 0)
            assert reply.stats.prompt_tokens - reply.stats.cached_tokens < 60
            chat.append(Message("assistant", reply.text))


def test_end_tokens_are_not_shown() -> None:
    with Runtime.open(Options(draft_max=K)) as runtime:
        reply = answer(runtime, [Message("user", "Hello!")], sampling=GREEDY)
        assert reply.finish_reason == "stop"
        assert "<|" not in reply.text
        assert runtime.info.context > reply.stats.prompt_tokens + len(reply.tokens)


def test_tokenization_is_that_of_training() -> None:
    """1,000 samples: prompts, their pieces cut anywhere, and hostile text."""
    trained = Tokenizer.from_file(str(DATA / "tokenizer.json"))
    rng = np.random.default_rng(0)
    text = "\n".join(m.content for messages in heldout() for m in messages) + "\n".join(VERIFY)
    hostile = "  \t\n\r\n é漢字🙂‍👩 ИЙ İſK '’“ I'LL we'Re 0123456789 ñ\u00a0\u200b{}[]<>#$%&*+=|~^`"
    samples = list(VERIFY)
    while len(samples) < 1000:
        source = text if rng.random() < 0.7 else hostile
        a, n = int(rng.integers(len(source))), int(rng.integers(1, 200))
        samples.append(
            source[a : a + n] if source is text else "".join(rng.permutation(list(source))[:n])
        )
    for name in ("target.gguf", "draft.gguf"):
        model = Model(DEMO_DIR / name)
        for sample in samples:
            expected = trained.encode(sample, add_special_tokens=False).ids
            found = model.tokenize(sample)
            assert found == expected, sample
            assert b"".join(model.piece(t) for t in found).decode() == sample
        model.close()


def test_a_few_replies_are_identical_with_and_without_drafting() -> None:
    """The quick part of the slow test below."""
    with Runtime.open(Options(draft_max=K)) as runtime:
        result = verify(
            runtime, VERIFY[:6], [GREEDY, Sampling(temperature=1.0)], max_tokens=48, seed=1
        )
    assert result.exact
    assert all(c.accepted > 0 for c in result.comparisons)


BLOCKS = 4
"""Parts of the prompts, so that no test is long."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("drafter", "block"),  # each prompt once, each set of drafters on half of them
    [(("suffix", "model") if block % 2 else ("model",), block) for block in range(BLOCKS)],
)
def test_replies_are_identical_with_and_without_drafting(
    drafter: tuple[str, ...], block: int
) -> None:
    """12 prompts of 128 tokens at three temperatures; only a near-tie is tolerated."""
    assert len(VERIFY) >= 40
    settings = [Sampling(temperature=t) for t in (0.0, 0.7, 1.0)]
    with Runtime.open(Options(drafter=drafter, draft_max=K)) as runtime:
        result = verify(runtime, VERIFY[block::BLOCKS], settings, max_tokens=128, seed=1)
    assert result.exact
    assert sum(len(c.divergences) for c in result.comparisons) <= 1


def acceptance(verifier: str, sampling: Sampling) -> float:
    """accepted / verified over the held-out conversations, with K = 4."""
    accepted = verified = 0
    options = Options(drafter=("model",), draft_max=K, verifier=verifier)
    with Runtime.open(options) as runtime:
        for i, turns in enumerate(heldout()):
            chat: list[Message] = []
            for turn in turns:
                chat.append(turn)
                reply = answer(runtime, chat, sampling=sampling, seed=i, max_tokens=128)
                chat.append(Message("assistant", reply.text))
                accepted += reply.stats.accepted
                verified += reply.stats.verified
    return accepted / verified


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_acceptance_on_held_out_prompts_at_temperature_0() -> None:
    assert acceptance("match", GREEDY) >= 0.75


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_acceptance_on_held_out_prompts_at_temperature_1() -> None:
    """By the better verifier: either may be chosen."""
    assert any(acceptance(verifier, FULL) >= 0.6 for verifier in ("rejection", "match"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_rejection_draws_the_next_token_from_the_targets_distribution() -> None:
    """At most 3,500 rounds from one prompt; chi-squared, false-alarm rate 1e-4 (seeds fixed).

    The prompt is the built-in one whose next token is the least certain.
    """
    runs = 3_500
    options = Options(drafter=("model",), draft_max=2, verifier="rejection", threads=1)
    with Runtime.open(options) as runtime:
        processor = LogitsProcessor(FULL, runtime.pair.target_model.n_vocab)

        def next_token(prompt: list[int]) -> object:
            target = Lab(runtime).borrow().target
            target.read(0, prompt[:-1])
            (scores,) = target.score([Work(0, prompt[-1], no_draft("test"))])
            return processor(scores.logits[0], prompt)

        prompts = [runtime.encode([Message("user", text)]) for text in VERIFY]
        known = [next_token(p) for p in prompts]
        entropies = [float(-(d.probs * np.log(d.probs)).sum()) for d in known]
        at = int(np.argmax(entropies))
        prompt, p = prompts[at], known[at]
        assert entropies[at] > 0.5

        parts = Lab(runtime).borrow()
        parts.target.read(0, prompt[:-1])
        outcomes = set()

        def said(seed: int) -> tuple[int, ...]:
            noise, judge = Noise(seed), parts.verifier
            request = Request(0, list(prompt), processor, noise, 3, verifier=judge)
            (turn,) = decode_round([request], parts.target, parts.drafter, Fixed(2))
            outcomes.add(len(turn.verdict.path) > 0)
            parts.target.truncate(0, len(prompt) - 1)
            return (turn.emitted[0].token,)

        exact = {(token,): p.probability(token) for token in p.ids.tolist()}
        assert p_value_by_looks(said, exact, runs) > FALSE_ALARM
    assert outcomes == {True, False}  # both branches of the rule were taken


def test_a_reply_whose_prompt_is_being_read_outlives_forgetting() -> None:
    with Runtime.open(Options(model="demo", parallel=2)) as runtime:
        prompt = "the cat sat on the mat. " * 70
        stream = runtime.submit(ReplyRequest(prompt=prompt, max_tokens=4))
        next(event for event in stream if isinstance(event, Reading))
        runtime.forget()
        *_, end = stream
    assert isinstance(end, Finished)
    assert end.reply.tokens
