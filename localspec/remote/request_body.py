"""A request for a reply in OpenAI's shape, in the dialect of the engine that is asked."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Set as AbstractSet
from typing import Any

from localspec.core import sampler_settings
from localspec.core.errors import UsageError
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampling_params import Sampling
from localspec.remote.dialects import Dialect

LARGEST_SEED = (1 << 31) - 1
"""Every engine takes seeds up to here."""
_EFFORTS = {True: "medium", False: "none"}


def draw_seed() -> int:
    """A seed for a request that names none, so that its reply can be made again."""
    return random.SystemRandom().randrange(LARGEST_SEED)


def body(
    request: ReplyRequest,
    model: str,
    dialect: Dialect,
    seed: int,
    left_out: AbstractSet[str] = frozenset(),
) -> dict[str, Any]:
    """The body of a streamed request; raw prompts go to ``/completions``. Fields of ``left_out``
    are sent only where they differ from localspec's defaults: this server refuses them. Pictures
    are not in it: see `localspec.remote.openai_reply`.

    Raises:
        UsageError: the engine cannot do what is asked for.
    """
    if not 0 <= seed <= LARGEST_SEED:
        raise UsageError(f"a remote engine takes seeds from 0 to {LARGEST_SEED}, not {seed}")
    found: dict[str, Any] = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": seed,
        **_sampling(request.sampling, dialect, left_out),
        **dialect.always,
    }
    if request.max_tokens is not None:
        found["max_tokens"] = request.max_tokens
    if request.stop:
        found["stop"] = list(request.stop)
    if request.prompt is not None:
        found["prompt"] = request.prompt
    elif request.prompt_tokens is not None:
        found["prompt"] = list(request.prompt_tokens)
    else:
        found["messages"] = [{"role": m.role, "content": m.content} for m in request.messages]
        if request.messages and request.messages[-1].role == "assistant":
            found |= _continued(dialect)
    return found | _drafting(request, dialect) | _form(request, dialect)


def _drafting(request: ReplyRequest, dialect: Dialect) -> dict[str, Any]:
    """How the reply is drafted, as far as the engine can be told.

    Raises:
        UsageError: it cannot.
    """
    asked: dict[str, Any] = {
        "drafter": request.drafter if request.draft else "off",
        "draft_max": request.draft_max,
        "verifier": request.verifier,
    }
    if dialect.switches and not request.draft_memory:
        asked["draft_memory"] = False  # such a server draws on earlier requests unless told
    asked = {name: value for name, value in asked.items() if value is not None}
    if not request.draft and (why := why_not_plain(dialect)):
        raise UsageError(why)
    if asked and not dialect.switches:
        raise UsageError(f"{dialect.name} drafts as it was started; leave out {', '.join(asked)}")
    found: dict[str, Any] = {}
    if asked:
        found["localspec"] = {**dialect.always.get("localspec", {}), **asked}
    if request.prediction is not None:
        found["prediction"] = {"type": "content", "content": request.prediction}
    return found


def _form(request: ReplyRequest, dialect: Dialect) -> dict[str, Any]:
    """The fields for the grammar of a reply, in the engine's own form.

    Raises:
        UsageError: the engine has no words for it.
    """
    if request.logprobs is not None or request.prompt_logprobs is not None:
        raise UsageError("log-probabilities of a remote engine are asked for with verify --url")
    if request.tools is not None or any(message.calls for message in request.messages):
        raise UsageError("tools are not passed on to a remote engine; ask it directly")
    found: dict[str, Any] = {}
    if request.thinking is not None:
        found |= _thinking(request.thinking, dialect)
    if request.grammar is not None:
        found |= _grammar(request.grammar, dialect)
    return found


def not_sent(sampling: Sampling, dialect: Dialect) -> tuple[str, ...]:
    """Names of settings that change the distribution and that the engine does not take."""
    off = Sampling(temperature=sampling.temperature, top_k=0, top_p=1, min_p=0)
    names = ("top_k", "min_p", "repeat_penalty")
    return tuple(
        name
        for name in names
        if name not in dialect.sampling and getattr(sampling, name) != getattr(off, name)
    )


def spare(sampling: Sampling, dialect: Dialect) -> dict[str, str]:
    """Settings that nobody asked for, since they have localspec's defaults and change something, by
    the name that the engine has for each.
    """
    off, usual = Sampling(top_k=0, min_p=0), Sampling()
    return {
        theirs: name
        for name, theirs in dialect.sampling.items()
        if getattr(sampling, name) == getattr(usual, name) != getattr(off, name)
    }


def _sampling(sampling: Sampling, dialect: Dialect, left_out: AbstractSet[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    for name in ("frequency_penalty", "presence_penalty"):
        if value := getattr(sampling, name):
            found[name] = value
    unasked = spare(sampling, dialect)
    for name, theirs in dialect.sampling.items():
        if name in left_out and theirs in unasked:
            continue
        value = getattr(sampling, name)
        found[theirs] = dialect.no_top_k if name == "top_k" and not value else value
    found |= _further(sampling, dialect)
    if sampling.logit_bias:
        found["logit_bias"] = {str(token): max(b, -100.0) for token, b in sampling.logit_bias}
    return found


def _further(sampling: Sampling, dialect: Dialect) -> dict[str, Any]:
    """llama.cpp's further samplers, those that are not the default.

    Raises:
        UsageError: the engine does not take one of them.
    """
    changed = [
        spec.name
        for spec in sampler_settings.FURTHER
        if getattr(sampling, spec.name) != getattr(Sampling(), spec.name)
    ]
    if changed and not dialect.further:
        raise UsageError(f"{dialect.name} takes no {', '.join(changed)}; leave it out")
    lists = {"samplers": list(sampling.order), "dry_sequence_breakers": list(sampling.breakers)}
    return {name: lists.get(name, getattr(sampling, name)) for name in changed}


def _continued(dialect: Dialect) -> dict[str, Any]:
    if dialect.continues is None:
        raise UsageError(f"{dialect.name} cannot continue a reply; ask for another one instead")
    return dict(dialect.continues)


def why_not_plain(dialect: Dialect) -> str:
    """Why the engine cannot decode plainly for one reply; "" where it can."""
    if dialect.switches:
        return ""
    return f"{dialect.name} cannot switch its speculation off for one reply; start it without"


def _thinking(on: bool, dialect: Dialect) -> dict[str, Any]:
    if dialect.thinking == "template":
        return {"chat_template_kwargs": {"enable_thinking": on}}
    if dialect.thinking == "effort":
        return {"reasoning_effort": _EFFORTS[on]}
    raise UsageError(
        f"{dialect.name} has no known switch for thinking; /think auto leaves it alone"
    )


def _grammar(grammar: GrammarSpec, dialect: Dialect) -> dict[str, Any]:
    """The fields for a grammar: JSON in OpenAI's words, all else in those of the engine.

    Raises:
        UsageError: the engine has no words for it.
    """
    kind, text = grammar.kind, grammar.text
    if kind == "schema" and dialect.grammar == "llama-cpp-python":
        return {"response_format": {"type": "json_object", "schema": json.loads(text)}}
    if kind == "schema":
        schema = {"name": "reply", "schema": json.loads(text), "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    if kind == "json":
        return {"response_format": {"type": "json_object"}}
    choices = grammar.choices
    alternatives = f"root ::= {' | '.join(map(_quoted, choices))}"
    ways: dict[tuple[str, str], dict[str, Any]] = {
        ("localspec", "regex"): {"structured_outputs": {"regex": text}},
        ("localspec", "choice"): {"structured_outputs": {"choice": list(choices)}},
        ("localspec", "gbnf"): {"grammar": text},
        ("localspec", "lark"): {"grammar": text},
        ("vllm", "regex"): {"structured_outputs": {"regex": text}},
        ("vllm", "choice"): {"structured_outputs": {"choice": list(choices)}},
        ("vllm", "gbnf"): {"structured_outputs": {"grammar": text}},
        ("sglang", "regex"): {"regex": text},
        ("sglang", "choice"): {"regex": "|".join(map(re.escape, choices))},
        ("sglang", "gbnf"): {"ebnf": text},
        ("llama.cpp", "gbnf"): {"grammar": text},
        ("llama.cpp", "choice"): {"grammar": alternatives},
        ("llama-cpp-python", "gbnf"): {"grammar": text},
        ("llama-cpp-python", "choice"): {"grammar": alternatives},
    }
    found = ways.get((dialect.grammar, kind))
    if found is None:
        raise UsageError(f"{dialect.name} takes no grammar of the kind {kind}; use a JSON schema")
    return found


def _quoted(text: str) -> str:
    """A literal of GBNF."""
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    )
    return f'"{escaped}"'
