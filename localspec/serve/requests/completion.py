"""Requests for the rest of a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
IDS = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": LARGEST_ID},
    "minItems": 1,
}
"""The schema of the tokens of a text."""
_WRONG = "must be a string, an array of strings or of token ids"
_PROMPT = Meta(
    description="a text, texts, token ids, or several arrays of those",
    extra_json_schema={
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
            IDS,
            {"type": "array", "items": IDS, "minItems": 1},
        ]
    },
)


class CompletionBody(ChoicesBody, kw_only=True):
    """A request for the rest of texts."""

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
        request = self.reply_fields(settings, max_tokens=most)
        request["logprobs"] = self.logprobs
        if self.echo and self.logprobs is not None:
            request["prompt_logprobs"] = max(self.logprobs, self.prompt_logprobs or 0)
        return request

    def prompts(self, settings: ServeSettings) -> list[dict[str, Any]]:
        """The prompts, as fields of `ReplyRequest`; those before a ``suffix`` as gaps to be filled.

        Raises:
            ApiError: none of these, or too many.
        """
        most = settings.limits.prompts
        given = texts_or_ids(self.prompt, "prompt", most=most, things="prompts", wrong=_WRONG)
        if [] in given:
            raise bad_request("prompt has an array without token ids", "prompt")
        require_ids(given, "prompt")
        if not self.suffix:
            return [
                {"prompt": one} if isinstance(one, str) else {"prompt_tokens": tuple(one)}
                for one in given
            ]
        if self.echo:
            raise bad_request("echo is not possible with suffix: the reply is no end", "echo")
        texts = [one for one in given if isinstance(one, str)]
        if not texts:
            raise bad_request("suffix needs a prompt that is a text", "suffix")
        first = settings.suffix_first
        return [{"infill": Infill(text, self.suffix, suffix_first=first)} for text in texts]


def texts_or_ids(
    given: Any, name: str, *, most: int, things: str, wrong: str
) -> list[str | list[int]]:
    """The texts, or arrays of token ids, of a field that has one or at most ``most`` of these.

    Raises:
        ApiError: it has none of these, or too many.
    """
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        raise bad_request(f"{name} {wrong}", name)
    if _are_ids(given):
        given = [given]
    if len(given) > most:
        raise bad_request(f"{name} has {len(given)} {things}; {most} is the most", name)
    if not all(isinstance(one, str) for one in given) and not all(map(_are_ids, given)):
        raise bad_request(f"{name} {wrong}", name)
    found: list[str | list[int]] = given
    return found


def require_ids(given: Iterable[str | list[int]], name: str) -> None:
    """Refuse numbers that are no token ids.

    Raises:
        ApiError: there is one.
    """
    for ids in given:
        if not isinstance(ids, str) and any(not 0 <= token <= LARGEST_ID for token in ids):
            raise bad_request(f"{name} has a number that is not a token id", name)


def _are_ids(given: object) -> bool:
    return isinstance(given, list) and all(type(token) is int for token in given)
