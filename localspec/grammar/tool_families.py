"""How the families of models write calls of tools, as rules of a Lark grammar.

A marker that is a token of its own in a vocabulary cannot be spelled by other tokens; in the
grammar it is written by its id.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localspec.core.errors import UsageError

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

JSON_STYLE: JsonCompileOptions = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}
"""One way to write JSON. With free whitespace nothing is forced between two keys, and small models
write blanks without end."""

Marker = Callable[[str], int | None]
"""The id of a marker that is a token of its own; None where it is plain text."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call."""

    name: str
    parameters: Mapping[str, Any]
    """JSON schema of an object."""
    strict: bool = False
    """Whether calls must follow all of the schema; else keywords that cannot be followed are left
    out."""

    @property
    def values(self) -> Mapping[str, Mapping[str, Any]]:
        """The schemas of arguments by name; a name that is required alone has that of any other."""
        named: Mapping[str, Mapping[str, Any]] = self.parameters.get("properties", {})
        other = self.parameters.get("additionalProperties", True)
        if other is False:
            return named
        alone = (key for key in self.parameters.get("required", ()) if key not in named)
        return {**named, **dict.fromkeys(alone, other if isinstance(other, Mapping) else {})}


@dataclass(frozen=True, slots=True)
class Family:
    """One way to write calls."""

    name: str
    open: str
    """Marker that begins the first call; "" where a call is bare JSON."""
    rules: Callable[[Sequence[Tool], Marker, bool], str]
    """Lark rules for some tools, ``rest`` among them: the calls after the first ``open``; with
    several calls if the flag is set."""
    markers: tuple[str, ...]
    """All its markers; in some vocabularies they are special tokens."""
    before: str = ""
    """Regular expression of text that does not begin a call; "" for text without ``open``."""


def text(literal: str) -> str:
    """A literal in Lark."""
    return json.dumps(literal)


def marked(name: str, marker: Marker) -> str:
    """A marker in Lark: by its id where it has one."""
    known = marker(name)
    return text(name) if known is None else f"<[{known}]>"


def schema(of: Mapping[str, Any], tool: Tool) -> str:
    """JSON by a schema of a tool, in Lark."""
    style = {**JSON_STYLE, "lenient": not tool.strict}
    return "%json " + json.dumps({**of, "x-guidance": style})


def without(marker: str) -> str:
    """A Lark terminal of text that does not contain ``marker``."""
    return f"/(?s:.+)/ & ~/(?s:.*){literal(marker)}(?s:.*)/"


def literal(marker: str) -> str:
    """A marker in a regular expression of Lark."""
    return re.sub(r"[\\.+*?()|\[\]{}^$/]", r"\\\g<0>", marker)


def _named_json(tools: Sequence[Tool], arguments: str) -> str:
    """``tool``: an object of a name and its arguments."""
    options = []
    for tool in tools:
        begin = f'{{"name": {json.dumps(tool.name)}, "{arguments}": '
        options.append(f"{text(begin)} {schema(tool.parameters, tool)} {text('}')}")
    return "tool: " + "\n  | ".join(options)


def _block(marker: Marker, several: bool) -> str:
    """``rest``: calls between ``<tool_call>`` markers, after the first of them."""
    begin, end = marked("<tool_call>", marker), marked("</tool_call>", marker)
    more = f' ("\\n" {begin} body)*' if several else ""
    return f'rest: body{more}\nbody: "\\n" tool "\\n" {end}'


def _hermes(tools: Sequence[Tool], marker: Marker, several: bool) -> str:
    return f"{_block(marker, several)}\n{_named_json(tools, 'arguments')}"


def _coder(tools: Sequence[Tool], marker: Marker, several: bool) -> str:
    """Raises:
    UsageError: a strict tool has keywords that are not followed here.
    """
    for tool in tools:
        if tool.strict and (names := _not_followed(tool)):
            raise UsageError(
                f"calls of {tool.name} cannot follow {', '.join(names)} in the way in which this "
                "model calls; leave them out, or ask for no strict calls"
            )
    rules = [_block(marker, several), f"lines[suffix={text(_END)}]: /(?s:.*)/"]
    options = []
    for i, tool in enumerate(tools):
        parts = []
        required = set(tool.parameters.get("required", ()))
        shared = {k: v for k, v in tool.parameters.items() if k in {"$defs", "definitions"}}
        for j, (key, value) in enumerate(tool.values.items()):
            written = _coder_value(value, shared, tool)
            if written.startswith("/"):
                rules.append(f"V_{i}_{j}: {written}")
                written = f"V_{i}_{j}"
            rules.append(f"p_{i}_{j}: {text(f'<parameter={key}>' + chr(10))} {written}")
            parts.append(f"p_{i}_{j}" if key in required else f"p_{i}_{j}?")
        begin = text(f"<function={tool.name}>\n")
        options.append(" ".join([begin, *parts, text("</function>")]))
    return "\n".join([*rules, "tool: " + "\n  | ".join(options)])


_TELLING = frozenset({"$comment", "$id", "$schema", "default", "deprecated", "description"})
_TELLING |= {"examples", "readOnly", "title", "writeOnly"}
"""Keywords that forbid nothing."""
_OF_CALLS = frozenset({"$defs", "additionalProperties", "definitions", "properties"})
_OF_CALLS |= {"required", "type"}


def _not_followed(tool: Tool) -> list[str]:
    """Keywords of a tool that have no effect where texts stand without quotes; those of other
    values are llguidance's to refuse.
    """
    values = tool.values
    found = set(tool.parameters) - _OF_CALLS
    if not values.keys() >= set(tool.parameters.get("required", ())):
        found.add("required")
    for value in values.values():
        if chosen_texts(value) is not None:
            found |= value.keys() - {"type", "enum" if "enum" in value else "const"}
        elif value.get("type") == "string":
            lengths = (key for key in ("minLength", "maxLength") if _length(value, key) is not None)
            found |= value.keys() - {"type", *lengths}
    return sorted(found - _TELLING)


def _length(value: Mapping[str, Any], key: str) -> int | None:
    """A number of characters, which may be written as 1.0; None without one."""
    found = value.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float) or not found >= 0:
        return None
    return int(found) if math.isfinite(found) and found == int(found) else None


_END = "\n</parameter>\n"
_END_REGEX = r"\n<\/parameter>\n"


def _coder_value(value: Mapping[str, Any], shared: Mapping[str, Any], tool: Tool) -> str:
    """A value and the end of its parameter in Lark: a rule, or a terminal that begins with "/".
    Texts stand without quotes.
    """
    if (choices := chosen_texts(value)) is not None:
        return "(" + " | ".join(text(choice) for choice in choices) + f") {text(_END)}"
    if value.get("type") != "string":
        return f"{schema({**value, **shared}, tool)} {text(_END)}"
    least, most = _length(value, "minLength") or 0, _length(value, "maxLength")
    if not least and most is None:
        return "lines"
    inside = f"(?s:.{{{least},{'' if most is None else most}}})"
    return f"/{inside}{_END_REGEX}/ & ~/(?s:.*){_END_REGEX}(?s:.+)/"


def chosen_texts(value: Mapping[str, Any]) -> Sequence[str] | None:
    """The texts of which a value must be one; None where it may be something else."""
    choices: Sequence[Any] | None
    choices = value.get("enum", [value["const"]] if "const" in value else None)
    is_text = choices is not None and all(isinstance(choice, str) for choice in choices)
    return choices if is_text else None


def _mistral(tools: Sequence[Tool], marker: Marker, several: bool) -> str:
    del marker
    more = ' (", " tool)*' if several else ""
    return f'rest: " "? "[" tool{more} "]"\n{_named_json(tools, "arguments")}'


def _mistral_args(tools: Sequence[Tool], marker: Marker, several: bool) -> str:
    options = [
        f"{text(tool.name)} {marked('[ARGS]', marker)} {schema(tool.parameters, tool)}"
        for tool in tools
    ]
    more = f" ({marked('[TOOL_CALLS]', marker)} tool)*" if several else ""
    return f"rest: tool{more}\ntool: " + "\n  | ".join(options)


def _llama3(tools: Sequence[Tool], marker: Marker, several: bool) -> str:
    more = ' ("; " tool)*' if several else ""
    tag = marker("<|python_tag|>")
    begin = f"<[{tag}]>? " if tag is not None else ""
    return f"rest: {begin}tool{more}\n{_named_json(tools, 'parameters')}"


_BLOCK = ("<tool_call>", "</tool_call>")
HERMES = Family("hermes", "<tool_call>", _hermes, _BLOCK)
QWEN3_CODER = Family("qwen3-coder", "<tool_call>", _coder, _BLOCK)
MISTRAL = Family("mistral", "[TOOL_CALLS]", _mistral, ("[TOOL_CALLS]",))
MISTRAL_ARGS = Family("mistral-args", "[TOOL_CALLS]", _mistral_args, ("[TOOL_CALLS]", "[ARGS]"))
LLAMA3 = Family("llama3", "", _llama3, ("<|python_tag|>",), before=r"[^{\s](?s:.*)")
FAMILIES = {f.name: f for f in (HERMES, QWEN3_CODER, MISTRAL, MISTRAL_ARGS, LLAMA3)}


def family_of(template: str | None) -> Family | None:
    """The family whose calls a chat template writes; None where it writes none that is known."""
    source = template or ""
    if "<function=" in source and "<parameter=" in source:
        return QWEN3_CODER
    if "<tool_call>" in source:
        return HERMES
    if "[TOOL_CALLS]" in source:
        return MISTRAL_ARGS if "[ARGS]" in source else MISTRAL
    if "<|python_tag|>" in source or ("ipython" in source and '"parameters"' in source):
        return LLAMA3
    return None
