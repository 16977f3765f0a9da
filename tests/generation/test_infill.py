"""Prompts at a cursor, the ends of their replies, and what is expected to be suggested again."""

from __future__ import annotations

import ctypes
import itertools
import math
import tracemalloc
from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

import numpy as np
import pytest
from conftest import Files

from localspec.core.constraint import Constraint, TokenMask
from localspec.core.errors import ContextError, UsageError
from localspec.core.infill import Chunk, Infill
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.generation import infill
from localspec.generation.grammars import incomplete
from localspec.generation.infill import WINDOW, InfillPrompts, Suggestions
from localspec.generation.infill_sampling import InfillProcessor
from localspec.generation.runnable import RunnableModel
from localspec.generation.stop_condition import LineLimits, StopCondition, TextStream
from localspec.llama.library import c_api
from localspec.llama.model import Model

NAMES = ("fim_pre", "fim_suf", "fim_mid", "fim_rep", "fim_sep")
PRE, SUF, MID, REP, SEP, BOS = range(1000, 1006)


class Characters:
    """Every character is a token, its code point; SentencePiece's space comes first if wanted."""

    adds_bos = False
    special_ids: ClassVar[Mapping[str, int]] = {
        "bos": BOS,
        **dict(zip(NAMES, (PRE, SUF, MID, REP, SEP), strict=True)),
    }

    def __init__(self, *, spaced: bool = False, without: tuple[str, ...] = ()) -> None:
        self._space = " " if spaced else ""
        self.split: list[str] = []
        self.special_ids = {n: t for n, t in type(self).special_ids.items() if n not in without}

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        self.split.append(text)
        return [ord(c) for c in (self._space + text if text else "")]

    def piece(self, token: int) -> bytes:
        return chr(token).encode()


def ids(text: str) -> list[int]:
    return [ord(c) for c in text]


EXTRA = (Chunk("a.py", "one"), Chunk("b.py", "two"))


def test_the_parts_come_in_the_order_of_llama_server() -> None:
    prompts = InfillPrompts(Characters(), 8192)
    found = prompts.prompt(Infill("before", "after", "typed", EXTRA), 16, "")
    files = [REP, *ids("myproject\n"), SEP, *ids("a.py\none"), SEP, *ids("b.py\ntwo")]
    files += [SEP, *ids("filename\n")]
    assert found.tokens == [*files, PRE, *ids("beforetyped"), SUF, *ids("after"), MID]
    assert found.stable == len(files) + 1 + len("before")


def test_the_suffix_comes_first_where_that_is_wanted() -> None:
    model = Characters(without=("fim_rep", "fim_sep"))
    found = InfillPrompts(model, 8192).prompt(Infill("ab", "cd", "e", suffix_first=True), 16, "")
    assert found.tokens == [SUF, *ids("cd"), PRE, *ids("abe"), MID]
    assert found.stable == len(found.tokens) - 2


def test_without_tokens_for_files_a_line_of_words_separates_them() -> None:
    model = Characters(without=("fim_rep", "fim_sep"))
    model.adds_bos = True
    found = InfillPrompts(model, 8192).prompt(Infill("x", "y", "", EXTRA[:1]), 16, "")
    line = ids("\n\n--- snippet ---\n\n")
    assert found.tokens == [*line, *ids("one"), BOS, PRE, *ids("x"), SUF, *ids("y"), MID]


@pytest.mark.parametrize("lacking", NAMES[:3])
def test_a_model_without_the_tokens_is_refused_with_what_to_load(lacking: str) -> None:
    prompts = InfillPrompts(Characters(without=(lacking,)), 8192)
    with pytest.raises(UsageError, match=r"no tokens for prefix, suffix and middle.*Qwen2\.5"):
        prompts.prompt(Infill("a", "b"), 16, "")


def test_what_lies_nearest_to_the_cursor_stays() -> None:
    before, after = "".join(chr(300 + i % 600) for i in range(5000)), "z" * 5000
    prompts = InfillPrompts(Characters(without=("fim_rep", "fim_sep")), 8192)
    tokens = prompts.prompt(Infill(before, after, "typed"), 16, "").tokens
    kept = tokens[1 : tokens.index(SUF)]
    assert ids(before + "typed")[-len(kept) :] == kept
    assert WINDOW * 3 // 4 - WINDOW * 3 // 4 // 32 <= len(kept) - 5 <= WINDOW * 3 // 4
    assert tokens[tokens.index(SUF) + 1 : -1] == ids("z" * (WINDOW // 4 - 2 - 5))


def test_extra_pieces_lose_their_beginning_and_never_the_room_of_the_reply() -> None:
    extra = tuple(Chunk(f"{i}.py", str(i) * 400) for i in range(10))
    prompts = InfillPrompts(Characters(), 4096)
    tokens = prompts.prompt(Infill("p" * 9000, "s" * 9000, "", extra), 512, "").tokens
    assert len(tokens) < 4096 - 512
    assert ids("9" * 400) == tokens[tokens.index(PRE) - 410 : tokens.index(PRE) - 10]
    assert ord("0") not in tokens
    short = prompts.prompt(Infill("p" * 9, "s" * 9, "", extra), 512, "").tokens
    assert short[: short.index(PRE)] == tokens[: tokens.index(PRE)]  # so the cache has them


@pytest.mark.parametrize("capacity", [16, 17, 31, 64, 100, 513])
@pytest.mark.parametrize("typed", ["", "t", "t" * 70, "t" * 5000])
def test_a_prompt_fits_into_any_context(capacity: int, typed: str) -> None:
    for first in (False, True):
        infill = Infill("p" * 700, "s" * 700, typed, EXTRA, suffix_first=first)
        tokens = InfillPrompts(Characters(), capacity).prompt(infill, None, "").tokens
        assert len(tokens) < capacity
        assert tokens[-1] == MID


def test_a_context_without_room_for_the_marks_is_too_small() -> None:
    with pytest.raises(ContextError, match="too small to fill in text"):
        InfillPrompts(Characters(), 3).prompt(Infill("a", "b"), 1, "")


def test_of_endless_texts_no_more_is_split_than_may_be_of_use() -> None:
    model = Characters()
    endless = "x" * 5_000_000
    extra = (Chunk(endless, "a"), Chunk("b", endless), Chunk(endless, ""))
    InfillPrompts(model, 4096).prompt(Infill(endless, endless, endless, extra), None, "")
    assert sum(map(len, model.split)) <= 16 * 4096 * 4


def test_typing_leaves_the_beginning_of_a_long_prompt_as_it_was() -> None:
    prompts = InfillPrompts(Characters(), 2048)
    text, reused = "line of code\n" * 400, []
    last = prompts.prompt(Infill(text, "tail" * 300), 64, "").tokens
    for character in "return something(else_, again)\nand more of it":
        text += character
        tokens = prompts.prompt(Infill(text, "tail" * 300), 64, "").tokens
        pairs = zip(last, tokens, strict=False)
        reused.append(next(i for i, (a, b) in enumerate(pairs) if a != b) / last.index(SUF))
        last = tokens
    assert sum(part == 1 for part in reused) >= len(reused) - 2  # a step is cut now and then


@pytest.mark.parametrize("text", ["x", "界", "界" * 500])
def test_tokens_of_texts_that_are_kept_take_no_more_memory_than_is_said(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infill, "_KNOWN", 1 << 17)
    prompts = InfillPrompts(Characters(), 2048)
    texts = [f"{n}{text}" for n in range(600_000 // (500 + 36 * len(text)))]
    tracemalloc.start()
    try:
        for n, one in enumerate(texts):
            prompts._tokens(one, f"key/{n:064x}")
        prompts._model.split.clear()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1 << 18
    assert prompts._size == sum(infill._size(*one) for one in prompts._known.items())
    assert prompts._known


def test_tokens_of_texts_are_kept_for_their_owner_alone() -> None:
    model = Characters()
    prompts = InfillPrompts(model, 8192)
    infill = Infill("before", "after", "t", EXTRA)
    prompts.prompt(infill, 16, "me")
    model.split.clear()
    prompts.prompt(infill, 16, "me")
    assert model.split == []
    prompts.prompt(infill, 16, "you")
    assert "before" in model.split


def test_sentencepiece_puts_no_space_into_a_word_that_goes_on() -> None:
    model = Characters(spaced=True, without=("fim_rep", "fim_sep"))
    tokens = InfillPrompts(model, 8192).prompt(Infill("x = fo", "\n", "o"), 16, "").tokens
    assert tokens == [PRE, *ids(" x = fo"), *ids("o"), SUF, *ids("\n"), MID]


# -- ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\n    b\n    c", "a\n    b\n    c"),
        ("a\n    b\n  c", "a\n    b\n  "),
        ("a\n\tb\nc", "a\n\tb\n"),
        ("\n        deep\n    x\n", "\n        deep\n    x\n"),
        ("  first\nsecond", "  first\n"),
        ("a\n\n    b", "a\n"),  # as llama-server has it
        ("", ""),
    ],
)
@pytest.mark.parametrize("parts", [1, 2, 100])
def test_a_line_with_less_indentation_ends_the_reply(text: str, kept: str, parts: int) -> None:
    indent = 1 if "\t" in text else 4
    stream = TextStream((), LineLimits(indent))
    size = -(-len(text) // parts) or 1
    found = "".join(stream.feed(text[i : i + size].encode()) for i in range(0, len(text), size))
    assert found + stream.finish() == kept == stream.text
    assert stream.stopped == (kept != text)
    assert stream.stop_text is None


def test_the_time_counts_from_the_first_token_and_ends_with_a_line() -> None:
    now = 100.0
    limits = LineLimits(0, 1.0, lambda: now)
    now = 200.0
    limits.begin()
    assert not limits.over("a\n")
    now = 201.5
    limits.begin()
    assert not limits.over("b")
    assert limits.over("c\nd")
    assert not LineLimits(0, None, lambda: now).over("c\n")


def ending(*stop: str, indent: int = 0, late: bool = False) -> StopCondition:
    times = iter((0.0, 9.0, 9.0, 9.0)) if late else itertools.repeat(0.0)
    limits = LineLimits(indent, 1.0, lambda: next(times))
    return StopCondition(cast("RunnableModel", Words()), stop, frozenset(), limits)


class Words:
    """A model of three tokens."""

    end_ids = frozenset[int]()

    def piece(self, token: int) -> bytes:
        return (b"a\nb;", b"c\n", b" d")[token]


def test_a_stop_text_in_the_token_of_a_late_line_end_ended_the_reply() -> None:
    one = ending(";", late=True)
    assert one.take(0) == ("a\nb", "stop")
    assert (one.stream.stop_text, one.limited) == (";", False)
    other = ending(";", late=True)
    assert other.take(1) == ("c\n", "length")
    assert (other.stream.stop_text, other.limited) == (None, True)
    third = ending(indent=2)
    assert [third.take(token) for token in (1, 2)] == [("c\n", None), (" ", "length")]
    assert third.limited
    fourth = ending(" d;", indent=2)  # a text that may begin a stop text is held back
    assert [fourth.take(token) for token in (1, 2)] == [("c\n", None), ("", None)]
    assert (fourth.finish(), fourth.limited) == (" ", True)


def test_a_grammar_that_a_limit_of_lines_left_incomplete_is_not_said_to_be_too_long() -> None:
    assert "a limit of its lines ended the reply" in incomplete("length", None, limited=True).text
    assert "its largest length" in incomplete("length", None, limited=False).text


def test_what_a_cut_leaves_is_whole_tokens_and_the_beginning_of_the_next() -> None:
    cut = ending("b;")
    cut.take(1)
    cut.take(0)
    assert cut.kept([1, 0]) == (1, "a\n")
    whole = ending("a")
    whole.take(1)
    whole.take(0)
    assert whole.kept([1, 0]) == (1, "")


# -- suggestions -----------------------------------------------------------------------------------

START = "def add(a, b):\n    "


def expected_after(
    typed: str, suggested: str = "return a + b\n", *, start: str = START
) -> str | None:
    known = Suggestions()
    known.note("me", Infill(start, ""), suggested)
    assert known.expected("you", Infill(start + typed, "")) is None
    return known.expected("me", Infill(start, "", typed))


def test_who_types_along_a_suggestion_is_expected_to_get_its_rest() -> None:
    assert expected_after("") == "return a + b\n"
    assert expected_after("ret") == "urn a + b\n"
    assert expected_after("return a + b\n") is None
    assert expected_after("x") is None


def test_one_that_deletes_gets_what_was_deleted_and_the_suggestion() -> None:
    known = Suggestions()
    known.note("me", Infill(START + "retur", ""), "n a + b")
    assert known.expected("me", Infill(START + "ret", "")) == "urn a + b"


def test_another_place_with_the_same_line_expects_nothing() -> None:
    assert expected_after("", start="# one\n" + START) == "return a + b\n"
    known = Suggestions()
    known.note("me", Infill("# one\n" + START, ""), "return a + b\n")
    assert known.expected("me", Infill("# two\n" + START, "")) is None


def test_a_cut_suggestion_goes_on_as_the_longer_one_before_it() -> None:
    known = Suggestions()
    known.note("me", Infill(START, ""), "return a + b\n")
    known.note("me", Infill(START + "re", ""), "turn")
    assert known.expected("me", Infill(START + "ret", "")) == "urn a + b\n"
    known.note("me", Infill(START + "ret", ""), "ry()")
    assert known.expected("me", Infill(START + "ret", "")) == "ry()"
    known.forget()
    assert known.expected("me", Infill(START + "ret", "")) is None


# -- the sampler -----------------------------------------------------------------------------------


def by_llama(model: Model, found: tuple[list[int], list[float]]) -> dict[int, float]:
    """What llama.cpp's own sampler leaves of candidates, with their probabilities."""
    tokens, probs = found
    data = (c_api.llama_token_data * len(tokens))()
    for i, (token, p) in enumerate(zip(tokens, probs, strict=True)):
        data[i] = c_api.llama_token_data(id=token, logit=float(np.log(p)), p=0.0)
    array = c_api.llama_token_data_array(data=data, size=len(tokens), selected=-1, sorted=False)
    sampler = c_api.llama_sampler_init_infill(c_api.llama_model_get_vocab(model.handle))
    c_api.llama_sampler_apply(sampler, ctypes.byref(array))
    left = {array.data[i].id: array.data[i].p for i in range(array.size)}
    c_api.llama_sampler_free(sampler)
    return left


def test_the_sampler_infill_leaves_what_llama_cpp_leaves(files: Files) -> None:
    model = Model(files.target)
    rng, sampling = np.random.default_rng(0), Sampling(1.0, top_k=12, top_p=0.95, min_p=0.0)
    end = model.special_ids["eot"] if model.special_ids["eot"] >= 0 else model.special_ids["eos"]
    plain = LogitsProcessor(sampling, model.n_vocab)
    ours = InfillProcessor(
        LogitsProcessor(sampling, model.n_vocab), model.piece, model.end_ids, end
    )
    sizes = set()
    for i in range(300):
        row = rng.normal(0, rng.choice([1, 3, 6]), model.n_vocab).astype(np.float32)
        if i % 3 == 0:
            row[list(model.end_ids)] += 6
        before = plain(row, ())
        wanted = by_llama(model, (before.ids.tolist(), before.probs.tolist()))
        found = ours(row, ())
        assert found.ids.tolist() == sorted(wanted)
        if len(wanted) > 1:
            assert found.probs == pytest.approx([wanted[t] for t in sorted(wanted)], rel=1e-4)
        assert found.probs.sum() == pytest.approx(1)
        sizes.add(len(wanted))
    assert len(sizes) > 1
    model.close()


class Pieces:
    """Tokens that begin with each other."""

    texts = (b"", b"re", b"return", b"ret", b"x")


def test_tokens_that_begin_with_each_other_count_as_one() -> None:
    chances = np.array([0.02, 0.18, 0.17, 0.15, 0.48])
    row = np.log(chances).astype(np.float32)
    wide = Sampling(1.0, top_k=0, top_p=1.0, min_p=0.0)
    ours = InfillProcessor(LogitsProcessor(wide, 5), Pieces.texts.__getitem__, frozenset({0}), 0)
    found = ours(row, ())
    assert set(found.ids.tolist()) == {0, 1, 4}
    assert found.probability(1) / found.probability(4) == pytest.approx(0.5 / 0.48, rel=1e-5)


class Allows:
    """A grammar that allows some tokens at every place."""

    def __init__(self, *tokens: int) -> None:
        self._mask = TokenMask(np.array([sum(1 << t for t in tokens)], np.uint32))

    def mask(self, before: Sequence[int]) -> TokenMask:
        del before
        return self._mask


@pytest.mark.parametrize(
    ("allowed", "left"),
    [((0, 2, 3, 4, 5, 6, 7), 0), ((1, 2, 3, 4, 5, 6, 7), 1), ((2, 3, 4, 5, 6, 7), 4)],
    ids=["the end", "another end", "none"],
)
def test_a_suggestion_that_is_not_sure_ends_only_where_its_grammar_may_end(
    allowed: tuple[int, ...], left: int
) -> None:
    row = np.array([-9, -9, 0, 0, 0.01, 0, 0, 0], np.float32)
    wide = Sampling(1.0, top_k=0, top_p=1.0, min_p=0.0)
    others = LogitsProcessor(wide, 8, cast("Constraint", Allows(*allowed)))
    ours = InfillProcessor(others, lambda t: b"%d" % t, frozenset({0, 1}), 0)
    assert ours(row, ()).ids.tolist() == [left]


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
def test_a_time_limit_is_a_number_of_seconds(seconds: float) -> None:
    for name in ("prompt_seconds", "predict_seconds"):
        with pytest.raises(UsageError, match="number of seconds, more than 0"):
            Infill("a", "b", **{name: seconds})
