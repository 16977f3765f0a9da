"""Messages as chat templates take them, with calls of tools and their results."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from localspec.core.events import Message

SYSTEM = ("system", "developer")
"""Roles whose messages stay when old ones are left out."""
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")
_TOLD = """You may call functions. Each is described on a line, its arguments by a JSON schema:
<tools>
{tools}
</tools>
To call one, write its name and its arguments as JSON:
<tool_call>
{{"name": "the name", "arguments": {{}}}}
</tool_call>
The results come in <tool_response> tags."""


def kept(messages: Sequence[Message], dropped: int) -> list[Message]:
    """The messages without the first ``dropped`` turns; system messages stay."""
    if not dropped:
        return list(messages)
    turns = [m for m in messages if m.role not in SYSTEM]
    return [*(m for m in messages if m.role in SYSTEM), *turns[dropped:]]


def for_template(
    messages: Sequence[Message], source: str, *, arguments_as_text: bool = False
) -> list[dict[str, Any]]:
    """Messages as the template with this source takes them.

    System messages at the beginning become one: most templates have room for one alone. Mistral's
    templates demand ids of nine letters and digits, so other ids are replaced by a hash of theirs.
    """
    short = "TOOL_CALLS]" in source
    roles = () if "developer" in source else ("developer",)
    found = []
    for message in _joined(messages, apart="developer" in source):
        role = "system" if message.role in roles else message.role
        one: dict[str, Any] = {"role": role, "content": message.content}
        if message.reasoning:
            one["reasoning_content"] = message.reasoning
        if message.calls:
            one["tool_calls"] = [
                {
                    "id": _short_id(call.id) if short else call.id,
                    "type": "function",
                    "function": {
                        "name": call.name,
                        "arguments": call.arguments
                        if arguments_as_text
                        else json.loads(call.arguments),
                    },
                }
                for call in message.calls
            ]
        if message.call_id:
            one["tool_call_id"] = _short_id(message.call_id) if short else message.call_id
        if message.name:
            one["name"] = message.name
        found.append(one)
    return found


def _joined(messages: Sequence[Message], *, apart: bool) -> list[Message]:
    """The messages with those of the system at the beginning as one; with ``apart``, as they are
    where they differ in their role.
    """
    n = next((i for i, m in enumerate(messages) if m.role not in SYSTEM), len(messages))
    if n < 2 or (apart and len({m.role for m in messages[:n]}) > 1):
        return list(messages)
    text = "\n\n".join(message.content for message in messages[:n])
    return [Message(messages[0].role, text), *messages[n:]]


def one_by_one(messages: Sequence[Message]) -> list[Message]:
    """The messages, several calls in one as turns of one call and its result each. Without an id,
    the k-th result after a turn is that of its k-th call.
    """
    results = {m.call_id: m for m in messages if m.role == "tool" and m.call_id}
    found: list[Message] = []
    told: set[str] = set()
    moved = 0
    """Results without an id that follow, and already stand behind their calls."""
    for place, message in enumerate(messages):
        if message.role == "tool" and message.call_id in told:
            continue
        if message.role == "tool" and not message.call_id and moved:
            moved -= 1
            continue
        if len(message.calls) < 2:
            found.append(message)
            continue
        without_id = _results_without_id(messages, place + 1)
        for i, call in enumerate(message.calls):
            text, thought = ("", "") if i else (message.content, message.reasoning)
            found.append(Message("assistant", text, thought, (call,)))
            if call.id in results and call.id not in told:
                told.add(call.id)
                found.append(results[call.id])
            elif call.id not in results and (result := next(without_id, None)) is not None:
                moved += 1
                found.append(result)
    return found


def _results_without_id(messages: Sequence[Message], place: int) -> Iterator[Message]:
    """The results from a place on, up to the next message that is none."""
    while place < len(messages) and messages[place].role == "tool":
        if not messages[place].call_id:
            yield messages[place]
        place += 1


def _short_id(name: str) -> str:
    if _SHORT_ID.fullmatch(name):
        return name
    number, digits = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]), ""
    for _ in range(9):
        number, digit = divmod(number, len(_DIGITS))
        digits += _DIGITS[digit]
    return digits


def told_in_text(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """A conversation for a template that knows no tools: the system message describes them, and
    calls and results are quoted as text, in the way of Hermes.
    """
    found: list[Message] = []
    if tools:
        lines = (json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
        found.append(Message("system", _TOLD.format(tools="\n".join(lines))))
    results: list[str] = []
    """The texts of results since the last other message: they become one message of the user."""

    def told() -> None:
        if results:
            found.append(Message("user", "\n".join(results)))
            results.clear()

    for message in messages:
        if message.role == "tool" and not message.calls:
            results.append(f"<tool_response>\n{message.content}\n</tool_response>")
            continue
        told()
        if message.calls:
            parts = [
                message.content,
                *(_quoted(call.name, call.arguments) for call in message.calls),
            ]
            found.append(Message("assistant", "\n".join(filter(None, parts)), message.reasoning))
        else:
            found.append(message)
    told()
    n = next((i for i, m in enumerate(found) if m.role not in SYSTEM), len(found))
    # The client's own system message first: it says who the model is.
    return [*found[1:n], found[0], *found[n:]] if tools else found


def _quoted(name: str, arguments: str) -> str:
    call = {"name": name, "arguments": json.loads(arguments)}
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"
