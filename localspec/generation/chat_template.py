"""Conversations as prompts: the chat template, and which family of tools it writes calls for.

Markers alone do not tell a format: GLM's calls begin with ``<tool_call>`` like those of Hermes, but
are no JSON. So a conversation with a tool is rendered, to see what the template makes of it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from localspec.core.errors import (
    TemplateEndedError,
    ThinkingSwitchError,
    UnsupportedModelError,
    UsageError,
)
from localspec.core.events import Message, MessageCall
from localspec.core.interrupt import Cancelled, never
from localspec.core.processes.bounded import EndedError, TooMuchError
from localspec.generation import template_process
from localspec.generation.template_messages import for_template, one_by_one, told_in_text
from localspec.generation.template_program import (
    LONGEST_SOURCE,
    RESERVED,
    THINKING,
    BrokenTemplateError,
    Program,
    RefusedError,
    is_bounded,
    names,
)
from localspec.grammar.thinking import markers, rest_of_thought
from localspec.grammar.tool_families import Family, family_of

_PROBE = "localspec_probe"
_PROBE_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": _PROBE,
        "description": "A probe.",
        "parameters": {"type": "object", "properties": {"at": {"type": "integer"}}},
    },
}
_PROBE_ARGUMENTS = {"at": 1}
_QUESTION = (Message("user", "."),)
_CALL = (
    *_QUESTION,
    Message(
        "assistant", "", calls=(MessageCall("localspec", _PROBE, json.dumps(_PROBE_ARGUMENTS)),)
    ),
    Message("tool", ".", call_id="localspec", name=_PROBE),
)

PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ m.role | capitalize }}: {{ m.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""The template for models whose file has none."""
PLAIN_STOP = ("\nUser:",)


_SHORT = 4 << 20
"""Characters that a template may write in this process; a character may be written as ten."""


def _quotes(text: str, family: Family) -> bool:
    """Whether a prompt made of `_CALL` has the call as the family writes it."""
    match family.name:
        case "qwen3-coder":
            return f"<function={_PROBE}>\n<parameter=at>\n1\n</parameter>\n</function>" in text
        case "mistral-args":
            return f"[TOOL_CALLS]{_PROBE}[ARGS]" in text
    key = "parameters" if family.name == "llama3" else "arguments"
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            value, _ = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            value = None
        if (
            isinstance(value, dict)
            and value.get("name") == _PROBE
            and value.get(key) == _PROBE_ARGUMENTS
        ):
            return family.open in text[:at]
        at = text.find("{", at + 1)
    return False


class Template:
    """A model's chat template. It comes with a downloaded file: one that could take more time or
    memory than its messages do runs in a process with limits: see
    `localspec.generation.template_process`.
    """

    def __init__(self, source: str, *, bos: str, eos: str) -> None:
        """Compile.

        Raises:
            UnsupportedModelError: it is not valid Jinja, or too long.
        """
        if len(source) > LONGEST_SOURCE:
            raise UnsupportedModelError(
                f"the model's chat template has {len(source)} characters, and {LONGEST_SOURCE} is "
                "the most; choose another file of this model"
            )
        self._source, self._bos, self._eos = source, bos, eos
        self._variables: dict[str, Any] = {}
        self._tools: list[dict[str, Any]] = []
        self._tools_in_text = False
        self._program: Program | None = None
        self._names = 0
        try:
            if is_bounded(source):
                self._program, self._names = Program(source), names(source)
                return
            broken = self._ask({"source": source}).get("broken")
        except (BrokenTemplateError, TooMuchError) as error:
            broken = str(error)
        if broken is not None:
            raise UnsupportedModelError(f"the model's chat template is broken: {broken}")

    def switched(self, thinking: bool | None) -> Template:
        """This template with thinking switched on or off; None leaves it to the template.

        Raises:
            ThinkingSwitchError: it has no such switch.
        """
        if thinking is None:
            return self
        if not has_switch(self._source):
            raise ThinkingSwitchError("this model's chat template has no switch for thinking")
        return self.with_variables({THINKING: thinking})

    def with_variables(self, variables: Mapping[str, Any]) -> Template:
        """This template with further variables.

        Raises:
            UsageError: one of them is not a request's to set.
        """
        taken = [name for name in RESERVED if name in variables]
        if taken:
            raise UsageError(f"template arguments cannot set {taken[0]!r}")
        found = copy.copy(self)
        found._variables = {**self._variables, **variables}  # noqa: SLF001 - of the same class
        return found

    def with_tools(self, tools: Sequence[Mapping[str, Any]], *, in_text: bool) -> Template:
        """This template for a conversation with tools, each as OpenAI has it. With ``in_text`` the
        system message describes them, and messages quote calls and results as text: for templates
        that know no tools.
        """
        found = copy.copy(self)
        found._tools = [dict(tool) for tool in tools]  # noqa: SLF001 - of the same class
        found._tools_in_text = in_text  # noqa: SLF001
        return found

    def native_tools(self) -> Family | None:
        """How this template has tools called, tried out with one: it must name the tool that it is
        given, and quote a call of it in a way that is known. None otherwise.

        Raises:
            TemplateEndedError: that cannot be told now.
        """
        family = family_of(self._source)
        if family is None or "tools" not in self._source:
            return None
        probing = self.with_tools([_PROBE_TOOL], in_text=False)
        try:
            told = probing.render(_QUESTION)
            quoted = probing.render(_CALL)
        except TemplateEndedError:
            raise
        except UsageError:
            return None
        known = _PROBE in told and _quotes(quoted, family)
        return family if known else None

    def render(self, messages: Sequence[Message], cancelled: Cancelled = never) -> str:
        """The prompt that asks for the next assistant turn, or for the rest of one.

        A last message of the assistant is taken as unfinished and is continued, behind its thought
        where the template begins one. ``cancelled`` is asked while a template runs that may take
        long.

        Raises:
            UsageError: the template refuses these messages, or takes too much time or memory.
            TemplateEndedError: see there.
            Interrupted: ``cancelled`` returned true.
        """
        last, whole = None, messages
        if messages and messages[-1].role == "assistant":
            last, whole = messages[-1], messages[:-1]
            if last.calls:
                raise UsageError("the last message calls tools; their results must follow it")
            if last.reasoning and not last.content:
                raise UsageError("the last message is a thought, which cannot be continued")
        if self._tools_in_text:
            whole = told_in_text(whole, self._tools)
        variables = dict(self._variables)
        if self._tools and not self._tools_in_text:
            variables["tools"] = self._tools
        try:
            prompt = self._with_calls(whole, variables, cancelled)
        except (RefusedError, TooMuchError) as error:
            kind = TemplateEndedError if isinstance(error, EndedError) else UsageError
            raise kind(f"the model's chat template refuses this chat: {error}") from None
        if last is None:
            return prompt
        thought = rest_of_thought(prompt, last.reasoning, last.content, markers(self._source))
        return prompt + thought + last.content

    def _with_calls(
        self, messages: Sequence[Message], variables: dict[str, Any], cancelled: Cancelled
    ) -> str:
        """The text of messages. Templates want the arguments of calls as objects or as texts, and
        some refuse several calls in one message.
        """
        found = [for_template(messages, self._source)]
        if any(message.calls for message in messages):
            found.append(for_template(messages, self._source, arguments_as_text=True))
        if any(len(message.calls) > 1 for message in messages):
            found.append(for_template(one_by_one(messages), self._source))
        refused = RefusedError()
        for way in found:
            try:
                return self._rendered(way, variables, cancelled)
            except RefusedError as error:
                refused = error
        raise refused

    def _rendered(
        self, messages: list[dict[str, Any]], variables: dict[str, Any], cancelled: Cancelled
    ) -> str:
        if self._program is not None and self._is_short(messages, variables):
            return self._program.render(messages, self._bos, self._eos, variables)
        answer = self._ask(
            {
                "source": self._source,
                "messages": messages,
                "bos": self._bos,
                "eos": self._eos,
                "variables": variables,
            },
            cancelled,
        )
        if "text" not in answer:
            raise RefusedError(answer.get("refused") or answer.get("broken"))
        return str(answer["text"])

    def _is_short(self, messages: list[dict[str, Any]], variables: dict[str, Any]) -> bool:
        """Whether a bounded template can write no more than a short text: each of its names may
        write all that it is given, and its own text, once for every message.
        """
        size = sum(map(_characters, messages)) + _characters(variables)
        turns = 1 + len(messages)
        return turns * (self._names * size + len(self._source)) <= _SHORT

    def _ask(self, request: dict[str, Any], cancelled: Cancelled = never) -> dict[str, Any]:
        return template_process.shared().ask(request, cancelled)


def has_switch(source: str | None) -> bool:
    """Whether a template, None for `PLAIN_TEMPLATE`, can switch thinking on and off."""
    return THINKING in (source or "")


def _characters(values: Mapping[str, Any]) -> int:
    """How many characters a template is given, about."""
    return sum(
        len(value) if isinstance(value, str) else len(json.dumps(value))
        for value in values.values()
    )
