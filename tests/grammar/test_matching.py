"""The matcher: the same answers wherever it stood before, and no error passed over."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec import Options, Runtime, Sampling
from localspec.core.errors import AuditError, GrammarError
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.logits import GREEDY, LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.plan import ANY, Budget, DraftStep
from localspec.core.reply_request import ReplyRequest
from localspec.core.values import Draft, Proposal, Scores, chain_parents
from localspec.decode.request import Request
from localspec.decode.routing import guided
from localspec.grammar import matching
from localspec.grammar.matching import GrammarMatcher
from localspec.grammar.thinking import Thinking, thinking
from localspec.grammar.thought_end import ThoughtEnd
from localspec.testing import TableTarget

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
SPEC = GrammarSpec.schema(PERSON)


def allowed(matcher: GrammarMatcher, tokens: list[int], model) -> list[int]:
    ids = np.arange(model.n_vocab, dtype=np.int32)
    mask = matcher.mask(tokens)
    return ids[mask.allows(ids)].tolist()


def walk(matcher: GrammarMatcher, model, seed: int, most: int = 200) -> list[int]:
    """Emits random allowed tokens until the reply is over."""
    rng, tokens = np.random.default_rng(seed), [5] * matcher._start
    for _ in range(most):
        token = int(rng.choice(allowed(matcher, tokens, model)))
        tokens.append(token)
        if matcher.take(tokens) or token in model.end_ids:
            break
    return tokens[matcher._start :]


def text(model, tokens: list[int]) -> str:
    return b"".join(map(model.piece, tokens)).decode("utf-8")


def test_whatever_is_emitted_fits_the_schema(matcher, model):
    for seed in range(8):
        one = matcher(SPEC, start=2)
        tokens = walk(one, model, seed)
        assert one.complete
        jsonschema.validate(json.loads(text(model, tokens)), PERSON)


@pytest.mark.parametrize("spec", [GrammarSpec.regex("(yes)?"), GrammarSpec.regex("a{0}")])
def test_a_reply_that_ends_at_once_is_complete_where_the_grammar_allows_it(matcher, model, spec):
    one, end = matcher(spec), min(model.end_ids)
    assert not one.complete
    assert one.mask([]).allows_token(end)
    one.take([end])
    assert one.complete


def test_masks_and_forced_tokens_do_not_depend_on_where_the_matcher_stood(matcher, model):
    tokens = walk(matcher(SPEC), model, 3)
    one, rng = matcher(SPEC), np.random.default_rng(0)
    for place in rng.permutation(len(tokens)).tolist():
        before = tokens[:place]
        fresh = matcher(SPEC)
        assert one.mask(before).words.tolist() == fresh.mask(before).words.tolist()
        assert one.forced(before) == fresh.forced(before)
        assert one.legal(before, tokens[place:]) == len(tokens) - place


def test_forced_tokens_are_the_only_ones_that_the_masks_allow(matcher, model):
    one = matcher(SPEC)
    tokens = walk(matcher(SPEC), model, 1)
    for place in range(len(tokens)):
        before = tokens[:place]
        for token in one.forced(before):
            assert one.mask(before).only == token
            before = [*before, token]


def test_masks_computed_ahead_are_those_computed_when_needed(matcher, model, monkeypatch):
    monkeypatch.setattr(matching, "_LARGE", 0)
    tokens = walk(matcher(SPEC), model, 2)
    ahead, later = matcher(SPEC), matcher(SPEC)
    part = np.array(tokens[:9], np.int32)
    ahead.expect([], Draft(part, chain_parents(9), Proposal.DETERMINISTIC, None, "x"))
    for place in range(10):
        assert (
            ahead.mask(tokens[:place]).words.tolist() == later.mask(tokens[:place]).words.tolist()
        )


class Counting(list[int]):
    """A list that counts how many of its tokens are read."""

    read = 0

    def __getitem__(self, index):
        found = super().__getitem__(index)
        self.read += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self):
        self.read += len(self)
        return super().__iter__()


def test_a_round_reads_the_end_of_a_long_text_alone(matcher, model, monkeypatch):
    monkeypatch.setattr(matching, "_LARGE", 0)
    text = Counting([5] * 50_000)
    one = matcher(SPEC, start=len(text))
    tokens = walk(matcher(SPEC), model, 2)[:8]
    processor = LogitsProcessor(GREEDY, model.n_vocab, one)
    logits = np.zeros((6, model.n_vocab), np.float32)
    request = Request(0, text, processor, Noise(0), 100)
    target = TableTarget(lambda before: logits[0])
    ask = request.ask(DraftStep(ANY, Budget.chain(8)), target, 1)
    for place in range(3):
        part = np.array(tokens[place : place + 5], np.int32)
        draft = Draft(part, chain_parents(5), Proposal.DETERMINISTIC, None, "x")
        guided(draft, ask)
        request.expect(draft)
        rows = request.rows(draft, Scores(logits))
        for i in range(6):
            rows(i)
        ask.over(part.tolist())
        text.append(tokens[place])
        one.take(text)
    assert text.read < 1000


def test_a_forbidden_token_is_never_read_silently(matcher, model):
    one = matcher(SPEC)
    assert one.legal([], [7, 7]) == 0
    with pytest.raises(AuditError, match="forbids"):
        one.mask([7])
    with pytest.raises(AuditError, match="forbids"):
        one.take([7])
    assert one.forced([])  # and the matcher is none the worse for it


def test_the_reply_is_over_where_nothing_but_an_end_may_follow(matcher, model):
    one = matcher(GrammarSpec.choice(["yes", "yesterday"]))
    tokens = model.tokenize("yes")
    for n in range(1, len(tokens) + 1):
        assert not one.take(tokens[:n])
    assert one.complete  # it may end here, or go on
    ends = set(model.end_ids)
    assert ends <= set(allowed(one, tokens, model))
    rest = model.tokenize("terday")
    took = [one.take([*tokens, *rest[: n + 1]]) for n in range(len(rest))]
    assert took[-1]
    assert one.over([*tokens, *rest])
    assert set(allowed(one, [*tokens, *rest], model)) == ends


def test_all_end_tokens_are_allowed_only_where_the_grammar_may_end(matcher, model):
    one = matcher(GrammarSpec.regex("[0-9]+"))
    assert len(model.end_ids) == 2
    assert not model.end_ids & set(allowed(one, [], model))
    digit = model.tokenize("7")
    assert model.end_ids <= set(allowed(one, digit, model))


@pytest.mark.parametrize(("rest", "whole"), [("", True), (' "b"', False), (' "b"?', True)])
def test_an_end_token_of_the_grammar_itself_ends_the_reply_complete_or_not(
    matcher, model, rest, whole
):
    end = next(iter(model.tokenize("<|im_end|>", special=True)))
    assert end in model.end_ids
    one = matcher(GrammarSpec("lark", f'start: "a" <|im_end|>{rest}\n'))
    tokens = [*model.tokenize("a"), end]
    for n in range(len(tokens)):
        assert one.mask(tokens[:n]).allows_token(tokens[n])
        assert not one.take(tokens[: n + 1])
    assert one.complete is whole


def test_a_draft_beyond_an_end_is_harmless(matcher, model):
    one = matcher(GrammarSpec.choice(["no"]))
    end = min(model.end_ids)
    before = [*model.tokenize("no"), end, end, 7]
    assert set(allowed(one, before, model)) == set(model.end_ids)
    assert one.mask([]).only is not None


def test_a_place_without_any_token_is_an_error_in_words(matcher, model, monkeypatch):
    one = matcher(SPEC)
    monkeypatch.setattr(one._place, "matcher", _Nothing(one._place.matcher))
    with pytest.raises(GrammarError, match="no token of this model"):
        one.mask([])


class _Nothing:
    """A matcher whose masks are empty."""

    def __init__(self, matcher: object) -> None:
        self._matcher = matcher

    def unsafe_compute_mask_ptr(self, pointer: int, size: int) -> None:
        import ctypes

        ctypes.memset(pointer, 0, size)

    def __getattr__(self, name: str) -> object:
        return getattr(self._matcher, name)


# -- a text that is cut ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "fitting"),
    [
        (GrammarSpec.choice(["yes", "ye"]), {"ye", "yes"}),
        (GrammarSpec.choice(["yes"]), {"yes"}),
        (GrammarSpec.regex("[a-z]*"), {"", "y", "ye", "yes"}),
        (
            GrammarSpec("lark", 'start: "y" rest\nrest[max_tokens=9]: /[a-z]{0,3}/'),
            {"y", "ye", "yes"},
        ),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_what_a_stop_text_leaves_of_a_reply_fits_or_not(spec, fitting, matcher, model) -> None:
    whole = [5, *model.tokenize("yes", special=False)]
    pieces = [model.piece(token).decode() for token in whole[1:]]
    assert "".join(pieces) == "yes"
    for length in range(4):
        one = matcher(spec, start=1)
        for n in range(2, len(whole) + 1):
            one.take(whole[:n])
        kept = max(n for n in range(len(pieces) + 1) if len("".join(pieces[:n])) <= length)
        rest = "yes"[len("".join(pieces[:kept])) : length]
        assert one.fits(whole[: 1 + kept], rest) == ("yes"[:length] in fitting)


def test_a_reply_that_was_cut_in_its_thinking_does_not_fit(matcher) -> None:
    one = matcher(GrammarSpec.regex("[a-z]*"), start=1, thinking=Thinking(CLOSE))
    one.take([9, WORD])
    assert not one.fits([9, WORD], "")
    one.take([9, WORD, DONE])
    assert not one.fits([9, WORD], "")
    assert one.fits([9, WORD, DONE], "")


# -- thinking ----------------------------------------------------------------------------------

THINK, DONE, WORD = 40, 41, 42


class Named:
    """A model whose marker is the texts of some tokens; all others say nothing of it."""

    def __init__(self, texts: dict[int, bytes], control: dict[int, str]) -> None:
        self._texts, self._control = texts, control

    def piece(self, token: int) -> bytes:
        return b"" if token in self._control else self._texts.get(token, b"w")

    def marker(self, token: int) -> str:
        return self._control[token]

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        return [*self._texts, *self._control]


CLOSE = ThoughtEnd("</think>", Named({}, {DONE: "</think>"}))


def test_the_grammar_begins_where_the_thinking_ends_also_inside_a_draft(matcher, model):
    one = matcher(SPEC, start=3, thinking=Thinking(CLOSE))
    prompt = [9, 9, 9]
    free = one.mask(prompt)
    assert free.allows_token(WORD)
    assert not any(free.allows_token(end) for end in model.end_ids)
    assert one.forced(prompt) == []
    inside = one.mask([*prompt, WORD, DONE])  # a draft, none of it emitted
    assert inside.words.tolist() == matcher(SPEC).mask([]).words.tolist()
    assert one.forced([*prompt, WORD, DONE]) == matcher(SPEC).forced([])
    assert one.legal(prompt, [WORD, DONE, *matcher(SPEC).forced([]), WORD]) >= 3
    for n in range(1, 3):
        assert not one.take([*prompt, WORD, DONE][: 3 + n])
    assert one.mask([*prompt, WORD, DONE]).words.tolist() == inside.words.tolist()


def test_a_reply_may_think_or_not(matcher, model):
    one = matcher(SPEC, start=1, thinking=Thinking(CLOSE, THINK))
    first = one.mask([9])
    brace = matcher(SPEC).forced([])[0]
    assert first.allows_token(THINK)
    assert first.allows_token(brace)
    assert first.count == 2
    assert one.forced([9]) == []
    one.take([9, THINK])
    assert one.mask([9, THINK]).allows_token(WORD)
    other = matcher(SPEC, start=1, thinking=Thinking(CLOSE, THINK))
    other.take([9, brace])
    assert not other.mask([9, brace]).allows_token(WORD)


def test_an_end_of_several_tokens_is_found_across_emitted_and_drafted_ones(matcher, model):
    texts = {50: b"</", 51: b"think", 52: b">\n"}
    one = matcher(SPEC, start=0, thinking=Thinking(ThoughtEnd("</think>", Named(texts, {}))))
    one.take([50])
    one.take([50, 51])
    assert one.mask([50, 51, WORD]).allows_token(WORD)
    assert not one.mask([50, 51, 52]).allows_token(WORD)


TEMPLATE = "{% if thinking %}<think>\n{% endif %}...</think>"


def test_the_template_and_the_prompt_say_whether_a_model_thinks():
    def found(template: str | None, prompt: str) -> Thinking | None:
        tokenize = {"<think>": [THINK]}.__getitem__
        return thinking(template, prompt, tokenize, {"</think>": CLOSE}.__getitem__)

    assert found(TEMPLATE, "user: hi\nassistant:") == Thinking(CLOSE, THINK)
    assert found(TEMPLATE, "hi <think>\n") == Thinking(CLOSE)
    assert found(TEMPLATE, "hi <think>\n\n</think>\n\n") is None
    assert found("no markers", "hi") is None
    assert found(None, "hi") is None


# -- grammars that are too hard to follow ------------------------------------------------------

_RULES = 12
_AMBIGUOUS = GrammarSpec(
    "lark",
    f"start: {' | '.join(f'e{i}' for i in range(_RULES))}\n"
    + "".join(f"e{i}: e{i} e{i} | A | B\n" for i in range(_RULES))
    + 'A: "x"\nB: "y"\n',
)
"""Every text of x and y fits in so many ways that llguidance gives up after some 35 of them."""


def emitted(matcher: GrammarMatcher, tokens: list[int]) -> list[int]:
    so_far: list[int] = []
    for token in tokens:
        matcher.mask(so_far)
        so_far.append(token)
        matcher.take(so_far)
    return so_far


@pytest.mark.parametrize("way", ["forced", "legal", "mask", "over"])
def test_a_draft_that_is_too_hard_to_follow_leaves_the_reply_as_it_was(matcher, model, way):
    tokens = model.tokenize("xyxyxyxyxy" * 20, special=False)
    before = emitted(one := matcher(_AMBIGUOUS), tokens[:20])
    emitted(other := matcher(_AMBIGUOUS), tokens[:20])
    expected = allowed(other, before, model)
    assert expected
    drafted = [*before, *tokens[20:120]]
    if way == "forced":
        assert one.forced(drafted) == []
    elif way == "over":
        assert not one.over(drafted)
    elif way == "mask":
        with pytest.raises(GrammarError):
            one.mask(drafted)
    else:
        one.legal(before, tokens[20:120])
        one.forced(drafted)
        assert one.legal(before, tokens[20:120]) == 0  # no draft is looked at any more
    assert allowed(one, before, model) == expected
    before.append(tokens[20])
    assert not one.take(before)
    assert allowed(one, before, model) == expected


def test_drafts_bring_no_error_that_plain_decoding_does_not_have():
    """A stop text ends the reply before the grammar becomes too hard; another reply runs beside."""
    prompt, options = "xy" * 20, Options("demo", drafter=("suffix",), draft_max=16, parallel=2)

    def asked(*, draft: bool, stop: tuple[str, ...] = (), n: int = 100) -> ReplyRequest:
        return ReplyRequest(
            prompt=prompt, max_tokens=n, seed=1, sampling=GREEDY, draft=draft, stop=stop,
            grammar=_AMBIGUOUS,
        )  # fmt: skip

    with Runtime.open(options) as runtime:
        plain = runtime.answer(asked(draft=False, n=24)).text
        for length in (18, 21):
            replies = [
                runtime.answer(asked(draft=draft, stop=(plain[:length],)))
                for draft in (False, True)
            ]
            assert [reply.finish_reason for reply in replies] == ["stop", "stop"]
            assert replies[0].tokens == replies[1].tokens
        never = tuple((token, float("-inf")) for token in runtime.ends)
        free = Sampling(temperature=1.0, logit_bias=never)
        beside = runtime.submit(ReplyRequest(prompt="Once", max_tokens=200, seed=3, sampling=free))
        with pytest.raises(GrammarError):
            runtime.answer(asked(draft=True))
        *_, last = beside
        assert len(last.reply.tokens) == 200


_LIMITED = [
    'start: x "END" y\nx[max_tokens=5]: /.*/\ny: /[a-z ]{40}/\n',
    'start: x " and " y\nx[stop="m"]: /[a-z A-Z]*/\ny: /[a-z ]{30}/\n',
]
"""llguidance cannot take these back by a token."""


@pytest.mark.parametrize("lark", _LIMITED)
@pytest.mark.parametrize("drafter", ["suffix", "model"])
def test_a_grammar_that_cannot_be_taken_back_gives_the_same_reply_with_drafts(lark, drafter):
    with Runtime.open(Options("demo", drafter=(drafter,), draft_max=4)) as runtime:
        for seed in range(4):
            plain, drafted = (
                runtime.answer(
                    ReplyRequest(
                        prompt="What is the weather?", grammar=GrammarSpec("lark", lark), seed=seed,
                        max_tokens=60, sampling=Sampling(temperature=float(seed > 0)), draft=draft,
                    )
                )
                for draft in (False, True)
            )  # fmt: skip
            assert drafted.tokens == plain.tokens
            assert drafted.finish_reason == plain.finish_reason
            assert drafted.valid == plain.valid


# -- any schema --------------------------------------------------------------------------------

_NAMES = st.text("abcxyz_", min_size=1, max_size=5)
_SCHEMAS = st.recursive(
    st.one_of(
        st.fixed_dictionaries({"type": st.just("string"), "maxLength": st.integers(0, 8)}),
        st.builds(
            lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more},
            st.integers(-100, 100),
            st.integers(0, 1000),
        ),
        st.just({"type": "boolean"}),
        st.just({"type": "null"}),
        st.builds(lambda values: {"enum": values}, st.lists(_NAMES, min_size=1, unique=True)),
    ),
    lambda inner: st.one_of(
        st.builds(
            lambda items, most: {"type": "array", "items": items, "maxItems": most},
            inner,
            st.integers(0, 3),
        ),
        st.builds(
            lambda properties: {
                "type": "object",
                "properties": properties,
                "required": sorted(properties)[::2],
                "additionalProperties": False,
            },
            st.dictionaries(_NAMES, inner, max_size=4),
        ),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


@settings(max_examples=25, deadline=None)
@given(schema=_SCHEMAS, seed=st.integers(0, 99))
def test_any_walk_through_any_schema_that_ends_is_valid(matcher, model, schema, seed):
    one = matcher(GrammarSpec.schema(schema))
    tokens = walk(one, model, seed, most=400)
    if one.complete:
        found = [token for token in tokens if token not in model.end_ids]
        jsonschema.validate(json.loads(text(model, found)), schema)
