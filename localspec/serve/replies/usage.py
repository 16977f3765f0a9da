"""Counts of replies in the names of three ecosystems: OpenAI's ``usage``, llama.cpp's ``timings``,
vLLM's ``metrics.speculative_decoding``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localspec.core.events import Stats


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
