"""The log's line about one request: who, tokens, cached tokens, speed, acceptance."""

from __future__ import annotations

import time

from localspec.core.embedded import Embedded
from localspec.serve.backend.records import RequestRecord
from localspec.serve.http.caller import Caller


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
        parts.append(f"{sum(s.emitted for s in stats) / decoding:.0f} tok/s")
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
