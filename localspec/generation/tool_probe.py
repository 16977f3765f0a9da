"""A conversation with a tool, to see what a chat template makes of it.

Markers alone do not tell a format: GLM's calls begin with ``<tool_call>`` like those of Hermes, but
are no JSON.
"""

from __future__ import annotations

import json
from typing import Any

from localspec.core.events import Message, MessageCall
from localspec.grammar.tool_families import Family

NAME = "localspec_probe"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "A probe.",
        "parameters": {"type": "object", "properties": {"at": {"type": "integer"}}},
    },
}
_ARGUMENTS = {"at": 1}
QUESTION = (Message("user", "."),)
CALL = (
    *QUESTION,
    Message("assistant", "", calls=(MessageCall("localspec", NAME, json.dumps(_ARGUMENTS)),)),
    Message("tool", ".", call_id="localspec", name=NAME),
)


def quotes(text: str, family: Family) -> bool:
    """Whether a prompt made of `CALL` has the call as the family writes it."""
    match family.name:
        case "qwen3-coder":
            return f"<function={NAME}>\n<parameter=at>\n1\n</parameter>\n</function>" in text
        case "mistral-args":
            return f"[TOOL_CALLS]{NAME}[ARGS]" in text
    key = "parameters" if family.name == "llama3" else "arguments"
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            value, _ = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            value = None
        if isinstance(value, dict) and value.get("name") == NAME and value.get(key) == _ARGUMENTS:
            return family.open in text[:at]
        at = text.find("{", at + 1)
    return False
