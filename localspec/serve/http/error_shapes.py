"""The shape of error bodies, by path: clients of each API expect their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from localspec.serve.http.errors import ApiError
from localspec.serve.http.sse import sse


class ErrorShape(Protocol):
    """Makes bodies of errors."""

    def body(self, error: ApiError) -> dict[str, Any]:
        """The JSON of an answer that is an error."""
        ...

    def event(self, error: ApiError) -> bytes:
        """The end of a stream that fails after it has begun."""
        ...


class OpenAIShape:
    """``{"error": {"message", "type", "param", "code"}}``."""

    def __init__(self, prompt: str = "messages") -> None:
        """``prompt`` is the name of the field with the prompt."""
        self._prompt = prompt

    def body(self, error: ApiError) -> dict[str, Any]:
        """The JSON of an answer that is an error."""
        body = error.body
        if error.of_prompt:
            body["error"]["param"] = self._prompt
        return body

    def event(self, error: ApiError) -> bytes:
        """The end of a stream that fails after it has begun."""
        return sse(self.body(error))


OPENAI = OpenAIShape()


class ErrorShapes:
    """OpenAI's shape, and others for the paths that begin with a prefix."""

    def __init__(self, by_prefix: Mapping[str, ErrorShape]) -> None:
        """``by_prefix`` has the paths whose errors look different."""
        self._by_prefix = dict(by_prefix)

    def shape(self, path: str) -> ErrorShape:
        """The shape of errors at a path."""
        for prefix, shape in self._by_prefix.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                return shape
        return OPENAI
