"""``/metrics``: counters in Prometheus' text format, under the names of vLLM and llama.cpp where
they have one for the same thing, under localspec's own elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from localspec.serve.backend.metrics import Histogram, Metrics
from localspec.serve.backend.service import Service
from localspec.serve.routes.endpoint import Endpoints

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_Row = tuple[str, str, str, float]
"""Kind, name, help, value."""


endpoints = Endpoints()


@endpoints.get("/metrics", answer=None)
async def metrics(service: Service, request: Request) -> Response:
    """Counters in the form of Prometheus."""
    del request
    return PlainTextResponse(page(service), media_type=MEDIA_TYPE)


def page(service: Service) -> str:
    """The text."""
    metrics = service.metrics
    labels = f'{{model_name="{_escaped(service.models.present)}"}}'
    lines: list[str] = []
    for kind, name, text, value in (*_counters(metrics), *_gauges(service)):
        own = labels if name.startswith("vllm:") else ""
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name}{own} {value:.12g}"]
    lines += _by_label(
        "vllm:request_success_total",
        "Finished replies by reason.",
        [(f'finished_reason="{r}"', n) for r, n in sorted(metrics.finish_reasons.items())],
    )
    lines += _by_label(
        "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        "Accepted tokens by place in their draft.",
        [(f'position="{i}"', n) for i, n in enumerate(metrics.accepted_at)],
    )
    if metrics.adapted:
        rows = sorted(metrics.adapted.items())
        for at, what in enumerate(("verified", "accepted")):
            lines += _by_label(
                f"localspec:adapter_{what}_tokens_total",
                f"Drafted tokens that were {what}, by each adapter that requests name.",
                [(f'adapter="{_escaped(name)}"', counts[at]) for name, counts in rows],
            )
    if service.embeddings.processes:
        lines += _of_texts(metrics)
    histograms = (
        ("vllm:time_to_first_token_seconds", "From the request to its first token.", "first_token"),
        ("vllm:inter_token_latency_seconds", "Mean time between tokens of a reply.", "per_token"),
        ("vllm:e2e_request_latency_seconds", "From the request to its end.", "whole"),
    )
    for name, text, attribute in histograms:
        lines += _histogram(name, text, getattr(metrics, attribute))
    return "\n".join(lines) + "\n"


def _counters(m: Metrics) -> Iterator[_Row]:
    read = m.prompt_tokens - m.cached_tokens
    rows: Sequence[tuple[str, str, float]] = (
        ("vllm:prompt_tokens_total", "Tokens of prompts.", m.prompt_tokens),
        ("vllm:generation_tokens_total", "Emitted tokens.", m.emitted),
        ("vllm:prefix_cache_queries_total", "Tokens looked up in the cache.", m.prompt_tokens),
        ("vllm:prefix_cache_hits_total", "Tokens found in the cache.", m.cached_tokens),
        ("vllm:spec_decode_num_drafts_total", "Rounds with a draft.", m.drafts),
        ("vllm:spec_decode_num_draft_tokens_total", "Drafted tokens.", m.drafted),
        ("vllm:spec_decode_num_accepted_tokens_total", "Accepted tokens.", m.accepted),
        ("llamacpp:prompt_tokens_total", "Tokens of prompts that were read.", read),
        ("llamacpp:prompt_seconds_total", "Seconds of reading prompts.", m.prompt_seconds),
        ("llamacpp:tokens_predicted_total", "Emitted tokens.", m.emitted),
        (
            "llamacpp:tokens_predicted_seconds_total",
            "Seconds of decoding, of all replies together.",
            m.decode_seconds,
        ),
        ("llamacpp:n_decode_total", "Rounds of all replies.", m.rounds),
        ("llamacpp:spec_decode_num_drafts_total", "Rounds with a draft.", m.drafts),
        ("llamacpp:spec_decode_num_draft_tokens_total", "Drafted tokens.", m.drafted),
        ("llamacpp:spec_decode_num_accepted_tokens_total", "Accepted tokens.", m.accepted),
        ("localspec:verified_tokens_total", "Drafted tokens that were judged.", m.verified),
        (
            "localspec:prediction_accepted_tokens_total",
            "Tokens of predictions that replies had.",
            m.predicted_accepted,
        ),
        (
            "localspec:prediction_rejected_tokens_total",
            "Tokens of predictions that replies had not.",
            m.predicted_rejected,
        ),
        ("localspec:requests_total", "Requests for replies that have ended.", m.requests),
        ("localspec:requests_failed_total", "Those that failed or were left.", m.failed),
        ("localspec:requests_rejected_total", "Requests for which the queue was full.", m.rejected),
    )
    return (("counter", *row) for row in rows)


def _of_texts(m: Metrics) -> list[str]:
    lines: list[str] = []
    for name, text, attribute in (
        ("requests", "Requests for vectors or scores that have ended.", "requests"),
        ("requests_failed", "Those that failed or were left.", "failed"),
        ("inputs", "Texts, or pairs of query and document.", "texts"),
        ("tokens", "Their tokens.", "tokens"),
        ("seconds", "Seconds of those requests.", "seconds"),
    ):
        rows = [(f'task="{task}"', getattr(c, attribute)) for task, c in m.of_texts.items()]
        lines += _by_label(f"localspec:text_{name}_total", text, rows)
    return lines


def _gauges(service: Service) -> Iterator[_Row]:
    queue = service.queue
    waiting, running = queue.waiting, queue.size - queue.waiting
    rows: Sequence[tuple[str, str, float]] = (
        ("vllm:num_requests_running", "Replies that run.", running),
        ("vllm:num_requests_waiting", "Replies that wait.", waiting),
        ("vllm:kv_cache_usage_perc", "Part of the KV cache in use, 0 to 1.", queue.cache_use),
        ("llamacpp:requests_processing", "Replies that run.", running),
        ("llamacpp:requests_deferred", "Replies that wait.", waiting),
        ("localspec:engine_up", "1 if a model is ready.", service.slots.ready),
        ("localspec:engine_restarts", "Starts after the engine died.", service.slots.restarts),
    )
    return (("gauge", *row) for row in rows)


def _by_label(name: str, text: str, rows: Sequence[tuple[str, float]]) -> list[str]:
    head = [f"# HELP {name} {text}", f"# TYPE {name} counter"]
    return [*head, *(f"{name}{{{label}}} {value:.12g}" for label, value in rows)]


def _histogram(name: str, text: str, histogram: Histogram) -> list[str]:
    lines, count = [f"# HELP {name} {text}", f"# TYPE {name} histogram"], 0
    for bound, n in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        count += n
        lines.append(f'{name}_bucket{{le="{bound}"}} {count}')
    return [*lines, f"{name}_sum {histogram.total:.12g}", f"{name}_count {count}"]


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
