"""Fields that the answers of several endpoints have."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from localspec import __version__
from localspec.core.emitted import PromptScored
from localspec.core.events import FinishReason, Notice, Reply, ReplyEvent, Token
from localspec.serve.replies.logprob_shapes import vllm_prompt
from localspec.serve.requests.generation import Extras

REASONS: dict[FinishReason, str] = {"stop": "stop", "length": "length", "interrupt": "length"}
"""``finish_reason``. Interrupted replies end with an error instead, see `Answering`."""


def new_id(kind: str, separator: str = "-") -> str:
    """An id that no other answer has."""
    return f"{kind}{separator}{secrets.token_hex(12)}"


def head(kind: str, type_: str, model: str) -> dict[str, Any]:
    """The first fields of a completion, whole or in chunks."""
    return {
        "id": new_id(kind),
        "object": type_,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": f"localspec-{__version__}",
    }


def scored(events: Sequence[ReplyEvent]) -> list[Any] | None:
    """vLLM's ``prompt_logprobs`` of the events; None where the prompt was not scored."""
    places = [
        place for event in events if isinstance(event, PromptScored) for place in event.logprobs
    ]
    return vllm_prompt(places) if places else None


def extra(tokens: Sequence[Token], extras: Extras) -> dict[str, Any]:
    """Fields of a choice that vLLM has on request."""
    return {"token_ids": [token.token for token in tokens]} if extras.token_ids else {}


def origins(tokens: Sequence[Token]) -> dict[str, Any]:
    """Where each token came from, and which drafter proposed the accepted ones."""
    return {
        "origins": [token.origin.value for token in tokens],
        "sources": [token.source for token in tokens],
    }


def own(events: Sequence[ReplyEvent], reply: Reply, extras: Extras) -> dict[str, Any]:
    """localspec's own object of a choice."""
    found: dict[str, Any] = {"seed": reply.seed}
    told = [event.text for event in events if isinstance(event, Notice)]
    notices = [*told, *extras.notices]
    if notices:
        found["notices"] = notices
    if extras.origins:
        found |= origins([event for event in events if isinstance(event, Token)])
    return found
