"""What servers send as text for a model: parts that are no text are named, not shown."""

from __future__ import annotations

import json
from typing import Any

from localspec.tools.values import LARGEST_RESULT


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
