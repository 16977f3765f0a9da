"""Calls of tools: a grammar under which they cannot be malformed, and what a reply calls."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from localspec.core.errors import UsageError
from localspec.core.grammar_spec import GrammarSpec, require_shallow
from localspec.grammar.call_splitter import CallSplitter, held_back  # noqa: F401 - docs name it here
from localspec.grammar.reply_parts import WholeReply
from localspec.grammar.tool_families import (
    FAMILIES,
    JSON_STYLE,
    Family,
    Marker,
    Tool,
    literal,
    marked,
    without,
)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call in a reply."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """The tools of a request and whether it must call one, from a spec of the kind "tools"."""

    tools: tuple[Tool, ...]
    required: bool
    """Whether the reply is calls alone; else text, with or without calls after it."""
    several: bool
    """Whether it may call more than once."""
    family: str | None
    """Name of a family; None: that of the chat template."""
    answer: Mapping[str, Any] | None = None
    """JSON schema of a reply that calls nothing; None: any text."""

    @classmethod
    def of(cls, spec: GrammarSpec) -> Choice:
        """The content of a spec.

        Raises:
            UsageError: it is none, no tools, or no such tool or family.
        """
        data = _read(spec.text)
        tools = tuple(
            Tool(tool["name"], tool["parameters"], tool["strict"])
            for tool in map(_tool, data["tools"])
        )
        wanted = data["choice"]
        if wanted not in {"auto", "required"}:
            tools = tuple(tool for tool in tools if tool.name == wanted)
            if not tools:
                raise UsageError(f"there is no tool {wanted!r} to be called")
        if data["family"] is not None and data["family"] not in FAMILIES:
            raise UsageError(f"no such way to call tools: {data['family']!r}")
        answer = data.get("answer")
        return cls(tools, wanted != "auto", data["several"], data["family"], answer)


_FIELDS: dict[str, Any] = {
    "tools": list,
    "choice": str,
    "several": bool,
    "family": str | None,
    "answer": dict | None,
}
"""Keys of the JSON of a spec of the kind "tools", see `spec` and `with_answer`."""


def _read(text: str) -> dict[str, Any]:
    """The fields of a spec of the kind "tools".

    Raises:
        UsageError: it has not these.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    given = {"answer": None, **data} if isinstance(data, dict) else {}
    for name, kind in _FIELDS.items():
        if name not in given or not isinstance(given[name], kind):
            raise UsageError(
                f'a grammar of the kind "tools" is a JSON object with {", ".join(_FIELDS)}; '
                f"{name} is missing, or of a wrong type"
            )
    if not all(isinstance(tool, dict) for tool in given["tools"]):
        raise UsageError("the tools are not objects")
    return given


def spec(
    tools: Iterable[Mapping[str, Any]],
    *,
    choice: str = "auto",
    several: bool = True,
    family: str | None = None,
) -> GrammarSpec:
    """A grammar for replies that may call ``tools``, each as OpenAI has it or a mapping with
    "name" and "parameters".

    ``choice`` is "auto" (text, calls, or both), "required" (calls alone) or the name of the one to
    call; ``family`` a name of `FAMILIES`, by default the one of the model's chat template.

    Raises:
        UsageError: no tools, or one without a proper name or parameters.
    """
    found = [_tool(tool) for tool in tools]
    if not found:
        raise UsageError("there are no tools to call")
    made = GrammarSpec(
        "tools",
        json.dumps({"tools": found, "choice": choice, "several": several, "family": family}),
    )
    Choice.of(made)
    return made


def with_answer(calls: GrammarSpec, answer: GrammarSpec) -> GrammarSpec:
    """The grammar of replies that call tools, as ``calls`` says, or are JSON, as ``answer`` says, a
    spec of the kind "schema" or "json". Replies that must call something stay calls alone.
    """
    schema = {"type": "object"} if answer.kind == "json" else json.loads(answer.text)
    return GrammarSpec("tools", json.dumps({**json.loads(calls.text), "answer": schema}))


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function", tool)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", name):
        raise UsageError("a tool needs a name of letters, digits, '_', '.' and '-'")
    parameters = function.get("parameters")
    parameters = {} if parameters is None else parameters
    try:
        if not _is_schema_of_object(parameters):
            raise UsageError(f"the parameters of {name} are not a JSON schema of an object")
        require_shallow(parameters)
    except RecursionError:
        raise UsageError(f"the parameters of {name} are nested too deep") from None
    closed = {"additionalProperties": False, **parameters, "type": "object"}
    properties = parameters.get("properties") or {}
    closed["properties"] = {key: {} if of is True else of for key, of in properties.items()}
    return {"name": name, "parameters": closed, "strict": function.get("strict") is True}


def _is_schema_of_object(parameters: Any) -> bool:
    if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
        return False
    properties, required = parameters.get("properties"), parameters.get("required")
    if properties is not None and not (
        isinstance(properties, Mapping)
        and all(isinstance(of, Mapping) or of is True for of in properties.values())
    ):
        return False
    return required is None or (
        isinstance(required, list) and all(isinstance(key, str) for key in required)
    )


def lark(choice: Choice, family: Family, marker: Marker) -> str:
    """The grammar of the replies of one family in Lark's syntax, for llguidance.

    Text without a call may contain anything but what begins one.

    Raises:
        UsageError: an answer in JSON cannot be told from a call.
    """
    rules = family.rules(choice.tools, marker, choice.several)
    if choice.answer is not None and not choice.required:
        if not family.open:
            raise UsageError(
                "this model writes calls as JSON without a marker, so that they cannot be told "
                "from an answer in JSON: leave out the tools or the format of the answer"
            )
        style = json.dumps({**choice.answer, "x-guidance": JSON_STYLE})
        begin = marked(family.open, marker)
        return f"start: answer | {begin} rest\nanswer: %json {style}\n{rules}"
    if not family.open:
        # Text that spells the marker of a call would be read as one.
        spelled = " ".join(f"& ~/{literal(tag)}[{{](?s:.*)/" for tag in family.markers)
        free = f"start: TEXT | rest\nTEXT: /{family.before}/ {spelled}"
        return f"{'start: rest' if choice.required else free}\n{rules}"
    begin, known = marked(family.open, marker), marker(family.open)
    if choice.required:
        return f"start: {begin} rest\n{rules}"
    if known is not None:
        return f"start: TEXT | TEXT? {begin} rest\nTEXT: {without(family.open)}\n{rules}"
    lead = f"lead[suffix={begin}]: /(?s:.*)/"
    return f"start: TEXT | lead rest\n{lead}\nTEXT: {without(family.open)}\n{rules}"


def calls(family: Family, reply: str, tools: Iterable[Tool] = ()) -> tuple[str, list[ToolCall]]:
    """The text before the calls of a reply, and the calls, as the grammar has them written.

    ``reply`` has its markers as text. Of a reply that was cut, the calls whose arguments are whole
    are returned, and of one that keeps to no grammar those before the first that is no JSON.
    ``tools`` say which arguments are texts, where a family does not write quotes.
    """
    splitter = CallSplitter(family, tuple(tools), "")
    whole = WholeReply.of([*splitter.feed(reply), *splitter.finish()])
    before = reply.partition(family.open)[0] if family.open else whole.content
    found: list[ToolCall] = []
    with contextlib.suppress(json.JSONDecodeError):
        found.extend(ToolCall(c.name, json.loads(c.arguments)) for c in whole.calls if c.complete)
    return before, found
