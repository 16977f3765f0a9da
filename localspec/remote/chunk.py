"""The events of a streamed reply in OpenAI's shape, read strictly."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.core import json_text
from localspec.core.emitted import Origin
from localspec.core.errors import LocalspecError, RemoteError, UsageError
from localspec.core.events import FinishReason
from localspec.remote.address import Address
from localspec.remote.faults import excerpt, message_in
from localspec.remote.keys import Key
from localspec.remote.reported import Reported, count, find, ids, mapping, name, number

_HALVES = re.compile("[\ud800-\udfff]")
"""Half characters, which no file and no request can hold."""
DONE = b"[DONE]"
"""Data of the last event."""
_SHOWN = 80
"""Characters of data that is none."""
_CUT = frozenset({"length", "max_tokens"})
"""Reasons of engines for the end of a reply that reached its greatest length."""
BROKEN = frozenset({"abort", "error"})
"""Reasons of vLLM and SGLang for the end of a reply that is not whole."""
_ORIGINS = {origin.value: origin for origin in Origin}


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event; each field may be missing."""

    text: str = ""
    thought: str = ""
    """Text of the model's thinking, where the engine separates it."""
    finish: str | None = None
    """Why the reply ended, in the engine's word."""
    tokens: tuple[int, ...] | None = None
    """Ids of the tokens in ``text``."""
    origins: tuple[tuple[Origin, str | None], ...] = ()
    """Origin and drafter of each of them; empty where the engine does not tell."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    emitted: int | None = None
    """Tokens so far."""
    prompt_seconds: float | None = None
    decode_seconds: float | None = None
    """Seconds of decoding by the engine's clock."""
    reported: Reported | None = None
    timed: bool = False
    """Whether the engine reports drafts here, if there are any."""
    progress: tuple[int, int, int] | None = None
    """Tokens of the prompt that are read, all of them, and those that were cached."""

    @property
    def broken(self) -> bool:
        """Whether the server ended the reply before the model did."""
        return self.finish in BROKEN

    @property
    def filtered(self) -> bool:
        """Whether the server ended the reply for what it says."""
        return self.finish == "content_filter"

    @property
    def ends(self) -> FinishReason | None:
        """The reason of the end in our words."""
        if self.finish is None or self.broken:
            return None
        return "length" if self.finish in _CUT else "stop"


def parse(data: bytes, address: Address, key: Key, *, begun: bool = True) -> Chunk:
    """The chunk in the data of an event; ``begun`` is whether any text came before it.

    Raises:
        UsageError: the server refuses the request, before any text.
        RemoteError: the event is malformed, or reports an error of the server.
    """
    try:
        event = json.loads(data, parse_constant=json_text.finite)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise _malformed(address, data, key)
    if event.get("error"):
        raise _failed(event["error"], address, key, begun=begun)
    choices = event.get("choices")
    if choices is None:
        choices = []
    if not isinstance(choices, list) or not (choices or _figures_only(event)):
        raise _malformed(address, data, key)
    choice = choices[0] if choices else {}
    if not isinstance(choice, dict):
        raise _malformed(address, data, key)
    return _chunk(event, choice)


def _failed(error: object, address: Address, key: Key, *, begun: bool) -> LocalspecError:
    """The error that an event reports: a refusal where no text came before it."""
    said = excerpt(message_in(error) or "without a reason", key)
    code = count(mapping(error).get("code"))
    if begun:
        return RemoteError(f"{address} broke the reply off: {said}")
    if code is not None and 400 <= code < 500:
        return UsageError(f"{address} refuses this request ({code}): {said}")
    return RemoteError(f"{address} refuses this request: {said}")


def _figures_only(event: Mapping[str, Any]) -> bool:
    """Whether an event without choices is one that comes so: figures, progress, or the end."""
    names = ("usage", "timings", "metrics", "prompt_progress", "object")
    return any(name in event for name in names)


def _malformed(address: Address, data: bytes, key: Key) -> RemoteError:
    beginning = excerpt(data, key, _SHOWN)
    return RemoteError(f"{address} sent something that is not part of a reply: {beginning!r}")


def _chunk(event: Mapping[str, Any], choice: Mapping[str, Any]) -> Chunk:
    delta = mapping(choice.get("delta")) or mapping(choice.get("message"))
    usage, timings = mapping(event.get("usage")), mapping(event.get("timings"))
    details = mapping(usage.get("prompt_tokens_details"))
    finish = choice.get("finish_reason")
    thought = delta.get("reasoning_content") or delta.get("reasoning")
    return Chunk(
        text=_text(delta.get("content")) or _text(choice.get("text")),
        thought=_text(thought),
        finish=finish if isinstance(finish, str) else None,
        tokens=ids(choice.get("token_ids")),
        origins=_origins(mapping(choice.get("localspec"))),
        prompt_tokens=_either(usage.get("prompt_tokens"), _prompt(timings)),
        cached_tokens=_either(details.get("cached_tokens"), timings.get("cache_n")),
        emitted=_either(usage.get("completion_tokens"), timings.get("predicted_n")),
        prompt_seconds=_seconds(timings.get("prompt_ms")),
        decode_seconds=_seconds(timings.get("predicted_ms")),
        reported=find(event),
        timed="predicted_n" in timings,
        progress=_progress(mapping(event.get("prompt_progress"))),
    )


def _text(value: object) -> str:
    """A text, or the texts of a list of parts."""
    if isinstance(value, list):
        return "".join(_text(mapping(part).get("text")) for part in value)
    if not isinstance(value, str):
        return ""
    return _HALVES.sub("\N{REPLACEMENT CHARACTER}", value)


def _origins(own: Mapping[str, Any]) -> tuple[tuple[Origin, str | None], ...]:
    """The origins that `localspec serve` tells."""
    origins, sources = own.get("origins"), own.get("sources")
    if not isinstance(origins, list) or not isinstance(sources, list):
        return ()
    pairs = zip(origins, sources, strict=False)
    return tuple((_ORIGINS.get(str(one), Origin.UNKNOWN), name(two) or None) for one, two in pairs)


def _either(first: object, second: object) -> int | None:
    found = count(first)
    return count(second) if found is None else found


def _prompt(timings: Mapping[str, Any]) -> int | None:
    read, cached = count(timings.get("prompt_n")), count(timings.get("cache_n"))
    return None if read is None else read + (cached or 0)


def _seconds(milliseconds: object) -> float | None:
    found = number(milliseconds)
    return None if found is None else found / 1000


def _progress(progress: Mapping[str, Any]) -> tuple[int, int, int] | None:
    done, total = count(progress.get("processed")), count(progress.get("total"))
    if done is None or total is None:
        return None
    return min(done, total), total, min(count(progress.get("cache")) or 0, total)
