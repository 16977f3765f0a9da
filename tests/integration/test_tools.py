"""Calls of tools and thinking whose markers are control tokens, from the model to its parts."""

from __future__ import annotations

import json
import math
from pathlib import Path

import gguf_tools
import pytest

from localspec import Message, Options, ReplyRequest, Runtime, Sampling
from localspec.core.events import Finished, MessageCall, ReplyEvent, ReplyFormat, Token
from localspec.grammar import compiling, tools
from localspec.grammar.reply_parts import CallBegin, CallEnd, WholeReply
from localspec.grammar.reply_reader import ReplyReader

TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {
            "type": "object",
            "properties": {"at": {"type": "string", "maxLength": 9}, "far": {"type": "boolean"}},
            "required": ["at", "far"],
        },
    },
}
CONTROLS = ("[TOOL_CALLS]", "<think>", "</think>")
TEMPLATE = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.tool_calls %}[TOOL_CALLS]["
    "{% for c in m.tool_calls %}{{ c.function | tojson }}{{ '' if loop.last else ', ' }}"
    "{% endfor %}]{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
    "{{ '<think>\n' if enable_thinking else '' }}{# </think> #}"
)
CHAT = (Message("user", "Look!"),)
SPEC = tools.spec([TOOL], choice="required", several=False)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory):
    path: Path = tmp_path_factory.mktemp("model") / "target.gguf"
    gguf_tools.write_llama(path, context=1024, template=TEMPLATE, controls=CONTROLS, seed=4)
    with Runtime.open(Options(model=str(path), drafter=("suffix",))) as found:
        yield found


def events(runtime: Runtime, **fields) -> list[ReplyEvent]:
    (begin,) = runtime.pair.target_model.tokenize("<think>", special=True)
    calm = Sampling(logit_bias=((begin, -math.inf),))
    asked = {
        "seed": 0,
        "sampling": calm,
        "tools": json.dumps([TOOL]),
        "grammar": SPEC,
        "markers": True,
        **fields,
    }
    return list(runtime.submit(ReplyRequest(CHAT, **asked)))


def whole(found: list[ReplyEvent]) -> WholeReply:
    return WholeReply.of(ReplyReader(tools.Choice.of(SPEC).tools).parts(found))


def test_a_call_is_read_from_control_tokens(runtime):
    found = events(runtime, max_tokens=200)
    assert found[0] == ReplyFormat(("<think>", "</think>"), tools="mistral")
    assert isinstance(found[-1], Finished)
    reply = found[-1].reply
    assert reply.finish_reason == "stop"
    assert reply.text.startswith("[TOOL_CALLS]")
    assert "".join(event.text for event in found if isinstance(event, Token)) == reply.text
    parsed = whole(found)
    assert parsed.content == ""
    for call in parsed.calls:
        assert call.name == "look"
        assert set(json.loads(call.arguments)) == {"at", "far"}
    parts = ReplyReader(tools.Choice.of(SPEC).tools).parts(found)
    assert isinstance(parts[0], CallBegin)
    assert isinstance(parts[-1], CallEnd)


def test_markers_are_no_text_where_nobody_asked_for_them(runtime):
    found = events(runtime, max_tokens=200, markers=False)
    assert not isinstance(found[0], ReplyFormat)
    assert isinstance(found[-1], Finished)
    assert "[TOOL_CALLS]" not in found[-1].reply.text
    shown = events(runtime, max_tokens=200)
    assert isinstance(shown[-1], Finished)
    assert found[-1].reply.tokens == shown[-1].reply.tokens


def test_calls_follow_the_thinking_that_the_prompt_has_begun(runtime):
    (end,) = runtime.pair.target_model.tokenize("</think>", special=True)
    sampling = Sampling(temperature=1.0, logit_bias=((end, 3.0),))
    found = events(
        runtime, template_arguments='{"enable_thinking": true}', sampling=sampling, max_tokens=700
    )
    assert found[0] == ReplyFormat(("<think>", "</think>"), True, "mistral")
    assert isinstance(found[-1], Finished)
    assert "</think>" in found[-1].reply.text
    reader = ReplyReader(tools.Choice.of(SPEC).tools)
    parsed = WholeReply.of(reader.parts(found))
    assert reader.reasoning_tokens > 0
    assert "think>" not in parsed.reasoning + parsed.content
    assert [call.name for call in parsed.calls] == ["look"] * len(parsed.calls)
    assert parsed.calls


def test_the_next_turn_begins_with_the_tokens_of_the_call(runtime):
    """The template quotes the model's own words, so none of them is read again."""
    found = events(runtime, max_tokens=200)
    assert isinstance(found[-1], Finished)
    calls = whole(found).calls
    quoted = tuple(MessageCall(call.id, call.name, call.arguments) for call in calls)
    results = tuple(Message("tool", "a bird", call_id=call.id) for call in calls)
    again = ReplyRequest(
        (*CHAT, Message("assistant", "", calls=quoted), *results),
        tools=json.dumps([TOOL]),
        max_tokens=1,
    )
    stats = runtime.answer(again).stats
    before = found[-1].reply.stats
    assert stats.cached_tokens >= before.prompt_tokens + before.emitted - 2


def test_a_grammar_that_was_compiled_is_not_compiled_again(runtime, monkeypatch):
    events(runtime, max_tokens=1)
    monkeypatch.setattr(compiling, "compiled", lambda *_: pytest.fail("compiled again"))
    events(runtime, max_tokens=1)
