"""The record of one HTTP request for replies: counts and times for the log and the metrics.

Where OpenTelemetry's API is importable, a record becomes a span: for those who start the server
with a provider of spans (``opentelemetry-instrument``). Without one they cost nothing. Names are
those of OpenTelemetry's conventions for generative AI, with vLLM's for times and ours for drafts.
No text of a request or a reply is in a span.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from localspec import __version__
from localspec.core.embedded import Embedded
from localspec.core.events import Finished, FinishReason, ReplyEvent, Round, Stats, Token
from localspec.serve.http.body_budget import Caller

_NANO = 1_000_000_000


@dataclass(slots=True)
class ReplyRecord:
    """One reply."""

    first_token: float | None = None
    last_token: float | None = None
    emitted: int = 0
    verified: int = 0
    accepted: int = 0
    context_used: int = 0
    """Tokens of prompt and reply so far."""
    finish_reason: FinishReason | None = None
    stats: Stats | None = None

    def note(self, event: ReplyEvent, now: float) -> None:
        """Take an event."""
        if isinstance(event, Token):
            self.emitted += 1
            self.last_token = now
            if self.first_token is None:
                self.first_token = now
        elif isinstance(event, Round):
            self.verified += event.verified
            self.accepted += event.accepted
            self.context_used = event.context_used
        elif isinstance(event, Finished):
            self.finish_reason, self.stats = event.reply.finish_reason, event.reply.stats


@dataclass(slots=True)
class RequestRecord:
    """One HTTP request, and the replies to it."""

    caller: Caller
    path: str
    model: str = ""
    """The one that answers, once the engine has taken the request."""
    adapter: str = ""
    """The adapter that it calls as its model, if it does."""
    adapters: tuple[str, ...] = ()
    """The names of the adapters that it asks for, sorted."""
    arrived: float = field(default_factory=time.monotonic)
    replies: list[ReplyRecord] = field(default_factory=list)
    error: str = ""
    """Why it failed."""

    @property
    def emitted(self) -> int:
        """Tokens of all its replies so far."""
        return sum(reply.emitted for reply in self.replies)

    @property
    def until_first(self) -> float | None:
        """Seconds until its first token; None before that."""
        firsts = [one.first_token for one in self.replies if one.first_token is not None]
        return min(firsts) - self.arrived if firsts else None


def log_line(record: RequestRecord) -> str:
    """The line, when the request has ended."""
    stats = [reply.stats for reply in record.replies if reply.stats is not None]
    parts = [time.strftime("%H:%M:%S"), record.caller.label, record.path, record.model]
    if stats:
        prompt, cached = sum(s.prompt_tokens for s in stats), sum(s.cached_tokens for s in stats)
        parts.append(f"{prompt} prompt ({cached} cached)")
    parts.append(f"{record.emitted} tokens")
    decoding = sum(s.decode_seconds for s in stats)
    if decoding > 0:
        parts.append(f"{sum(s.timed for s in stats) / decoding:.0f} tok/s")
    verified = sum(s.verified for s in stats)
    if verified:
        parts.append(f"accepted {sum(s.accepted for s in stats) / verified:.0%}")
    parts.append(f"{time.monotonic() - record.arrived:.2f} s")
    reasons = {str(reply.finish_reason) for reply in record.replies if reply.finish_reason}
    parts.append(record.error or "/".join(sorted(reasons)) or "ended")
    return "  ".join(parts)


def texts_line(caller: Caller, path: str, model: str, found: Embedded, seconds: float) -> str:
    """The line about a request for vectors or scores, when it has ended."""
    parts = [time.strftime("%H:%M:%S"), caller.label, path, model]
    parts += [f"{len(found.counts)} texts", f"{found.tokens} tokens", f"{seconds:.2f} s"]
    return "  ".join(parts)


class Tracing:
    """Makes a span of each request, when it has ended."""

    def __init__(self) -> None:
        """Without the API there are no spans."""
        self._trace: Any = None
        try:
            from opentelemetry import trace
            from opentelemetry.trace.propagation import tracecontext
        except ImportError:
            return
        self._trace = trace
        self._tracer = trace.get_tracer("localspec", __version__)
        self._propagator = tracecontext.TraceContextTextMapPropagator()

    def ended(self, record: RequestRecord) -> None:
        """Make the span of a request. Where its client sent ``traceparent``, it is a part of that
        client's trace.
        """
        trace = self._trace
        if trace is None:
            return
        began = time.time_ns() - int((time.monotonic() - record.arrived) * _NANO)
        span = self._tracer.start_span(
            f"POST {record.path}",
            context=self._propagator.extract(dict(record.caller.trace)),
            kind=trace.SpanKind.SERVER,
            start_time=began,
        )
        if span.is_recording():
            span.set_attributes(_attributes(record))
            if record.until_first is not None:
                at = began + int(record.until_first * _NANO)
                span.add_event("first token", timestamp=at)
            if record.error:
                span.set_status(trace.Status(trace.StatusCode.ERROR, record.error))
        span.end()


def _attributes(record: RequestRecord) -> dict[str, Any]:
    stats = [reply.stats for reply in record.replies if reply.stats is not None]
    reasons = [str(reply.finish_reason) for reply in record.replies if reply.finish_reason]
    found: dict[str, Any] = {
        "url.path": record.path,
        "gen_ai.provider.name": "localspec",
        "gen_ai.response.model": record.model,
        "gen_ai.response.finish_reasons": reasons,
        "gen_ai.usage.input_tokens": sum(one.prompt_tokens for one in stats),
        "gen_ai.usage.output_tokens": record.emitted,
        "localspec.cached_tokens": sum(one.cached_tokens for one in stats),
        "localspec.verified_tokens": sum(reply.verified for reply in record.replies),
        "localspec.accepted_tokens": sum(reply.accepted for reply in record.replies),
    }
    if record.until_first is not None:
        found["gen_ai.latency.time_to_first_token"] = record.until_first
    if record.adapters:
        found["localspec.adapters"] = record.adapters
    return found
