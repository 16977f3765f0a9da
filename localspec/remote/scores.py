"""Greedy replies of a remote engine with ids and log-probabilities, and scores of a prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.core.errors import RemoteError
from localspec.remote.chunk import BROKEN
from localspec.remote.client import RemoteClient
from localspec.remote.faults import broken_off, excerpt
from localspec.remote.reported import difference, find, ids, mapping, read_counters

_ANSWER_SECONDS = 600.0
_TOP = 20
"""Alternatives that are asked for: OpenAI's most."""
_LOWEST = -1e9
_RIVALS = 2
"""Alternatives of each place of a prompt: one of them at least is not the token itself."""
_ROUNDING = 1e-3
"""What a log-probability and a sum of probabilities may exceed their largest by."""
_SHOWN = 80
"""Characters of an answer that is none."""


@dataclass(frozen=True, slots=True)
class Place:
    """One token of a greedy reply."""

    token: str
    """Its text, or its bytes where those are not text."""
    logprob: float | None
    """Log-probability by the pass that emitted the token; None where the engine does not tell."""
    top: Mapping[str, float]
    """Log-probabilities of the likeliest, by text; empty where the engine does not tell."""


@dataclass(frozen=True, slots=True)
class GreedyReply:
    """A greedy reply, in one piece."""

    text: str
    """Its reasoning, where the server tells that apart, and the answer."""
    places: tuple[Place, ...]
    """Empty where the engine does not tell tokens."""
    ids: tuple[int, ...]
    prompt_ids: tuple[int, ...]
    drafted: int | None
    """None, as ``accepted``, where the server does not tell."""
    accepted: int | None


@dataclass(frozen=True, slots=True)
class Score:
    """One token of a prompt, scored."""

    logprob: float
    best: int
    """Id of the likeliest token."""
    best_logprob: float


async def greedy(client: RemoteClient, prompt: str, max_tokens: int) -> GreedyReply:
    """A greedy reply.

    Raises:
        LocalspecError: the server refuses, or answers with something else.
    """
    assert client.found is not None
    path = client.connection.address.path
    body = {
        "model": client.found.model,
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "top_p": 1,
        "seed": 1,
        "max_tokens": max_tokens,
        "logprobs": True,
        "top_logprobs": _TOP,
        "return_token_ids": True,
    }
    counted = client.found.counters
    before = await read_counters(client.connection) if counted else None
    data = await client.connection.ask(f"{path}/chat/completions", body, seconds=_ANSWER_SECONDS)
    choices = data.get("choices") if isinstance(data, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise _malformed(client, data)
    choice = choices[0]
    if str(choice.get("finish_reason")) in BROKEN:
        raise broken_off(client.connection.address, begun=False)
    text = _text(choice.get("message"))
    if text is None:
        raise _malformed(client, data)
    reported = find(data)
    if before is not None and reported is None:
        reported = difference(before, await read_counters(client.connection))
    nothing = 0 if client.found.speculation.state == "off" else None
    return GreedyReply(
        text=text,
        places=_places(mapping(choice.get("logprobs"))),
        ids=ids(choice.get("token_ids")) or (),
        prompt_ids=ids(data.get("prompt_token_ids") or choice.get("prompt_token_ids")) or (),
        drafted=reported.drafted if reported is not None else nothing,
        accepted=reported.accepted if reported is not None else nothing,
    )


async def prompt_ids(client: RemoteClient, prompt: str) -> tuple[int, ...]:
    """The token ids of a conversation of one message; () where the server does not tell them.

    Raises:
        LocalspecError: the server refuses.
    """
    assert client.found is not None
    body = {"model": client.found.model, "messages": [{"role": "user", "content": prompt}]}
    data = await client.connection.ask("/tokenize", body)
    return ids(mapping(data).get("tokens")) or ()


async def scored(client: RemoteClient, tokens: tuple[int, ...]) -> tuple[Score | None, ...]:
    """The scores of all tokens, in one request (vLLM's ``prompt_logprobs``); () where the server
    does not have that.

    Raises:
        LocalspecError: the server refuses.
    """
    assert client.found is not None
    path = client.connection.address.path
    body = {
        "model": client.found.model,
        "prompt": list(tokens),
        "max_tokens": 1,
        "temperature": 0,
        "prompt_logprobs": _RIVALS,
    }
    data = await client.connection.ask(f"{path}/completions", body, seconds=_ANSWER_SECONDS)
    choices = mapping(data).get("choices")
    choice = mapping(choices[0]) if isinstance(choices, list) and choices else {}
    given = choice.get("prompt_logprobs") or mapping(data).get("prompt_logprobs")
    if not isinstance(given, list) or len(given) < len(tokens):
        return ()
    return tuple(_score(place, token) for place, token in zip(given, tokens, strict=False))


def _score(place: object, id: int) -> Score | None:  # noqa: A002
    """The score of a token; None where nothing was compared: the prompt's first token, which
    nothing predicts, one without a rival, and values that are no probabilities of one pass.
    """
    entries = {
        int(key): value
        for key, entry in mapping(place).items()
        if key.isascii()
        and key.isdecimal()
        and len(key) < 12
        and (value := _logprob(mapping(entry).get("logprob"))) is not None
    }
    total = sum(math.exp(value) for value in entries.values())
    if id not in entries or len(entries) == 1 or not 0 < total <= 1 + _ROUNDING:
        return None
    best = max(entries, key=lambda one: (entries[one], one == id))
    return Score(entries[id], best, entries[best])


def _text(message: object) -> str | None:
    """All text of a message; None if it is none. What a server leaves out or sends as null, as
    reasoning parsers do, is empty.
    """
    found = mapping(message)
    answer, thought = found.get("content"), found.get("reasoning_content") or found.get("reasoning")
    if not isinstance(message, dict) or not isinstance(answer, str | None):
        return None
    return (thought if isinstance(thought, str) else "") + (answer or "")


def _places(logprobs: Mapping[str, Any]) -> tuple[Place, ...]:
    content = logprobs.get("content")
    if not isinstance(content, list):
        return ()
    return tuple(_place(mapping(entry)) for entry in content)


def _place(entry: Mapping[str, Any]) -> Place:
    top = entry.get("top_logprobs")
    found = dict[str, float]()
    for one in top if isinstance(top, list) else []:
        value = _logprob(mapping(one).get("logprob"))
        if (
            value is not None
        ):  # several tokens may have one text: control tokens, parts of characters
            text = _token(mapping(one))
            found[text] = max(value, found.get(text, value))
    return Place(_token(entry), _logprob(entry.get("logprob")) if found else None, found)


def _token(entry: Mapping[str, Any]) -> str:
    raw = entry.get("bytes")
    if isinstance(raw, list) and raw and all(type(b) is int and 0 <= b < 256 for b in raw):
        return bytes(raw).decode("utf-8", "backslashreplace")
    token = entry.get("token")
    return token if isinstance(token, str) else ""


def _logprob(value: object) -> float | None:
    """A log-probability; None if the value is none: a logit, for example."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= _ROUNDING:
        return None
    return float(min(max(value, _LOWEST), 0.0))


def _malformed(client: RemoteClient, data: object) -> RemoteError:
    connection = client.connection
    said = excerpt(repr(data), connection.key, _SHOWN)
    return RemoteError(f"{connection.address} answered with no reply: {said}")
