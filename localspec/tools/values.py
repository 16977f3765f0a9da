"""Values: a tool that is offered, the result of a call, the state of a server.

What servers send becomes text for a model: parts that are no text are named, not shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from localspec.core.errors import ToolError
from localspec.core.safe_text import safe_line, safe_text

LARGEST_NAME = 64
"""Characters of the name by which a model calls a tool; servers elsewhere allow no more."""
LARGEST_DESCRIPTION = 1024
LARGEST_SCHEMA = 32_768
"""Characters of one tool's schema as JSON."""
MOST_TOOLS = 128
"""Tools of one server."""
LARGEST_RESULT = 200_000
"""Characters of a result that leave the process of a server; less is shown to the model."""
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_TAGS = re.compile(r"<(?=/?\s*(?:tool_response|tool_call|tool_result|tools)\b)", re.IGNORECASE)


def prefix(server: str) -> str:
    """What the names begin with by which a model calls the tools of a server."""
    return f"{_UNFIT.sub('_', server)}__"


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as the model is told of it."""

    server: str
    """The name that the user gave to its server; "" for those of localspec."""
    tool: str
    """Its name at the server."""
    description: str
    schema: Mapping[str, Any]
    """JSON schema of an object: its arguments."""

    @property
    def name(self) -> str:
        """The name by which the model calls it. It begins with the user's own name of the server,
        so that no server can offer a tool in the name of another.
        """
        return prefix(self.server) + self.tool if self.server else self.tool

    @property
    def place(self) -> str:
        """Server and tool, as the user sees them and as permission is given."""
        return f"{self.server}/{self.tool}" if self.server else self.tool

    @property
    def as_openai(self) -> dict[str, Any]:
        """The tool as chat templates take it."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.schema),
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call, as the model reads it: made harmless by `quoted`."""

    text: str
    failed: bool = False
    """Whether the tool, or its server, says that it failed."""
    seconds: float = 0.0


Phase = Literal["waiting", "starting", "ready", "failed", "off"]


@dataclass(frozen=True, slots=True)
class ServerState:
    """State of a server, and what it offers."""

    phase: Phase = "waiting"
    error: str = ""
    """Why it failed."""
    about: str = ""
    """Its own name and version."""
    tools: tuple[OfferedTool, ...] = ()
    left_out: tuple[str, ...] = ()
    """A line for each tool that is not offered, and why."""
    prompts: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    known: Mapping[str, str] = field(default_factory=dict)
    """What its prompts and resources are, by name."""


def quoted(text: str, most: int) -> str:
    """A result as the model and the user read it: nothing that a terminal obeys or that nobody
    sees, no tag that ends a result or begins a call, and not longer than ``most`` characters.

    Control tokens are broken where the prompt is made (`localspec.generation.quoting`).
    """
    shown = _TAGS.sub("< ", safe_text(text[: most + 1]))
    if len(text) <= most:
        return shown
    return f"{shown[:most]}\n… (cut here: {most:,} of {len(text):,} characters)"


def offered(server: str, tool: Mapping[str, Any]) -> OfferedTool:
    """A tool of a server.

    Raises:
        ToolError: it cannot be offered, with the reason.
    """
    name, schema = tool.get("name"), tool.get("schema")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", name):
        raise ToolError(f"{safe_line(str(name))[:60]!r} is no name for a tool")
    description = safe_text(str(tool.get("description") or ""))
    if len(description) > LARGEST_DESCRIPTION:
        description = f"{description[:LARGEST_DESCRIPTION]}…"
    if not isinstance(schema, Mapping):
        raise ToolError(f"{name} has no schema of its arguments")
    found = OfferedTool(server, name, description, schema)
    if len(found.name) > LARGEST_NAME:
        raise ToolError(f"{name}: its name has more than {LARGEST_NAME} characters with its server")
    return found


def as_text(result: Any) -> str:
    """The text of a ``CallToolResult``."""
    parts = [_part(one) for one in result.content]
    if not any(parts) and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    return _joined(parts)


def prompt_text(result: Any) -> str:
    """The text of a ``GetPromptResult``; messages of the assistant are marked."""
    parts = []
    for message in result.messages:
        text = _part(message.content)
        parts.append(text if message.role == "user" else f"(as the assistant) {text}")
    return _joined(parts)


def resource_text(result: Any) -> str:
    """The text of a ``ReadResourceResult``."""
    return _joined([_resource(one) for one in result.contents])


def _joined(parts: list[str]) -> str:
    """Cut with its length told, so that the reader knows how much there was."""
    text = "\n".join(part for part in parts if part)
    if len(text) <= LARGEST_RESULT:
        return text
    return f"{text[:LARGEST_RESULT]}\n… (cut here: {len(text):,} characters in all)"


def _part(part: Any) -> str:
    match part.type:
        case "text":
            return str(part.text)
        case "image" | "audio":
            return f"({part.type} of {len(part.data) * 3 // 4:,} bytes, which is not shown)"
        case "resource":
            return _resource(part.resource)
        case "resource_link":
            return f"(resource {str(part.uri)[:300]})"
    return f"(a part of the kind {str(part.type)[:40]}, which is not shown)"


def _resource(resource: Any) -> str:
    text = getattr(resource, "text", None)
    if text is not None:
        return str(text)
    return f"(bytes of {str(resource.uri)[:300]}, which are not shown)"
