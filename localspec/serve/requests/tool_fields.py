"""The tools of a request, and whether the model must call one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.core.grammar_spec import GrammarSpec
from localspec.errors import UsageError
from localspec.grammar import tools
from localspec.grammar.tool_families import Tool
from localspec.serve.http.errors import bad_request
from localspec.serve.http.fields import Fields

MOST_TOOLS = 256


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools that a request offers to the model."""

    text: str | None = None
    """`ReplyRequest.tools`."""
    grammar: GrammarSpec | None = None
    """Makes calls well formed."""
    tools: tuple[Tool, ...] = ()
    """The tools, for the parser of the reply."""

    def fields(self, grammar: GrammarSpec | None) -> dict[str, Any]:
        """Fields of the `ReplyRequest`; ``grammar`` is what the request asks of the reply beside.

        Raises:
            ApiError: it asks for both.
        """
        if grammar is not None and self.grammar is not None:
            raise bad_request(
                "tools and a grammar of the reply (response_format and its like) exclude each "
                "other: leave out one, or set tool_choice to none",
                "tools",
            )
        return {"tools": self.text, "grammar": self.grammar or grammar}


def offered(
    given: Sequence[Mapping[str, Any]], choice: str, *, several: bool, place: str = "tools"
) -> OfferedTools:
    """Tools as OpenAI's chat has them; ``choice`` is "none", "auto", "required" or a name. Names
    that belong to no tool are refused.

    Raises:
        ApiError: one is invalid.
    """
    if len(given) > MOST_TOOLS:
        raise bad_request(f"{place} has {len(given)} tools; {MOST_TOOLS} is the most", place)
    if not given:
        if choice not in {"none", "auto"}:
            raise bad_request("tool_choice asks for a call, but there are no tools", "tool_choice")
        return OfferedTools()
    try:
        spec = tools.spec(given, several=several)
        names = [tool["name"] for tool in json.loads(spec.text)["tools"]]
        for name in names:
            if names.count(name) > 1:
                raise bad_request(f"{place} has two tools named {name!r}", place)
        if choice == "none":
            return OfferedTools()
        found = tools.Choice.of(spec).tools
        if choice != "auto":
            spec = tools.spec(given, choice=choice, several=several)
        return OfferedTools(json.dumps(list(given)), spec, found)
    except UsageError as error:
        raise bad_request(str(error), place) from None


def read_tools(fields: Fields) -> OfferedTools:
    """``tools``, ``tool_choice`` and ``parallel_tool_calls`` of a chat request.

    Raises:
        ApiError: one is invalid.
    """
    given = []
    for tool in fields.objects("tools") or ():
        tool.choice("type", ("function",))
        function = tool.object("function")
        if function is None:
            raise tool.refuse("function", "is missing")
        function.text("description")
        function.flag("strict")
        given.append(tool.as_dict())
    parallel = fields.flag("parallel_tool_calls")
    return offered(given, _choice(fields), several=parallel is not False)


def _choice(fields: Fields) -> str:
    value = fields.raw("tool_choice")
    if value is None or isinstance(value, str):
        return fields.choice("tool_choice", ("none", "auto", "required")) or "auto"
    wanted = fields.object("tool_choice")
    function = wanted.object("function") if wanted is not None else None
    name = function.text("name") if function is not None else None
    if name is None:
        raise fields.refuse(
            "tool_choice", 'must be none, auto, required or {"type": "function", "function": ...}'
        )
    if name in {"none", "auto", "required"}:
        raise fields.refuse("tool_choice", f"names a tool {name!r}, which is not offered")
    return name


__all__ = ["MOST_TOOLS", "OfferedTools", "offered", "read_tools"]
