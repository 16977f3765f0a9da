"""``GET /``: what runs here, as a page for browsers and a line for programs.

The page holds no script and loads nothing from anywhere: a strict policy says so to the browser. It
needs a key where the server needs one, so that without a key nothing is told.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from localspec import __version__
from localspec.core.safe_text import safe_text
from localspec.serve.backend.service import Service
from localspec.serve.routes.endpoint import Endpoints

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Vary": "Accept",
}
_LINKS = (
    ("openapi.json", "the interface, described"),
    ("v1/models", "models"),
    ("health", "whether the model is ready"),
    ("metrics", "figures for Prometheus"),
)
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:44em;margin:2em auto;padding:0 1em;"
    "color-scheme:light dark}pre{overflow-x:auto;padding:.7em;border:1px solid #8888}"
    "td,th{text-align:left;padding-right:1.5em;vertical-align:top}"
)


endpoints = Endpoints()


@endpoints.get("/", answer=None)
async def answer(service: Service, request: Request) -> Response:
    """Whether the server answers, and what it runs.

    A page for browsers, a line for other programs.
    """
    if "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse("localspec is running\n", headers={"Vary": "Accept"})
    return HTMLResponse(_page(service, _base(request, service)), headers=_HEADERS)


def _page(service: Service, base: str) -> str:
    name, root = service.models.present, service.settings.root_path
    rows = "".join(f"<tr><th>{_text(k)}<td>{_text(v)}" for k, v in _facts(service))
    links = "".join(
        f'<li><a href="{_text(root)}/{path}">/{path}</a>: {about}' for path, about in _LINKS
    )
    programs = "".join(
        f"<h3>{_text(program)}</h3><pre>{_text(lines)}</pre>"
        for program, lines in programs_of(base, name, key=bool(service.settings.keys))
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>localspec</title>'
        f"<style>{_STYLE}</style><h1>localspec {_text(__version__)}</h1>"
        f"<table>{rows}</table><ul>{links}</ul><h2>Programs</h2>{programs}"
    )


def _facts(service: Service) -> Iterable[tuple[str, str]]:
    """What runs: names of files without their folders, and no text of any request."""
    info = service.slots.info
    yield "model", service.models.present
    if info is None:
        yield "state", "loading" if service.slots.loading else "not loaded"
        return
    draft = info.draft.replace("\\", "/").rpartition("/")[2] if info.draft else "none"
    yield "draft model", draft
    yield "drafters", ", ".join(info.drafters) or "none"
    reason = info.speculation.reason
    yield "drafting", info.speculation.state + (f": {reason}" if reason else "")
    yield "context", f"{info.context} tokens, {info.parallel} replies at a time"
    yield "computes on", info.backend
    metrics = service.metrics
    if metrics.decode_seconds > 0:
        speed = metrics.timed / metrics.decode_seconds
        guesses = "no guess was checked yet"
        if metrics.verified:
            guesses = f"{metrics.accepted / metrics.verified:.0%} of the guesses right"
        said = f"{metrics.emitted} tokens, {speed:.0f} a second, {guesses}"
        yield "so far", said
    yield "running", f"{service.queue.size} replies"


def programs_of(base: str, model: str, *, key: bool) -> list[tuple[str, str]]:
    """Lines of configuration by program; ``base`` is the address of this server."""
    keys = "YOUR-KEY" if key else "none"
    to_continue = (
        f"models:\n  - name: {model}\n    provider: openai\n    model: {model}\n"
        f"    apiBase: {base}/v1\n    apiKey: {keys}"
    )
    with_key = ", 'api_key': 'YOUR-KEY'" if key else ""
    vim = f"{{'endpoint': '{base}/infill'{with_key}}}"
    return [
        ("Continue (config.yaml)", to_continue),
        ("Open WebUI", f"OPENAI_API_BASE_URL={base}/v1 OPENAI_API_KEY={keys} open-webui serve"),
        (
            "aider",
            f"OPENAI_API_BASE={base}/v1 OPENAI_API_KEY={keys} aider --model openai/{model}",
        ),
        ("llama.vim, with a model that fills gaps", f"let g:llama_config = {vim}"),
        ("Programs for Ollama", f"OLLAMA_HOST={base}"),
    ]


def _base(request: Request, service: Service) -> str:
    """The address by which the browser came, whose Host the guard has checked."""
    scheme = "http" if service.settings.tls is None else "https"
    return f"{scheme}://{request.headers.get('host', 'localhost')}{service.settings.root_path}"


def _text(given: str) -> str:
    return html.escape(safe_text(given))
