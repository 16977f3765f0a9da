"""Earlier calls of tools in a conversation, as clients send them back."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from localspec.core.errors import UsageError
from localspec.core.events import Message, MessageCall
from localspec.serve.http.json_body import shown

_MOST = 16
"""Names in a notice."""


@dataclass(frozen=True, slots=True)
class CutCall(MessageCall):
    """A call whose arguments came as a text that is no JSON object, most often since a limit had
    cut the reply inside of it. Templates take objects alone, so these have that text in one.
    """


def message_call(
    call_id: str | None, name: str, arguments: str | dict[str, Any] | None
) -> MessageCall:
    """An earlier call of a tool. No text is refused for what it says: a client that was answered
    with a call that was cut sends it back in all that follows.

    Raises:
        UsageError: there is too much in the arguments to read them in one step.
    """
    call_id = call_id or ""
    if isinstance(arguments, dict):
        return MessageCall(call_id, name, json.dumps(arguments, ensure_ascii=False))
    try:
        return MessageCall(call_id, name, arguments or "{}")
    except UsageError:
        # As answers in which arguments are JSON have them: `json_text.object_or_text`.
        text = json.dumps({"arguments": arguments}, ensure_ascii=False)
        return CutCall(call_id, name, text)


def told_of(messages: Iterable[Message]) -> tuple[str, ...]:
    """What an answer says of the calls that were cut; of very many, the first ones are named."""
    calls = itertools.chain.from_iterable(message.calls for message in messages)
    names = [*dict.fromkeys(shown(call.name) for call in calls if isinstance(call, CutCall))]
    if not names:
        return ()
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    named = ", ".join(names[:_MOST]) + more
    return (f"given to the model as a text, for they are no JSON object: arguments of {named}",)
