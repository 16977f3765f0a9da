"""Logprobs of small random models: those of plain decoding whoever drafted, and llama.cpp's own."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import llama_cpp
import numpy as np
import pytest
from conftest import Files
from head_pairs import Pair
from replies import ENDLESS

from localspec import Options, PromptScored, ReplyRequest, Runtime, Sampling, Token, TokenLogprobs
from localspec.core.errors import UsageError
from localspec.core.events import ReplyEvent
from localspec.llama import own_kernels
from localspec.models.gguf.sizes import OUTPUTS

TEXTS = (
    "Hello there, hello there, hello",
    "One two three, one two three, one",
    "Quite another text, which is longer than the others are; hello there?",
    "a b a b a b a",
    "Hello there, hello there, hullo",
    "def total(values): return sum(values)",
    "x",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11",
)
TEMPERATURES = (0.0, 1.0)


def asked(n: int, **more: object) -> list[ReplyRequest]:
    return [
        ReplyRequest(
            prompt=text,
            sampling=Sampling(temperature=TEMPERATURES[i % 2], logit_bias=ENDLESS),
            seed=i,
            max_tokens=14,
            logprobs=3,
            **more,
        )
        for i, text in enumerate(TEXTS[:n])
    ]


def answered(runtime: Runtime, requests: Sequence[ReplyRequest]) -> list[list[ReplyEvent]]:
    """The events of requests that run together."""
    return [[*stream] for stream in [runtime.submit(request) for request in requests]]


def tokens(events: Sequence[ReplyEvent]) -> list[Token]:
    return [event for event in events if isinstance(event, Token)]


def prompt_scores(events: Sequence[ReplyEvent]) -> list[TokenLogprobs | None]:
    parts = [event.logprobs for event in events if isinstance(event, PromptScored)]
    return list(itertools.chain(*parts))


def check(found: Sequence[Token], plain: Sequence[Token], tolerance: float) -> None:
    assert [t.token for t in found] == [t.token for t in plain]
    for one, other in zip(found, plain, strict=True):
        assert one.logprobs is not None
        assert other.logprobs is not None
        if tolerance == 0:
            assert one.logprobs == other.logprobs
            continue
        for a, b in zip(
            (one.logprobs.chosen, *one.logprobs.top),
            (other.logprobs.chosen, *other.logprobs.top),
            strict=True,
        ):
            assert a.logprob == pytest.approx(b.logprob, abs=tolerance)


def compare(options: Options, tolerance: float) -> None:
    """Alone and in a batch, with a cold and a warm cache, drafted and plain."""
    plain: list[list[Token]] = []
    with Runtime.open(dataclasses.replace(options, drafter=("off",), draft=None)) as runtime:
        for request in asked(len(TEXTS)):
            runtime.forget()
            plain += [tokens(events) for events in answered(runtime, [request])]
    accepted = 0
    with Runtime.open(options) as runtime:
        for n in (1, 3, 7):
            runtime.forget()
            for verifier in (None, "match"):  # the second time with a warm cache
                found = answered(runtime, asked(n, verifier=verifier))
                for events, right in zip(found, plain, strict=False):
                    check(tokens(events), right, tolerance)
                    accepted += sum(t.source is not None for t in tokens(events))
    assert accepted > 0


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "drafter",
    ["model", "suffix", pytest.param("tree", marks=SLOW), pytest.param("lookahead", marks=SLOW)],
)
def test_they_are_those_of_plain_decoding(files: Files, drafter: str) -> None:
    draft = str(files.draft) if drafter in {"model", "tree"} else None
    parallel = 4 if drafter in {"model", "suffix"} else 1
    compare(
        Options(
            str(files.target),
            draft,
            drafter=(drafter,),
            draft_max=3,
            context=256,
            threads=1,
            parallel=parallel,
        ),
        tolerance=1e-3,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mtp", "mtp on a hybrid", "eagle3, owning"])
def test_they_are_those_of_plain_decoding_with_heads(
    head_pairs: dict[str, Pair], name: str
) -> None:
    compare(head_pairs[name].options(context=256, threads=1, parallel=4), tolerance=1e-3)


@pytest.mark.slow
def test_in_strict_mode_they_are_the_same_bits(files: Files) -> None:
    for drafter, draft in (("suffix", None), ("model", str(files.draft))):
        options = Options(
            str(files.target),
            draft,
            drafter=(drafter,),
            draft_max=3,
            context=256,
            threads=1,
            parallel=4,
            strict=True,
        )
        compare(options, tolerance=0)


def reference(path: Path, ids: Sequence[int], *, strict: bool) -> np.ndarray:
    """(n - 1,) logprob of each token but the first, by llama-cpp-python's own class. Its defaults
    are those of strict mode with llama.cpp's kernels; otherwise attention and passes are those
    that we use.
    """
    usual = {"flash_attn": True, "n_batch": OUTPUTS, "n_ubatch": OUTPUTS}
    llama = llama_cpp.Llama(
        str(path),
        n_ctx=512,
        n_threads=1,
        n_threads_batch=1,
        logits_all=True,
        verbose=False,
        **({} if strict and not own_kernels.unit() else usual),
    )
    llama.eval(list(ids))
    rows = llama.scores[: len(ids) - 1].astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
    llama.close()
    return rows[np.arange(len(ids) - 1), list(ids[1:])]


PROMPT = " ".join(TEXTS)


@pytest.mark.parametrize("strict", [False, True])
def test_prompts_are_scored_as_llama_cpp_itself_does(files: Files, *, strict: bool) -> None:
    options = Options(
        str(files.target), None, drafter=("suffix",), context=512, threads=1, strict=strict
    )
    request = ReplyRequest(prompt=PROMPT, prompt_logprobs=1, max_tokens=8, seed=1)
    with Runtime.open(options) as runtime:
        ids = runtime.pair.target_model.tokenize(PROMPT, special=True, bos=True)
        assert len(ids) > 130
        cold = prompt_scores(answered(runtime, [request])[0])
        warm = prompt_scores(answered(runtime, [request])[0])
        given = dataclasses.replace(request, prompt=None, prompt_tokens=tuple(ids))
        batched = answered(runtime, [given, *asked(3)])[0]
    assert cold[0] is None
    assert [p.chosen.token for p in cold[1:] if p] == ids[1:]
    found = [p.chosen.logprob for p in cold[1:] if p]
    assert found == pytest.approx(reference(files.target, ids, strict=strict), abs=1e-6)
    assert warm == cold
    assert prompt_scores(batched) == cold


@pytest.mark.parametrize("name", ["mtp", "mtp on a hybrid", "eagle3, owning"])
def test_prompts_of_targets_with_heads_are_scored_and_answered(
    head_pairs: dict[str, Pair], name: str
) -> None:
    pair = head_pairs[name]
    with Runtime.open(pair.options(context=256, threads=1)) as runtime:
        for text in TEXTS[2:4]:
            request = ReplyRequest(prompt=text, max_tokens=12, seed=1, draft=False)
            (plain,) = answered(runtime, [request])
            scored = dataclasses.replace(request, draft=True, prompt_logprobs=0, logprobs=0)
            (events,) = answered(runtime, [scored])
            ids = runtime.pair.target_model.tokenize(text, special=True, bos=True)
            found = [p.chosen.logprob for p in prompt_scores(events) if p]
            assert found == pytest.approx(reference(pair.target, ids, strict=False), abs=1e-6)
            assert [t.token for t in tokens(events)] == [t.token for t in tokens(plain)]


def test_parts_of_a_character_keep_their_bytes(files: Files) -> None:
    text = "Grüße, 漢字 🙂"
    with Runtime.open(Options(str(files.target), None, context=256, threads=1)) as runtime:
        request = ReplyRequest(prompt=text, prompt_logprobs=0, max_tokens=0)
        found = [p.chosen for p in prompt_scores(answered(runtime, [request])[0]) if p]
        model = runtime.pair.target_model
        assert (runtime.info.bos, runtime.info.eos) == ("", "<|im_end|>")
        for one in found:
            assert one.bytes == model.piece(one.token)
        assert b"".join(one.bytes for one in found).endswith("ße, 漢字 🙂".encode())
        with pytest.raises(UsageError, match="outside this model's vocabulary"):
            answered(runtime, [ReplyRequest(prompt_tokens=(1, model.n_vocab))])
