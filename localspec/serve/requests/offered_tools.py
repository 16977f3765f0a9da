"""The tools of a request, and whether the model must call one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

from msgspec import Meta, Struct

from localspec.core.errors import UsageError
from localspec.core.grammar_spec import GrammarSpec
from localspec.grammar import tools
from localspec.grammar.tool_families import Tool
from localspec.serve.http.errors import bad_request
from localspec.serve.http.json_body import shown
from localspec.serve.http.typed import Fields
from localspec.serve.http.wording import REFUSAL, FieldError
from localspec.serve.requests.generation import Name

MOST_TOOLS = 256


class OfferedTools(Struct, frozen=True):
    """The tools that a request offers to the model."""

    text: str | None = None
    """`ReplyRequest.tools`."""
    grammar: GrammarSpec | None = None
    """Makes calls well formed."""
    tools: tuple[Tool, ...] = ()
    """The tools, for the parser of the reply."""

    def fields(self, grammar: GrammarSpec | None) -> dict[str, Any]:
        """Fields of the `ReplyRequest`; ``grammar`` is what the request asks of a reply that calls
        nothing.

        Raises:
            ApiError: it asks for a grammar that calls cannot be told from.
        """
        if grammar is None or self.grammar is None:
            return {"tools": self.text, "grammar": self.grammar or grammar}
        if grammar.kind not in {"schema", "json"}:
            raise bad_request(
                "tools and a grammar of the reply that is no JSON schema exclude each other: leave "
                "out one, or set tool_choice to none",
                "tools",
            )
        return {"tools": self.text, "grammar": tools.with_answer(self.grammar, grammar)}


def offered(
    given: Sequence[Mapping[str, Any]],
    choice: str,
    *,
    several: bool,
    allowed: Sequence[str] | None = None,
) -> OfferedTools:
    """Tools as OpenAI's chat has them; ``choice`` is "none", "auto", "required" or a name. Names
    that belong to no tool are refused. The model is told of all, and may call those ``allowed``:
    so prompts that differ in that alone begin alike.

    Raises:
        ApiError: one is invalid.
    """
    if len(given) > MOST_TOOLS:
        raise bad_request(f"tools has {len(given)} tools; {MOST_TOOLS} is the most", "tools")
    if not given:
        if choice not in {"none", "auto"}:
            raise bad_request("tool_choice asks for a call, but there are no tools", "tool_choice")
        return OfferedTools()
    try:
        spec = tools.spec(given, several=several)
        names = [tool["name"] for tool in json.loads(spec.text)["tools"]]
        for name in names:
            if names.count(name) > 1:
                raise bad_request(f"tools has two tools named {name!r}", "tools")
        if choice == "none":
            return OfferedTools()
        if choice != "auto" or allowed is not None:
            may = _allowed(dict(zip(names, given, strict=True)), allowed)
            spec = tools.spec(may, choice=choice, several=several)
        found = tools.Choice.of(spec).tools
        return OfferedTools(json.dumps(list(given)), spec, found)
    except UsageError as error:
        raise bad_request(str(error), "tools") from None


def chat_tool(
    name: str | None, description: str | None, parameters: Any, *, strict: bool | None
) -> dict[str, Any]:
    """A tool as OpenAI's chat has it."""
    function = {"name": name, "description": description or "", "parameters": parameters}
    return {"type": "function", "function": function | ({"strict": True} if strict else {})}


def of_others(given: Mapping[str, Any], *own: str | None) -> list[str]:
    """What is said of the tools in a body of other types than the client's ``own``: the model is
    not told of them.
    """
    tools = given.get("tools")
    kinds = (
        [tool.get("type") for tool in tools if isinstance(tool, dict)]
        if isinstance(tools, list)
        else []
    )
    return [f"tools: {shown(kind)}" for kind in kinds if isinstance(kind, str) and kind not in own]


def _allowed(
    given: Mapping[str, Mapping[str, Any]], allowed: Sequence[str] | None
) -> list[Mapping[str, Any]]:
    """The tools that may be called, of all by their names.

    Raises:
        ApiError: one of them is not offered.
    """
    for name in allowed or ():
        if name not in given:
            said = f"tool_choice allows the tool {name!r}, which is not offered"
            raise bad_request(said, "tool_choice")
    return [tool for name, tool in given.items() if allowed is None or name in allowed]


NAME_SCHEMA: dict[str, Any] = {"pattern": "^[A-Za-z0-9_.-]{1,128}$"}
PARAMETERS_SCHEMA: dict[str, Any] = {
    "properties": {
        "type": {"const": "object"},
        "properties": {
            "type": ["object", "null"],
            "additionalProperties": {"anyOf": [{"type": "object"}, {"const": True}]},
        },
        "required": {"type": ["array", "null"], "items": {"type": "string"}},
    }
}
"""What `localspec.grammar.tools` requires of a tool's name and parameters."""
_PARAMETERS = Meta(description="a JSON schema of an object", extra_json_schema=PARAMETERS_SCHEMA)
Strict = Annotated[bool, Meta(description="refuse keywords that cannot be followed")]
ChoiceWord = Literal["none", "auto", "required"]


ALLOWED = "allowed_tools"
_OBJECT = {"type": "object"}


class Function(Fields):
    """A function that the model may call."""

    name: Annotated[str, Meta(extra_json_schema=NAME_SCHEMA)]
    description: str | None = None
    parameters: Annotated[dict[str, Any], _PARAMETERS] | None = None
    strict: Strict | None = None


class ChatTool(Fields, kw_only=True):
    """A tool of a chat."""

    type: Literal["function"] | None = None
    function: Function


class NamedFunction(Fields):
    """The function of a `NamedTool`."""

    name: Name

    def __post_init__(self) -> None:
        if self.name in get_args(ChoiceWord):
            raise FieldError("name", f"names a tool {self.name!r}, which is not offered")


class AllowedTool(Fields, kw_only=True):
    """One of `AllowedTools`."""

    type: Literal["function"] | None = None
    function: NamedFunction


class AllowedTools(Fields, kw_only=True):
    """The tools that may be called, of those that the model is told of."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[AllowedTool], Meta(min_length=1, max_length=MOST_TOOLS)]


class NamedTool(Fields, kw_only=True):
    """The tool that must be called, or those that may be."""

    also: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {
                "required": ["function"],
                "properties": {"type": {"enum": ["function", None]}, "function": _OBJECT},
            },
            {
                "required": ["type", "allowed_tools"],
                "properties": {"type": {"const": ALLOWED}, "allowed_tools": _OBJECT},
            },
        ]
    }

    type: Literal["function", "allowed_tools"] | None = None
    function: NamedFunction | None = None
    allowed_tools: AllowedTools | None = None

    def __post_init__(self) -> None:
        wanted = ALLOWED if self.type == ALLOWED else "function"
        if getattr(self, wanted) is None:
            raise FieldError(wanted, "is missing")

    @property
    def choice(self) -> str:
        """The word or the name that it comes to."""
        if self.type == ALLOWED:
            assert self.allowed_tools is not None
            return self.allowed_tools.mode
        assert self.function is not None
        return self.function.name

    @property
    def allowed(self) -> list[str] | None:
        """The names of the tools that may be called; None: all."""
        if self.type != ALLOWED or self.allowed_tools is None:
            return None
        return [tool.function.name for tool in self.allowed_tools.tools]


_CHOICE = Meta(
    extra={
        REFUSAL: 'must be none, auto, required or {"type": "function", "function": {"name": ...}}'
    }
)
ToolChoice = Annotated[ChoiceWord | NamedTool, _CHOICE]


def chat_tools(
    given: Sequence[Mapping[str, Any]] | None,
    choice: ChoiceWord | NamedTool | None,
    *,
    several: bool,
) -> OfferedTools:
    """The tools of a chat, as its body has them: the chat template is given all of their fields.

    Raises:
        ApiError: one is invalid.
    """
    if isinstance(choice, NamedTool):
        return offered(given or (), choice.choice, several=several, allowed=choice.allowed)
    return offered(given or (), choice or "auto", several=several)
