"""Requests for the rest of a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from localspec.core.infill import Infill
from localspec.serve.http.errors import bad_request
from localspec.serve.http.settings import ServeSettings
from localspec.serve.http.typed import Foreign
from localspec.serve.requests.foreign_fields import REFUSED
from localspec.serve.requests.generation import Alternatives, ChoicesBody

LARGEST_ID = (1 << 31) - 1
_DEFAULT_TOKENS = 16
"""OpenAI's length of a reply where a request names none."""

TokenId = Annotated[int, Meta(ge=0, le=LARGEST_ID)]
_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": LARGEST_ID}}
_WRONG = "must be a string, an array of strings or of token ids"
_PROMPT = Meta(
    description="a text, texts, token ids, or several arrays of those",
    extra_json_schema={
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
            {**_IDS, "minItems": 1},
            {"type": "array", "items": {**_IDS, "minItems": 1}, "minItems": 1},
        ]
    },
)


class CompletionBody(ChoicesBody, kw_only=True):
    """The body of a request."""

    foreign: ClassVar[Mapping[str, Foreign]] = {
        **REFUSED,
        "add_special_tokens": Foreign("send token ids as the prompt", (True,)),
    }

    prompt: Annotated[Any, _PROMPT]
    max_tokens: Annotated[int, Meta(ge=-1, description="-1 is no limit")] | None = None
    logprobs: Alternatives | None = None
    echo: bool | None = None
    suffix: Annotated[str, Meta(description="the text behind the gap to be filled")] | None = None

    def request(self, settings: ServeSettings) -> dict[str, Any]:
        """The fields of `ReplyRequest` but the prompt.

        Raises:
            ApiError: one is invalid.
        """
        most = _DEFAULT_TOKENS if self.max_tokens is None else self.max_tokens
        request = self.reply_fields(settings, max_tokens=None if most == -1 else most)
        request["logprobs"] = self.logprobs
        if self.echo and self.logprobs is not None:
            request["prompt_logprobs"] = max(self.logprobs, self.prompt_logprobs or 0)
        return request

    def prompts(self, settings: ServeSettings) -> list[dict[str, Any]]:
        """The prompts, as fields of `ReplyRequest`; those before a ``suffix`` as gaps to be filled.

        Raises:
            ApiError: none of these, or too many.
        """
        found = self._prompts(settings.limits.prompts)
        if not self.suffix:
            return found
        if self.echo:
            raise bad_request("echo is not possible with suffix: the reply is no end", "echo")
        texts = [fields.get("prompt") for fields in found]
        if any(text is None for text in texts):
            raise bad_request("suffix needs a prompt that is a text", "suffix")
        first = settings.suffix_first
        return [{"infill": Infill(text or "", self.suffix, suffix_first=first)} for text in texts]

    def _prompts(self, most: int) -> list[dict[str, Any]]:
        given = self.prompt
        if isinstance(given, str):
            return [{"prompt": given}]
        if not isinstance(given, list) or not given:
            raise bad_request(f"prompt {_WRONG}", "prompt")
        if all(type(item) is int for item in given):
            return [_tokens(given)]
        if len(given) > most:
            raise bad_request(f"prompt has {len(given)} prompts; {most} is the most", "prompt")
        if all(isinstance(item, str) for item in given):
            return [{"prompt": item} for item in given]
        if not all(_are_ids(item) for item in given):
            raise bad_request(f"prompt {_WRONG}", "prompt")
        return [_tokens(item) for item in given]


def _are_ids(item: object) -> bool:
    return isinstance(item, list) and all(type(token) is int for token in item)


def _tokens(ids: list[int]) -> dict[str, Any]:
    if not ids:
        raise bad_request("prompt has an array without token ids", "prompt")
    if not all(0 <= token <= LARGEST_ID for token in ids):
        raise bad_request("prompt has a number that is not a token id", "prompt")
    return {"prompt_tokens": tuple(ids)}
