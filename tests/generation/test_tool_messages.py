"""Conversations with tools are told by the model's own template, or in text where it cannot."""

from __future__ import annotations

import json

import pytest
from runnables import Letters

from localspec.core.errors import ContextError, TemplateEndedError, UsageError
from localspec.core.events import Message, MessageCall
from localspec.core.reply_request import ReplyRequest
from localspec.generation.chat_template import Template
from localspec.generation.fitting import fit
from localspec.generation.prompt import PromptBuilder
from localspec.generation.template_messages import one_by_one, told_in_text
from localspec.grammar.thinking import begun, markers

MANY = 100_000
"""Of what would take minutes, were each put to all before it."""
TOOL = {"name": "look", "description": "Look it up.", "parameters": {"type": "object"}}
TOOLS = json.dumps([TOOL])
CALL = MessageCall("call_1", "look", '{"at": "é"}')
CHAT = (
    Message("system", "Be brief."),
    Message("user", "Look!"),
    Message("assistant", "", "Hm.", (CALL,)),
    Message("tool", "a bird", call_id="call_1", name="look"),
    Message("tool", "a cat", call_id="call_2"),
)
TOLD = "{% if tools %}{% for t in tools %}<tools>{{ t | tojson }}</tools>{% endfor %}{% endif %}"
HERMES = (
    TOLD + "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "{% endfor %}"
)
TEXTUAL = (
    "{% for t in tools or [] %}{{ t['function']['name'] }}{% endfor %}"
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
    '[TOOL_CALLS][{"name": "{{ c.function.name }}", "arguments": '
    "{{ c.function.arguments + '}]' + c.id }}{% endfor %}{{ m.tool_call_id }}{% endfor %}"
)
GLM = (
    TOLD + "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
    "<tool_call>{{ c.function.name }}{% for k, v in c.function.arguments.items() %}"
    "<arg_key>{{ k }}</arg_key><arg_value>{{ v }}</arg_value>{% endfor %}</tool_call>"
    "{% endfor %}{% endfor %}"
)
SINGLE = HERMES.replace(
    "{% for c in",
    "{% if (m.tool_calls or []) | length > 1 %}{{ raise_exception('one at once') }}{% endif %}"
    "{% for c in",
)
PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


class Bytes(Letters):
    """A model whose tokens are characters."""

    def tokenize(self, text: str, *, special: bool = False, bos: bool = False) -> list[int]:
        return [ord(c) for c in text]


def prompt(template: str, messages=CHAT, **fields) -> str:
    builder = PromptBuilder(Bytes(template), 1 << 20)
    return builder.chat(ReplyRequest(messages, **fields)).text


def test_a_template_that_knows_tools_is_given_them_with_calls_as_objects() -> None:
    text = prompt(HERMES, tools=TOOLS)
    assert text == (
        f"<tools>{json.dumps({'type': 'function', 'function': TOOL})}</tools><system>Be brief."
        "<user>Look!<assistant><think>Hm.</think>"
        '<tool_call>{"name": "look", "arguments": {"at": "é"}}</tool_call>'
        "<tool>a bird<tool>a cat"
    )


def test_a_template_that_wants_arguments_as_text_gets_them_so() -> None:
    text = prompt(TEXTUAL, tools=TOOLS)
    assert text.startswith("lookBe brief.Look![TOOL_CALLS]")
    assert '"arguments": {"at": "é"}}]' in text
    shortened = text.partition("}}]")[2][:9]
    assert shortened.isalnum()
    assert f"a bird{shortened}" in text  # the result still names its call


def test_a_template_without_tools_is_told_in_the_system_message() -> None:
    text = prompt(PLAIN, tools=TOOLS)
    assert text.startswith("<system>Be brief.\n\nYou may call functions.")
    assert json.dumps(TOOL) in text
    assert text.endswith(
        '<user>Look!<assistant><tool_call>\n{"name": "look", "arguments": {"at": "é"}}\n'
        "</tool_call><user><tool_response>\na bird\n</tool_response>\n<tool_response>\na cat\n"
        "</tool_response>"
    )
    builder = PromptBuilder(Bytes(PLAIN), 999)
    assert builder.native_tools is None
    assert builder.family(ReplyRequest(CHAT, tools=TOOLS)).name == "hermes"
    assert builder.family(ReplyRequest(CHAT)) is None
    assert "You may call" not in prompt(PLAIN)  # a chat with calls, and none possible now
    assert "<tool_response>" in prompt(PLAIN)


def test_countless_results_are_put_together_once() -> None:
    results = [Message("tool", "a" * 100, call_id=str(i)) for i in range(MANY)]
    one = Message("tool", "b", call_id="1")
    chat = [CHAT[1], CHAT[2], *results, Message("user", "And?"), CHAT[2], one]
    _, _, told, asked, _, last = told_in_text(chat, [])
    wrapped = f"<tool_response>\n{'a' * 100}\n</tool_response>"
    assert told == Message("user", "\n".join([wrapped] * MANY))
    assert (asked.content, last.content) == ("And?", "<tool_response>\nb\n</tool_response>")


def test_a_template_that_mentions_tools_but_never_names_one_does_not_count() -> None:
    lazy = "{% if tools %}<tool_call>{% endif %}" + PLAIN
    assert PromptBuilder(Bytes(lazy), 999).native_tools is None
    assert PromptBuilder(Bytes(HERMES), 999).native_tools.name == "hermes"
    assert PromptBuilder(Bytes(TEXTUAL), 999).native_tools.name == "mistral"


def test_a_template_that_could_not_be_tried_out_once_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ended(*_: object) -> str:
        raise TemplateEndedError("its process was ended")

    builder = PromptBuilder(Bytes(HERMES), 999)
    with monkeypatch.context() as now:
        now.setattr(Template, "render", ended)
        with pytest.raises(TemplateEndedError):
            builder.family(ReplyRequest(CHAT, tools=TOOLS))
    assert builder.native_tools.name == "hermes"


def test_a_template_whose_calls_are_written_in_an_unknown_way_is_told_in_text() -> None:
    assert PromptBuilder(Bytes(GLM), 999).native_tools is None
    text = prompt(GLM, tools=TOOLS)
    assert "You may call functions." in text
    assert "<arg_key>" not in text


def test_several_calls_in_one_message_become_several_turns_where_one_is_all_that_is_allowed() -> (
    None
):
    other = MessageCall("call_2", "look", "{}")
    chat = (
        CHAT[1],
        Message("assistant", "So.", calls=(CALL, other)),
        Message("tool", "a bird", call_id="call_1"),
        Message("tool", "a cat", call_id="call_2"),
    )
    assert prompt(HERMES, chat, tools=TOOLS).count("<assistant>") == 1
    text = prompt(SINGLE, chat, tools=TOOLS).partition("</tools>")[2]
    assert text == (
        '<user>Look!<assistant>So.<tool_call>{"name": "look", "arguments": {"at": "é"}}</tool_call>'
        '<tool>a bird<assistant><tool_call>{"name": "look", "arguments": {}}</tool_call>'
        "<tool>a cat"
    )


def test_results_without_ids_are_told_in_their_order_where_one_call_is_all_that_is_allowed() -> (
    None
):
    calls = (MessageCall("", "look", "{}"), MessageCall("", "hear", "{}"))
    chat = (
        CHAT[1],
        Message("assistant", "", calls=calls),
        Message("tool", "a bird"),
        Message("tool", "a song"),
        Message("assistant", "Both."),
        Message("user", "Again"),
    )
    assert [m.content or m.calls[0].name for m in one_by_one(chat)] == [
        *("Look!", "look", "a bird", "hear", "a song", "Both.", "Again")
    ]


def test_the_developer_is_the_system_where_a_template_knows_none() -> None:
    chat = (Message("developer", "A"), Message("system", "B"), Message("user", "C"))
    assert prompt(PLAIN, chat) == "<system>A\n\nB<user>C"
    knows = "{% if x == 'developer' %}{% endif %}" + PLAIN
    assert prompt(knows, chat) == "<developer>A<system>B<user>C"


def test_later_system_messages_keep_their_place() -> None:
    chat = (Message("user", "A"), Message("system", "B"), Message("user", "C"))
    assert prompt(PLAIN, chat) == "<user>A<system>B<user>C"


def test_arguments_of_the_template_are_set_and_some_are_not_a_requests_to_set() -> None:
    assert prompt("{{ mood }}{{ messages[0].content }}", template_arguments='{"mood": "!"}') == (
        "!Be brief."
    )
    with pytest.raises(UsageError, match="cannot set 'messages'"):
        prompt(PLAIN, template_arguments='{"messages": []}')
    for bad in ("[]", "{", "[" * 99_999):
        with pytest.raises(UsageError, match=r"template arguments|inside each other"):
            ReplyRequest(CHAT, template_arguments=bad)
    with pytest.raises(UsageError, match="the tools are not"):
        ReplyRequest(CHAT, tools='{"name": "f"}')
    with pytest.raises(UsageError, match="the tools are not"):
        prompt(PLAIN, tools="[1]")


def test_calls_without_results_are_not_answered() -> None:
    with pytest.raises(UsageError, match="results must follow"):
        prompt(HERMES, CHAT[:3])


@pytest.mark.parametrize("arguments", ["", "[]", "{", "[" * 99_999])
def test_arguments_of_a_call_are_an_object(arguments: str) -> None:
    with pytest.raises(UsageError, match=r"'look' are not a JSON object|inside each other"):
        MessageCall("1", "look", arguments)


def test_a_result_keeps_its_question_when_old_messages_go() -> None:
    template = Template(HERMES, bos="", eos="")
    old = [Message("user", "x" * 80), Message("assistant", "y" * 80)]
    made = fit([*old, *CHAT], template, lambda t: list(t.encode()), 240, 10)
    assert made.dropped == 2
    assert made.text.startswith("<system>Be brief.<user>Look!")
    with pytest.raises(ContextError, match=r"the prompt is too long: \d+ tokens > 240 maximum"):
        fit([*old, *CHAT], template, lambda t: list(t.encode()), 240, 10, drop=False)


def test_where_thinking_begins_and_ends_is_read_from_the_template_and_the_prompt() -> None:
    assert markers(None) == markers(PLAIN) == ()
    qwen = markers("...<think>...</think>...")
    assert qwen == ("<think>", "</think>")
    assert markers("x.split('</think>')") == qwen
    assert markers("<|channel|>analysis<|message|><|channel|>final<|message|>")[-1] == (
        "<|end|><|start|>assistant<|channel|>final<|message|>"
    )
    assert begun("<user>A<assistant><think>\n", "", qwen)
    assert begun("<assistant><think>It is", "<think>It is", qwen)
    assert not begun("<assistant><think>It</think>is", "<think>It</think>is", qwen)
    assert not begun("<user>What is <think>?<assistant>", "", qwen)
    said = "\n<think>It is"  # as the reader of a reply, which leaves white space out before it
    assert begun(f"<assistant>{said}", said, qwen)
    assert not begun("<think>", "", ())


@pytest.mark.parametrize("before", ["", "<think>\nHm.\n</think>\n\n"])
def test_an_answer_that_mentions_the_marker_of_a_thought_is_continued_as_an_answer(
    before: str,
) -> None:
    qwen, said = ("<think>", "</think>"), "In such prompts <think> begins the tho"
    assert not begun(f"<assistant>{before}{said}", said, qwen)
    named = "<think> is the marker that ope"
    assert begun(f"<assistant>{before}{named}", named, qwen) == (not before)
    thought = "It is about <think>"
    assert begun(f"<assistant><think>\n{thought}", thought, qwen)


OPENS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant><think>GAP{# </think> #}{% endif %}"
)


@pytest.mark.parametrize(
    ("gap", "thought", "said", "written"),
    [
        ("\n", "Because 2+2.", "The answer", "<think>\nBecause 2+2.\n</think>\n\nThe answer"),
        ("", "Because 2+2.", "The answer", "<think>Because 2+2.</think>The answer"),
        ("\n", "", "Because", "<think>\nBecause"),  # as it is where thinking stays in the answer
        ("\n", "Hm.", "Because</think>The", "<think>\nBecause</think>The"),
    ],
)
def test_an_answer_is_continued_behind_its_thought_where_the_template_begins_one(
    gap: str, thought: str, said: str, written: str
) -> None:
    source = OPENS.replace("GAP", gap)
    text = prompt(source, (Message("user", "2+2?"), Message("assistant", said, thought)))
    assert text == f"<user>2+2?<assistant>{written}"
    assert begun(text, said, markers(source)) == (not thought)
    closed = source.replace("<think>" + gap, "<think></think>")
    for template in (closed, PLAIN):
        text = prompt(template, (Message("user", "2+2?"), Message("assistant", said, thought)))
        assert text.removeprefix("<user>2+2?").removeprefix("<assistant><think></think>") == said


@pytest.mark.parametrize(
    ("longest", "words"), [(0, "or raise --ctx"), (99, "or raise --ctx"), (8, "at most 8")]
)
def test_a_larger_context_is_advised_only_where_the_model_has_learnt_one(
    longest: int, words: str
) -> None:
    template = Template(PLAIN, bos="", eos="")
    long = [Message("user", "x" * 20)]
    with pytest.raises(ContextError) as refused:
        fit(long, template, lambda text: [ord(c) for c in text], 8, 1, longest=longest)
    assert str(refused.value).endswith(words)
