"""Fields that the answers of several endpoints have. Counts have the names of three ecosystems:
OpenAI's ``usage``, llama.cpp's ``timings``, vLLM's ``metrics.speculative_decoding``.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any

from localspec import __version__
from localspec.core.emitted import MOST_ALTERNATIVES, PromptScored
from localspec.core.events import FinishReason, Notice, Reply, ReplyEvent, Stats, Token
from localspec.serve.replies.logprob_shapes import vllm_prompt
from localspec.serve.requests.generation import Extras

REASONS: dict[FinishReason, str] = {"stop": "stop", "length": "length", "interrupt": "length"}
"""``finish_reason``. Interrupted replies end with an error instead, see `Answering`."""


_EVENT_BYTES, _ALTERNATIVE_BYTES = 16, 64
_HELD_BYTES = 192
"""In memory, of each alternative: a token has 161, one with 20 alternatives 3,915 (Python 3.11)."""


def answer_size(events: Iterable[ReplyEvent]) -> int:
    """Bytes, about, of what is made of events: how long that takes grows with them."""
    return sum(_EVENT_BYTES + _ALTERNATIVE_BYTES * _alternatives(event) for event in events)


def held_size(events: Iterable[ReplyEvent]) -> int:
    """Bytes, about, of the log-probabilities of events, in memory. The context bounds the rest."""
    return sum(_HELD_BYTES * _alternatives(event) for event in events)


def _alternatives(event: ReplyEvent) -> int:
    match event:
        case PromptScored(logprobs=places):
            pass
        case Token(logprobs=place):
            places = (place,)
        case _:
            return 0
    return sum(1 + len(place.top) for place in places if place is not None)


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


def scored(events: Sequence[ReplyEvent], most: int = MOST_ALTERNATIVES) -> list[Any] | None:
    """vLLM's ``prompt_logprobs`` of the events, with at most so many alternatives; None where the
    prompt was not scored.
    """
    places = [
        place for event in events if isinstance(event, PromptScored) for place in event.logprobs
    ]
    return vllm_prompt(places, most) if places else None


def tokens_of(events: Iterable[ReplyEvent]) -> list[Token]:
    """The tokens among events."""
    return [event for event in events if isinstance(event, Token)]


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
        found |= origins(tokens_of(events))
    return found


def usage(prompts: Sequence[Stats], stats: Sequence[Stats], reasoning: int = 0) -> dict[str, Any]:
    """OpenAI's ``usage``: of ``prompts`` the prompt tokens, one reply for each prompt, so that the
    prompt of several choices counts once; of ``stats`` the emitted tokens, all replies; of these,
    ``reasoning`` are thinking.
    """
    prompt = sum(s.prompt_tokens for s in prompts)
    completion = sum(s.emitted for s in stats)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(s.cached_tokens for s in prompts)},
        "completion_tokens_details": {
            "accepted_prediction_tokens": sum(s.accepted_prediction_tokens for s in stats),
            "rejected_prediction_tokens": sum(s.rejected_prediction_tokens for s in stats),
            "reasoning_tokens": reasoning,
        },
    }


def measurements(stats: Stats) -> dict[str, Any]:
    """The fields ``timings`` and ``metrics`` of an answer."""
    return {"timings": _timings(stats), "metrics": _metrics(stats)}


def _timings(stats: Stats) -> dict[str, Any]:
    """llama.cpp's ``timings``: milliseconds, and tokens per second of reading and decoding."""
    read = stats.prompt_tokens - stats.cached_tokens
    prompt_ms, predicted_ms = stats.prompt_seconds * 1000, stats.decode_seconds * 1000
    found: dict[str, Any] = {
        "cache_n": stats.cached_tokens,
        "prompt_n": read,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / read if read else 0.0,
        "prompt_per_second": read / stats.prompt_seconds if stats.prompt_seconds else 0.0,
        "predicted_n": stats.emitted,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / stats.timed if stats.timed else 0.0,
        "predicted_per_second": stats.tokens_per_second,
    }
    if stats.drafted:
        found |= {"draft_n": stats.drafted, "draft_n_accepted": stats.accepted}
    return found


def _metrics(stats: Stats) -> dict[str, Any]:
    """vLLM's ``metrics``, whose acceptance rate relates to drafted tokens, not to verified ones."""
    return {
        "speculative_decoding": {
            "mean_acceptance_length": stats.tokens_per_round,
            "draft_acceptance_rate": stats.accepted / stats.drafted if stats.drafted else 0.0,
            "num_spec_steps": stats.rounds,
            "num_draft_tokens": stats.drafted,
            "num_accepted_draft_tokens": stats.accepted,
            "num_verified_tokens": stats.verified,
            "acceptance_per_position": list(stats.per_position),
            "state": stats.speculation.state,
            "reason": stats.speculation.reason,
            "plain_tokens_per_second": stats.plain_tokens_per_second,
            "by_drafter": {
                name: {
                    "drafted": d.drafted,
                    "verified": d.verified,
                    "accepted": d.accepted,
                    "seconds": d.seconds,
                }
                for name, d in stats.by_drafter.items()
            },
        }
    }
