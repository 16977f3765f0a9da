"""The fields of a request that all endpoints for replies share: sampling, limits, drafting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from localspec.core import settings_schema as schema
from localspec.core.logprobs import MOST_ALTERNATIVES
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampling_params import Sampling
from localspec.core.setting_spec import Scope, SettingSpec
from localspec.errors import UsageError
from localspec.serve.http.errors import bad_request
from localspec.serve.http.fields import Fields
from localspec.serve.http.settings import ServeSettings
from localspec.serve.requests.grammar_fields import read_grammar

_SAMPLING: tuple[tuple[str, SettingSpec[Any]], ...] = (
    ("temperature", schema.TEMPERATURE),
    ("top_k", schema.TOP_K),
    ("top_p", schema.TOP_P),
    ("min_p", schema.MIN_P),
    ("repeat_penalty", schema.REPEAT_PENALTY),
    ("repetition_penalty", schema.REPEAT_PENALTY),  # vLLM's name
    ("presence_penalty", schema.PRESENCE_PENALTY),
    ("frequency_penalty", schema.FREQUENCY_PENALTY),
    ("repeat_last_n", schema.PENALTY_LAST_N),  # llama.cpp's name
    ("penalty_last_n", schema.PENALTY_LAST_N),
)
_WITHOUT_EFFECT = (
    *("store", "metadata", "user", "service_tier", "parallel_tool_calls", "safety_identifier"),
    *("prompt_cache_key", "prompt_cache_retention", "verbosity", "cache_prompt", "modalities"),
    *("skip_special_tokens", "spaces_between_special_tokens", "timings_per_token", "suffix"),
)
"""Fields that clients often send, which have nothing to change here."""
_SEEDS = 1 << 64


@dataclass(frozen=True, slots=True)
class Extras:
    """The parts of an answer that a request must ask for."""

    stream: bool = False
    include_usage: bool = False
    """Whether a stream ends with a chunk of usage."""
    token_ids: bool = False
    """Ids of the tokens of prompt and reply, as vLLM has them."""
    origins: bool = False
    """Where each token came from."""
    strict: bool = False
    """Whether the reply must be computed in strict mode."""
    progress: bool = False
    """Chunks that tell how much of the prompt was read, as llama.cpp has them."""


def read_extras(fields: Fields) -> Extras:
    """Those fields of a request.

    Raises:
        ApiError: one is invalid.
    """
    stream = fields.flag("stream") or False
    options = fields.object("stream_options")
    usage = (options.flag("include_usage") or False) if options is not None else False
    own = fields.object("localspec")
    return Extras(
        stream=stream,
        include_usage=usage,
        token_ids=fields.flag("return_token_ids") or False,
        origins=(own.flag("origins") or False) if own is not None else False,
        strict=(own.flag("strict") or False) if own is not None else False,
        progress=fields.flag("return_progress") or False,
    )


def read_request(
    fields: Fields, settings: ServeSettings, *, max_tokens: int | None
) -> dict[str, Any]:
    """The fields of `ReplyRequest` but the prompt; ``max_tokens`` is what the endpoint read.

    Raises:
        ApiError: one is invalid.
    """
    fields.ignore(*_WITHOUT_EFFECT)
    limit = settings.max_tokens
    if limit is not None:
        max_tokens = limit if max_tokens is None else min(limit, max_tokens)
    found: dict[str, Any] = {
        "sampling": _sampling(fields, settings.sampling),
        "seed": fields.setting("seed", schema.SEED),
        "max_tokens": max_tokens,
        "stop": _stop(fields),
        "grammar": read_grammar(fields),
        "prediction": _prediction(fields),
        "logprobs_mode": fields.choice("logprobs_mode", ("raw", "processed")) or "raw",
        "prompt_logprobs": fields.whole("prompt_logprobs", 0, MOST_ALTERNATIVES),
        "owner": fields.text("cache_salt") or "",
        "draft_memory": True,
    }
    return found | _own(fields)


def choices(fields: Fields, settings: ServeSettings) -> int:
    """``n``.

    Raises:
        ApiError: it is none or too many.
    """
    n = fields.whole("n", 1, settings.limits.choices) or 1
    best_of = fields.whole("best_of", 1)
    if best_of is not None and best_of != n:
        raise fields.refuse("best_of", "is not supported with another value than n")
    return n


def of_choices(request: dict[str, Any], n: int) -> list[ReplyRequest]:
    """``n`` requests whose seeds follow each other.

    Raises:
        ApiError: fields that exclude each other.
    """
    seed = request.get("seed")
    if seed is None:
        return [made(request)] * n
    return [made(request | {"seed": seed + i if seed + i < _SEEDS else i}) for i in range(n)]


def made(request: dict[str, Any]) -> ReplyRequest:
    """The request with these fields.

    Raises:
        ApiError: fields that exclude each other.
    """
    try:
        return ReplyRequest(**request)
    except UsageError as error:
        raise bad_request(str(error)) from None


def _sampling(fields: Fields, defaults: Sampling) -> Sampling:
    values: dict[str, Any] = {}
    for name, spec in _SAMPLING:
        if spec in {schema.TOP_K, schema.PENALTY_LAST_N} and fields.raw(name) == -1:
            value: Any = 0 if spec is schema.TOP_K else (1 << 30)  # all, as llama.cpp and vLLM
        else:
            value = fields.setting(name, spec)
        if value is not None:
            values[spec.name] = value
    bias = _bias(fields)
    base = {spec.name: getattr(defaults, spec.name) for spec in schema.of(Scope.SAMPLING)}
    try:
        return Sampling(**(base | values), logit_bias=bias)
    except UsageError as error:
        raise bad_request(str(error), "logit_bias") from None


def _bias(fields: Fields) -> tuple[tuple[int, float], ...]:
    given = fields.object("logit_bias")
    if given is None:
        return ()
    found = []
    if len(given.as_dict()) > MOST_BIASES:
        raise fields.refuse("logit_bias", f"has more than {MOST_BIASES} tokens")
    for name in given.as_dict():
        if not name.isascii() or not name.isdigit() or len(name) > 9:
            raise given.refuse(name, "is not a token id; the keys of logit_bias are token ids")
        value = given.number(name)
        if value is not None:
            found.append((int(name), value))
    return tuple(found)


def _stop(fields: Fields) -> tuple[str, ...]:
    stop = fields.texts("stop")
    if not all(stop):
        raise fields.refuse("stop", "must not be empty")
    if len(stop) > MOST_STOPS:
        raise fields.refuse("stop", f"has {len(stop)} texts; {MOST_STOPS} is the most")
    return stop


MOST_STOPS = 64
MOST_BIASES = 8192


def _prediction(fields: Fields) -> str | None:
    """OpenAI's predicted output: a text, or an object with a text or with parts of text."""
    if isinstance(fields.raw("prediction"), str):
        return fields.text("prediction")
    given = fields.object("prediction")
    if given is None:
        return None
    given.choice("type", ("content",))
    if isinstance(given.raw("content"), str):
        return given.text("content")
    parts = given.objects("content")
    if parts is None:
        raise given.refuse("content", "is missing")
    return "".join(part.text("text") or "" for part in parts)


def _own(fields: Fields) -> dict[str, Any]:
    """localspec's own object: how this reply is drafted and verified."""
    own = fields.object("localspec")
    if own is None:
        return {}
    found: dict[str, Any] = {
        "verifier": own.setting("verifier", schema.VERIFIER),
        "drafter": own.setting("drafter", schema.DRAFTER),
        "draft_max": own.setting("draft_max", schema.DRAFT_MAX),
        "draft_memory": own.flag("draft_memory") is not False,
    }
    for name in ("strict", "origins"):  # of other parts of the answer; see `read_extras`
        own.flag(name)
    for name in own.unread():
        raise own.refuse(name, "is no field of localspec")
    return found


__all__ = [
    "MOST_BIASES",
    "MOST_STOPS",
    "Extras",
    "choices",
    "made",
    "of_choices",
    "read_extras",
    "read_request",
]
