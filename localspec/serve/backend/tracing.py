"""OpenTelemetry spans of requests for replies, where its API is importable: for those who start the
server with a provider of spans (``opentelemetry-instrument``). Without one they cost nothing.

Names are those of OpenTelemetry's conventions for generative AI, with vLLM's for times and ours for
drafts. No text of a request or a reply is in a span.
"""

from __future__ import annotations

import time
from typing import Any

from localspec import __version__
from localspec.serve.backend.records import RequestRecord

_NANO = 1_000_000_000


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
            firsts = [r.first_token for r in record.replies if r.first_token is not None]
            if firsts:
                at = began + int((min(firsts) - record.arrived) * _NANO)
                span.add_event("first token", timestamp=at)
            if record.error:
                span.set_status(trace.Status(trace.StatusCode.ERROR, record.error))
        span.end()


def _attributes(record: RequestRecord) -> dict[str, Any]:
    stats = [reply.stats for reply in record.replies if reply.stats is not None]
    firsts = [r.first_token for r in record.replies if r.first_token is not None]
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
    if firsts:
        found["gen_ai.latency.time_to_first_token"] = min(firsts) - record.arrived
    if record.adapters:
        found["localspec.adapters"] = record.adapters
    return found
