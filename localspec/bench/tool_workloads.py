"""Two more kinds of work of `localspec bench`: calls of tools, and answers after their results.

Calls are forced by the grammar that `serve` has for ``tool_choice: "required"``: a model that was
never trained to call does so too, and so every model can be measured. Names, keys and marks of
such a call are partly forced tokens, which cost no guess: the bench says which share they are, and
how many of the others that were drafted were accepted.
"""

from __future__ import annotations

import json

from localspec.bench.workloads import Workload
from localspec.core.events import Message, MessageCall
from localspec.core.reply_request import ReplyRequest
from localspec.grammar import tools


def _tool(name: str, about: str, **properties: str) -> dict[str, object]:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
    }
    function = {"name": name, "description": about, "parameters": schema}
    return {"type": "function", "function": function}


_TOOLS = [
    _tool("read_file", "Read a text file.", path="string"),
    _tool("search_files", "Find lines that contain words.", words="string", folder="string"),
    _tool("add", "Add two whole numbers.", a="integer", b="integer"),
]
_OFFERED = json.dumps(_TOOLS)
_LOG = (
    "src/harbour/store.py:14: def opens(day):\n"
    'src/harbour/store.py:15:     return None if day == "sunday" else 8\n'
    "src/harbour/ferry.py:31: def departures(day):\n"
    'src/harbour/ferry.py:32:     return [7, 9, 12, 17] if day != "sunday" else [9, 17]\n'
)
_NOTE = (
    "Minutes of the harbour council\nLena Berg showed the plan for the new bridge.\n"
    "The town pays 40,000 of it, the ferry company 25,000.\nWork begins on the 3rd of March.\n"
)


def _called(question: str) -> ReplyRequest:
    """A question whose reply has to be a call."""
    return ReplyRequest(
        (Message("user", question),),
        tools=_OFFERED,
        grammar=tools.spec(_TOOLS, choice="required", several=False),
    )


def _answered(question: str, name: str, arguments: dict[str, str], result: str) -> ReplyRequest:
    """A question, the call that was made for it, and its result."""
    call = MessageCall("call_1", name, json.dumps(arguments))
    return ReplyRequest(
        (
            Message("user", question),
            Message("assistant", "", calls=(call,)),
            Message("tool", result, call_id="call_1", name=name),
        ),
        tools=_OFFERED,
    )


_CALLS = (
    "Read the file docs/harbour/minutes-2024-03.md and tell me what it says.",
    "Search the folder src/harbour for the words def opens.",
    "Use the tool to add 27 and 45.",
)
_QUOTED = (
    "Read docs/minutes.md and repeat it word for word.",
    "Find the lines with def in src/harbour and print them all.",
    "Read docs/minutes.md. Who pays what? Quote the line.",
)
_MINUTES = {"path": "docs/minutes.md"}
_FOUND = {"words": "def", "folder": "src/harbour"}

TOOL_WORKLOADS = (
    Workload("tool calls", _CALLS, tuple(map(_called, _CALLS))),
    Workload(
        "tool results",
        _QUOTED,
        (
            _answered(_QUOTED[0], "read_file", _MINUTES, _NOTE),
            _answered(_QUOTED[1], "search_files", _FOUND, _LOG),
            _answered(_QUOTED[2], "read_file", _MINUTES, _NOTE),
        ),
    ),
)
