"""The prompts of /v1/completions."""

from __future__ import annotations

from typing import Any

from localspec.serve.http.fields import Fields

_LARGEST_ID = 1 << 31


def read_prompts(fields: Fields, most: int) -> list[dict[str, Any]]:
    """The prompts: a text, texts, token ids, or several arrays of those.

    Raises:
        ApiError: none of these, or too many.
    """
    given = fields.raw("prompt")
    if isinstance(given, str):
        return [{"prompt": given}]
    if not isinstance(given, list) or not given:
        raise fields.refuse("prompt", "must be a string, an array of strings or of token ids")
    if all(type(item) is int for item in given):
        return [_tokens(fields, given)]
    if len(given) > most:
        raise fields.refuse("prompt", f"has {len(given)} prompts; {most} is the most")
    if all(isinstance(item, str) for item in given):
        return [{"prompt": item} for item in given]
    if all(isinstance(item, list) and all(type(t) is int for t in item) for item in given):
        return [_tokens(fields, item) for item in given]
    raise fields.refuse("prompt", "must be a string, an array of strings or of token ids")


def _tokens(fields: Fields, ids: list[int]) -> dict[str, Any]:
    if not ids:
        raise fields.refuse("prompt", "has an array without token ids")
    if not all(0 <= token < _LARGEST_ID for token in ids):
        raise fields.refuse("prompt", "has a number that is not a token id")
    return {"prompt_tokens": tuple(ids)}


__all__ = ["read_prompts"]
