"""Grammars are tried out in a process with limits, and what they cost while they are followed is
counted."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from faults import grammars
from llguidance import LLMatcher

from localspec.core.errors import GrammarError, Interrupted, QueueFullError, UsageError
from localspec.core.grammar_spec import GrammarSpec
from localspec.generation.grammars import Grammars
from localspec.grammar import checking, place, reading, rehearsal
from localspec.grammar.checking import Checker
from localspec.grammar.compiling import compiled, limits

PRIME = '{"type": "integer", "multipleOf": %d}'
PERSON = GrammarSpec.schema(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)


@pytest.fixture(scope="module")
def checker(vocabulary: Any) -> Checker:
    return Checker(lambda: vocabulary)


def test_a_grammar_that_has_no_end_is_refused_and_the_next_one_works(checker: Checker) -> None:
    for prime in (9999991, 2**31 - 1):
        with pytest.raises(UsageError, match=r"too costly to follow|fuel exhausted") as refused:
            checker.checked(GrammarSpec.schema(PRIME % prime))
        assert len(str(refused.value).splitlines()) == 1
    assert checker.checked(PERSON).grammar == compiled(PERSON)


def test_a_file_with_such_a_schema_is_refused_before_a_model_is_loaded() -> None:
    with pytest.raises(UsageError, match="too costly to follow"):
        reading.schema(PRIME % 9999991)


def test_a_schema_with_the_words_of_an_error_is_refused_for_what_is_wrong(checker: Checker) -> None:
    """The library's errors repeat what they are about; in ours it was looked for too long."""
    with pytest.raises(UsageError, match="cannot be followed: Invalid URI"):
        checker.checked(GrammarSpec.schema({"$ref": "nimplemented keys: [" * 40_000}))


@pytest.mark.parametrize(
    ("limit", "least", "reason"),
    [
        ("BUILD_SECONDS", -1.0, "seconds to prepare"),
        ("STEP_SECONDS", -1.0, "a single token takes"),
        ("MOST_BYTES", -1, "MB of memory"),
    ],
)
def test_each_limit_of_a_rehearsal_refuses(
    limit: str, least: float, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsal.rehearse(PERSON, None, {}, rehearsal.single_bytes())
    monkeypatch.setattr(rehearsal, limit, least)
    with pytest.raises(UsageError, match=reason):
        rehearsal.rehearse(PERSON, None, {}, rehearsal.single_bytes())


@pytest.mark.parametrize(("branches", "depth"), [(240, 500), (500, 1340)])
def test_a_costly_place_far_behind_the_rehearsal_meets_limits(branches: int, depth: int) -> None:
    text, path = grammars.late(branches, depth, 59)
    grammar = grammars.checker().checked(GrammarSpec.lark(text)).grammar
    matcher = LLMatcher(grammars.vocabulary(), grammar, log_level=0, limits=limits())
    matcher.try_consume_tokens([grammars.single()[byte] for byte in path.encode()])
    matcher.compute_bitmask()
    assert matcher.is_error()
    assert "items" in matcher.get_error()


def test_a_grammar_that_every_reply_fails_at_is_refused_before() -> None:
    many = {f"property-{i}": {"type": "string"} for i in range(600)}
    schema = {"type": "object", "properties": many, "additionalProperties": False}
    with pytest.raises(UsageError, match=r"Current row has .* items"):
        grammars.checker().checked(GrammarSpec.schema(schema))
    few = {"type": "object", "properties": dict(itertools.islice(many.items(), 150))}
    assert grammars.checker().checked(GrammarSpec.schema(few))


def test_nobody_waits_for_a_grammar_that_is_not_wanted_any_more(checker: Checker) -> None:
    asked = itertools.count()
    with pytest.raises(Interrupted):
        checker.checked(GrammarSpec.schema(PRIME % 9999991), cancelled=lambda: next(asked) > 1)
    assert checker.checked(PERSON).size < 1 << 20


def test_a_process_that_dies_in_a_grammar_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking.rehearsal, "MEMORY", 1)
    checking.shared.cache_clear()
    with pytest.raises(UsageError, match="too costly to follow"):
        Checker().checked(GrammarSpec.schema(PRIME % 99991))
    checking.shared().close()
    checking.shared.cache_clear()


def test_a_grammar_whose_process_was_killed_is_tried_out_again(model: Any) -> None:
    one, spec = Grammars(model), GrammarSpec.schema(PRIME % 19979)

    def kill() -> bool:
        for process in [*checking.shared()._used]:
            process._process.kill()
        return False

    with pytest.raises(QueueFullError, match="try again later"):
        one._checked(spec, None, kill)
    assert one._checked(spec, None, lambda: False).grammar


def test_a_reply_whose_grammar_takes_too_long_ends(matcher, monkeypatch) -> None:
    one = matcher(PERSON, 3)
    monkeypatch.setattr(place, "BURST_SECONDS", -1.0)
    with pytest.raises(GrammarError, match="takes too long here"):
        one.mask([5, 5, 5])


def test_looking_ahead_ends_where_it_takes_long_and_the_reply_does_not(
    matcher, monkeypatch
) -> None:
    one = matcher(PERSON, 3)
    monkeypatch.setattr(place, "AHEAD_SECONDS", -1.0)
    forced = one.forced([5, 5, 5])
    assert forced
    assert one.forced([5, 5, 5]) == []
    assert one.mask([5, 5, 5]).allows_token(forced[0])
    with pytest.raises(GrammarError, match="through drafts"):
        one.mask([5, 5, 5, forced[0]])
    assert not one.take([5, 5, 5, forced[0]])
    assert one.mask([5, 5, 5, forced[0]]).count


def test_a_costly_grammar_is_started_again_once(matcher, monkeypatch) -> None:
    monkeypatch.setattr(place, "_CHEAP_SECONDS", -1.0)
    one = matcher(PERSON, 3)
    one._place.start_again()
    assert one.mask([5, 5, 5]).count
    with pytest.raises(GrammarError, match="once more from its beginning"):
        one._place.start_again()


@pytest.mark.parametrize("seed", range(25))
def test_a_random_grammar_that_passes_is_cheap_to_follow(seed: int, tmp_path) -> None:
    assert grammars.grammars(random.Random(seed), tmp_path) is None


def test_the_search_finds_what_the_rehearsal_would_let_pass(monkeypatch) -> None:
    grammar = compiled(GrammarSpec.schema(json.loads(PRIME % 9973)))
    chance = random.Random(1)
    monkeypatch.setattr(grammars, "BUILD_SECONDS", 1e-3)
    assert "a matcher takes" in (grammars.followed(grammar, chance) or "")
    monkeypatch.setattr(grammars, "BUILD_SECONDS", 60.0)
    monkeypatch.setattr(grammars, "GROWTH", 1 << 16)
    assert "a matcher grows" in (grammars.followed(grammar, chance) or "")
    monkeypatch.setattr(grammars, "TOKEN_SECONDS", 1e-9)
    assert "takes" in (grammars.followed(compiled(PERSON), chance) or "")
