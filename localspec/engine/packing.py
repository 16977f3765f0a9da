"""Events of a reply as JSON values, and back.

A token, the most frequent event, is a list ``[token id, text, origin, drafter or null]``. Where the
request asked for logprobs it has a fifth item, ``[chosen, [top, ...]]``, with chosen and each top
alternative as ``[token id, text, logprob]``. ``prompt_scored`` has such an item, or null, for each
of its tokens. Other events are objects with the fields of their class.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

from localspec.core import codec
from localspec.core.emitted import Origin, PromptScored, TokenLogprob, TokenLogprobs
from localspec.core.events import (
    Finished,
    Notice,
    Reading,
    ReplyEvent,
    ReplyFormat,
    Round,
    Speculation,
    Speedup,
    Token,
)
from localspec.core.reply_request import Tokenized

_KINDS: dict[str, type[ReplyFormat | Reading | Round | Notice | Finished]] = {
    "format": ReplyFormat,
    "reading": Reading,
    "round": Round,
    "notice": Notice,
    "finished": Finished,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_SCORED = "prompt_scored"
_ORIGINS = {origin.value: origin for origin in Origin}
_COUNTS = [field.name for field in dataclasses.fields(Round) if field.type == "int"]
_TIMES = [field.name for field in dataclasses.fields(Round) if field.type == "float"]
_ROUND_FIELDS = {field.name for field in dataclasses.fields(Round)}
_SPECULATION_FIELDS = {field.name for field in dataclasses.fields(Speculation)}
_SPEEDUP_FIELDS = {field.name for field in dataclasses.fields(Speedup)}


def packed(event: ReplyEvent) -> Any:
    """The JSON value of an event."""
    if isinstance(event, Token):
        token = [event.token, event.text, event.origin.value, event.source]
        return token if event.logprobs is None else [*token, _packed_place(event.logprobs)]
    if isinstance(event, Round):
        return _packed_round(event)
    if isinstance(event, PromptScored):
        return {
            "type": _SCORED,
            "start": event.start,
            "tokens": list(event.tokens),
            "logprobs": [place and _packed_place(place) for place in event.logprobs],
        }
    return {"type": _NAMES[type(event)], **codec.encode(event)}


def unpacked(data: object) -> ReplyEvent:
    """The event that a JSON value encodes. Tokens and rounds are checked without type hints.

    Raises:
        CodecError: it is none.
    """
    if isinstance(data, list) and len(data) in {4, 5}:
        return _token(*data)
    if not isinstance(data, dict):
        raise codec.CodecError("events: expected an object, or a list of 4 items for a token")
    name = data.pop("type", None)
    if name == _SCORED:
        return _scored(data)
    if name == "round":
        return _round(data)
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise codec.CodecError("events: an event of no known type")
    return codec.decode(kind, data, str(name))


def _packed_round(event: Round) -> dict[str, Any]:
    """The same as `codec.encode` of a round, without a look at every value's type."""
    speculation, speedup = event.speculation, event.speedup
    found: dict[str, Any] = {name: getattr(event, name) for name in _ROUND_FIELDS}
    for name in _TIMES:
        found[name] = _packed_number(found[name])
    found["speculation"] = {name: getattr(speculation, name) for name in _SPECULATION_FIELDS}
    if speedup is not None:
        found["speedup"] = {
            name: _packed_number(getattr(speedup, name)) for name in _SPEEDUP_FIELDS
        }
    return {"type": "round", **found}


def packed_text(found: Tokenized) -> dict[str, Any]:
    """The JSON value of a text with its tokens, of which there may be hundreds of thousands."""
    return {"text": found.text, "tokens": list(found.tokens), "pieces": list(found.pieces)}


def unpacked_text(data: object) -> Tokenized:
    """The text and tokens that a JSON value encodes; one of an unusual shape is checked, or
    refused, by its type hints.

    Raises:
        CodecError: it is none.
    """
    if isinstance(data, dict) and data.keys() == {"text", "tokens", "pieces"}:
        text, tokens, pieces = data["text"], data["tokens"], data["pieces"]
        lists = isinstance(tokens, list) and isinstance(pieces, list)
        if lists and {type(text), *map(type, pieces)} == {str} and {*map(type, tokens)} <= {int}:
            return Tokenized(text, tuple(tokens), tuple(pieces))
    return codec.decode(Tokenized, data, "tokenized.tokenized")


def _packed_number(value: float) -> Any:
    return value if math.isfinite(value) else codec.encode(value)


def _token(token: Any, text: Any, origin: Any, source: Any, *place: Any) -> Token:
    if (
        type(token) is not int
        or type(text) is not str
        or type(origin) is not str
        or origin not in _ORIGINS
        or not (source is None or type(source) is str)
    ):
        raise codec.CodecError("token: expected [token id, text, origin, drafter or null]")
    return Token(token, text, _ORIGINS[origin], source, *map(_place, place))


def _round(data: dict[str, Any]) -> Round:
    """A round; one of an unusual shape is checked, or refused, by its type hints."""
    if (
        data.keys() != _ROUND_FIELDS
        or any(type(data[name]) is not int for name in _COUNTS)
        or any(type(data[name]) is not float or not math.isfinite(data[name]) for name in _TIMES)
        or type(data["source"]) is not str
    ):
        return codec.decode(Round, data, "round")
    speculation, speedup = _speculation(data["speculation"]), _speedup(data["speedup"])
    return Round(**{**data, "speculation": speculation, "speedup": speedup})


def _speedup(data: object) -> Speedup | None:
    if data is None:
        return None
    if isinstance(data, dict) and data.keys() == _SPEEDUP_FIELDS:
        factor, error = data["factor"], data["error"]
        if type(factor) is float is type(error) and math.isfinite(factor) and math.isfinite(error):
            return Speedup(factor, error)
    return codec.decode(Speedup, data, "round.speedup")


def _speculation(data: object) -> Speculation:
    if not isinstance(data, dict) or data.keys() != _SPECULATION_FIELDS:
        return codec.decode(Speculation, data, "round.speculation")
    values = data["state"], data["reason"], data["brief"]
    if not all(value is None or type(value) is str for value in values):
        return codec.decode(Speculation, data, "round.speculation")
    return _known_speculation(*values)


@functools.lru_cache(maxsize=16)  # it changes a few times in a reply
def _known_speculation(state: str, reason: str | None, brief: str | None) -> Speculation:
    data = {"state": state, "reason": reason, "brief": brief}
    return codec.decode(Speculation, data, "round.speculation")


def _scored(data: dict[str, Any]) -> PromptScored:
    tokens, places = data.get("tokens"), data.get("logprobs")
    if (
        set(data) != {"start", "tokens", "logprobs"}
        or type(data["start"]) is not int
        or not isinstance(tokens, list)
        or not all(type(token) is int for token in tokens)
        or not isinstance(places, list)
        or len(places) != len(tokens)
    ):
        raise codec.CodecError(f"{_SCORED}: expected start, tokens and as many logprobs")
    return PromptScored(
        data["start"],
        tuple(tokens),
        tuple(None if place is None else _place(place) for place in places),
    )


def _packed_place(place: TokenLogprobs) -> list[Any]:
    return [_packed_logprob(place.chosen), [_packed_logprob(one) for one in place.top]]


def _packed_logprob(one: TokenLogprob) -> list[Any]:
    return [one.token, one.text, codec.encode(one.logprob)]


def _place(data: object) -> TokenLogprobs:
    if not isinstance(data, list) or len(data) != 2 or not isinstance(data[1], list):
        raise codec.CodecError("logprobs: expected [chosen, [top, ...]]")
    return TokenLogprobs(_logprob(data[0]), tuple(_logprob(one) for one in data[1]))


def _logprob(data: object) -> TokenLogprob:
    if not isinstance(data, list) or len(data) != 3:
        raise codec.CodecError("logprob: expected [token id, text, logprob]")
    token, text, logprob = data
    if type(token) is not int or type(text) is not str:
        raise codec.CodecError("logprob: expected [token id, text, logprob]")
    if type(logprob) is not float or not math.isfinite(logprob):
        logprob = codec.decode(float, logprob, "logprob")
    return TokenLogprob(token, text, logprob)
