"""A reply is divided the same way however it is cut into pieces, and no marker shows as text."""

from __future__ import annotations

import itertools
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core.events import ReplyFormat
from localspec.grammar.call_splitter import TaggedCalls
from localspec.grammar.reply_parts import CallEnd, WholeReply
from localspec.grammar.reply_reader import ReplyParser
from localspec.grammar.thinking import markers
from localspec.grammar.tool_families import FAMILIES, Tool

THINK = ("<think>", "</think>")
HARMONY = markers("<|channel|>analysis<|message|> <|channel|>final<|message|>")
TOOLS = (
    Tool(
        "get.weather",
        {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "note": {}},
        },
    ),
    Tool("stop", {"type": "object", "properties": {}}),
)
CITY = 'R}o"m\\e <tool_call> {é\n</parameter> [TOOL_CALLS]'
ARGUMENTS = {"city": CITY, "days": 2, "note": {"a": ["}", 1]}}
AS_JSON = json.dumps(ARGUMENTS, ensure_ascii=False)
CALLS = {
    "hermes": (
        f'<tool_call>\n{{"name": "get.weather", "arguments": {AS_JSON}}}\n</tool_call>\n'
        '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
    ),
    "qwen3-coder": (
        f"<tool_call>\n<function=get.weather>\n<parameter=city>\n{CITY}\n</parameter>\n"
        f"<parameter=days>\n2\n</parameter>\n<parameter=note>\n{json.dumps(ARGUMENTS['note'])}\n"
        "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=stop>\n</function>\n"
        "</tool_call>"
    ),
    "mistral": (
        f'[TOOL_CALLS][{{"name": "get.weather", "arguments": {AS_JSON}}}, '
        '{"name": "stop", "arguments": {}}]'
    ),
    "mistral-args": f"[TOOL_CALLS]get.weather[ARGS]{AS_JSON}[TOOL_CALLS]stop[ARGS]{{}}",
    "llama3": (
        f'<|python_tag|>{{"name": "get.weather", "parameters": {AS_JSON}}}; '
        '{"name": "stop", "parameters": {}}'
    ),
}
BEFORE = "Let < me <tool see.\n"


def parsed(
    pieces, form: ReplyFormat, *, cut: bool = False, of=TOOLS, reasoning: bool = True
) -> WholeReply:
    parser = ReplyParser(form, of, reasoning=reasoning)
    parts = [part for piece in pieces for part in parser.feed(piece)]
    return WholeReply.of([*parts, *parser.finish(cut=cut)])


def shown(reply: WholeReply) -> tuple:
    return reply.reasoning, reply.content, [(call.name, call.arguments) for call in reply.calls]


def said(family: str) -> tuple[str, str]:
    """A whole reply, and its text before the calls."""
    before = "" if family == "llama3" else BEFORE
    return f"\n<think>\nHm, </thin or <tool_call>?\n\n</think>\n\n{before}{CALLS[family]}", before


@pytest.mark.parametrize("family", FAMILIES)
def test_every_border_gives_the_same_parts(family: str) -> None:
    text, before = said(family)
    form = ReplyFormat(THINK, tools=family)
    whole = parsed([text], form)
    assert whole.reasoning == "Hm, </thin or <tool_call>?"
    assert whole.content == before.rstrip()
    assert [call.name for call in whole.calls] == ["get.weather", "stop"]
    assert [json.loads(call.arguments) for call in whole.calls] == [ARGUMENTS, {}]
    assert len({call.id for call in whole.calls}) == 2
    for at in range(len(text) + 1):
        assert shown(parsed([text[:at], text[at:]], form)) == shown(whole)
    assert shown(parsed(text, form)) == shown(whole)  # character by character


@pytest.mark.parametrize("family", FAMILIES)
@given(cuts=st.lists(st.integers(0, 999), max_size=12))
def test_any_pieces_give_the_same_parts(family: str, cuts: list[int]) -> None:
    text, _ = said(family)
    edges = sorted({0, len(text), *(cut % len(text) for cut in cuts)})
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    form = ReplyFormat(THINK, tools=family)
    assert shown(parsed(pieces, form)) == shown(parsed([text], form))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_reply_that_is_cut_anywhere_shows_the_beginning_of_its_parts_and_no_marker(
    family,
) -> None:
    text, _ = said(family)
    form = ReplyFormat(THINK, tools=family)
    reasoning, content, calls = shown(parsed([text], form))
    for at in range(len(text)):
        cut = parsed([text[:at]], form, cut=True)
        # White space before a place that is not known yet may show.
        assert reasoning.startswith(cut.reasoning)
        assert content.startswith(cut.content.rstrip())
        assert len(cut.calls) <= 2
        for got, (name, arguments) in zip(cut.calls, calls, strict=False):
            assert got.name == name
            assert arguments.startswith(got.arguments)


@given(st.text("<tol_cal>/hink {}\n[]a", max_size=40), st.booleans())
def test_text_without_markers_is_text_whatever_it_resembles(text: str, thinks: bool) -> None:
    for family in ("hermes", "mistral", "mistral-args", "qwen3-coder"):
        reply = parsed(text, ReplyFormat(THINK, thinks, family))
        if FAMILIES[family].open in text or any(marker in text for marker in THINK):
            continue
        assert (reply.reasoning, reply.content) == ((text.strip(), "") if thinks else ("", text))
        assert not reply.calls


def test_thinking_that_the_prompt_began_needs_no_marker() -> None:
    reply = parsed(["Hm.\n</thi", "nk>\n\nHel", "lo</think>"], ReplyFormat(THINK, thinks=True))
    assert (reply.reasoning, reply.content) == ("Hm.", "Hello</think>")
    reply = parsed(["Hm. "], ReplyFormat(THINK, thinks=True))
    assert (reply.reasoning, reply.content) == ("Hm.", "")
    assert parsed([" </think>A"], ReplyFormat(THINK, thinks=True)).content == "A"
    assert parsed([" </think>A"], ReplyFormat(THINK)).content == "A"  # an empty thought


def test_channels_are_thinking_and_answer() -> None:
    text = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello"
    )
    for pieces in ([text], text):
        reply = parsed(pieces, ReplyFormat(HARMONY))
        assert (reply.reasoning, reply.content) == ("Hm.", "Hello")
    direct = parsed("<|channel|>final<|message|>Hello", ReplyFormat(HARMONY))
    assert (direct.reasoning, direct.content) == ("", "Hello")


def test_thinking_stays_in_the_answer_where_that_is_asked_for() -> None:
    parser = ReplyParser(ReplyFormat(THINK), reasoning=False)
    reply = WholeReply.of([*parser.feed("<think>A</think>B"), *parser.finish()])
    assert (reply.reasoning, reply.content) == ("", "<think>A</think>B")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_in_a_thinking_that_stays_in_the_answer_is_text_and_one_behind_it_is_a_call(
    family: str,
) -> None:
    before = "" if family == "llama3" else BEFORE
    thought = f"\n<think>\nPerhaps {CALLS[family]}?\n</think>\n\n"
    text, form = f"{thought}{before}{CALLS[family]}", ReplyFormat(THINK, tools=family)
    whole = parsed([text], form, reasoning=False)
    assert whole.content == thought + before.rstrip()
    assert [(c.name, json.loads(c.arguments)) for c in whole.calls] == [
        ("get.weather", ARGUMENTS),
        ("stop", {}),
    ]
    assert whole.reasoning == ""
    for pieces in (text, [text[:7], text[7:60], text[60:]]):
        assert shown(parsed(pieces, form, reasoning=False)) == shown(whole)


@given(st.text("<tol_cal>/hink {}\n[]a", max_size=40), st.booleans(), st.booleans())
def test_thinking_that_stays_in_the_answer_loses_no_character(
    text: str, thinks: bool, cut: bool
) -> None:
    reply = parsed(text, ReplyFormat(THINK, thinks), cut=cut, reasoning=False)
    assert (reply.reasoning, reply.content) == ("", text)


def test_arguments_come_as_they_are_written() -> None:
    parser = ReplyParser(ReplyFormat(tools="hermes"), TOOLS)
    parser.feed('<tool_call>\n{"name": "get.weather", "arguments": ')
    (part,) = parser.feed('{"city": "Ro')
    assert part.text == '{"city": "Ro'
    assert parser.finish() == [CallEnd(0, complete=False)]


def test_without_tools_calls_are_text() -> None:
    text = CALLS["hermes"]
    assert parsed([text], ReplyFormat(THINK)).content == text
    assert parsed([text], ReplyFormat(THINK, tools="hermes"), of=()).content == text


def test_beginnings_of_calls_that_do_not_end_are_looked_through_once() -> None:
    since = time.thread_time()
    assert not TaggedCalls("", ()).feed("<function=" * 20_000)
    assert time.thread_time() - since < 5  # 17 s, were each read to the end
