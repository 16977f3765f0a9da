"""Tools in the shape of OpenAI's responses, and the choice among them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from msgspec import Meta

from localspec.serve.http.typed import Fields
from localspec.serve.http.wording import FieldError
from localspec.serve.requests.generation import Name
from localspec.serve.requests.offered_tools import (
    ALLOWED,
    MOST_TOOLS,
    NAME_SCHEMA,
    PARAMETERS_SCHEMA,
    ChoiceWord,
    Strict,
    chat_tool,
)

_CUSTOM = "custom"
_TEXT = {"type": "string"}


class ResponseTool(Fields):
    """A tool; those of another type than ``function`` have no effect. Those of the type ``custom``
    are refused, as in a chat: they are the client's own, and the model would never call them.
    """

    also: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {
                "properties": {
                    "type": {"const": "function"},
                    "name": {"type": "string", **NAME_SCHEMA},
                    "parameters": PARAMETERS_SCHEMA,
                },
                "required": ["name"],
            },
            {"properties": {"type": {"not": {"enum": ["function", _CUSTOM]}}}},
        ]
    }

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: Strict | None = None

    def __post_init__(self) -> None:
        if self.type == _CUSTOM:
            raise FieldError("type", "must not be custom: offer a function")

    @property
    def is_function(self) -> bool:
        """Whether the model is told of it."""
        return self.type == "function"

    @property
    def as_chat(self) -> dict[str, Any]:
        """The tool as OpenAI's chat has it."""
        return chat_tool(self.name, self.description, self.parameters or {}, strict=self.strict)

    @property
    def echoed(self) -> dict[str, Any]:
        """The tool as the answer repeats it."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "strict": self.strict or False,
        }


class AllowedResponseTool(Fields, kw_only=True):
    """One of the tools that may be called."""

    type: Literal["function"] | None = None
    name: Name


class NamedResponseTool(Fields, kw_only=True):
    """The tool that must be called, or those that may be."""

    also: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {"required": ["name"], "properties": {"type": {"const": "function"}, "name": _TEXT}},
            {
                "required": ["mode", "tools"],
                "properties": {
                    "type": {"const": ALLOWED},
                    "mode": _TEXT,
                    "tools": {"type": "array"},
                },
            },
        ]
    }

    type: Literal["function", "allowed_tools"]
    name: Name | None = None
    mode: Literal["auto", "required"] | None = None
    tools: (
        Annotated[list[AllowedResponseTool], Meta(min_length=1, max_length=MOST_TOOLS)] | None
    ) = None

    def __post_init__(self) -> None:
        if self.name in get_args(ChoiceWord):
            raise FieldError("name", "must be the name of a tool")
        for wanted in ("mode", "tools") if self.type == ALLOWED else ("name",):
            if getattr(self, wanted) is None:
                raise FieldError(wanted, "is missing")

    @property
    def choice(self) -> str:
        """The word or the name that it comes to."""
        return str(self.mode if self.type == ALLOWED else self.name)

    @property
    def allowed(self) -> list[str] | None:
        """The names of the tools that may be called; None: all."""
        return [one.name for one in self.tools or ()] if self.type == ALLOWED else None
