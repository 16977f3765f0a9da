"""The lines that the server prints when it is ready: address, first request, clients."""

from __future__ import annotations

from collections.abc import Callable

from localspec.serve.backend.service import Service


def banner(service: Service, address: str, *, quote: Callable[[str], str]) -> list[str]:
    """The lines."""
    name, info = service.models.present, service.slot.info
    key = bool(service.settings.keys)
    about = name if info is None else f"{name}, {info.parallel} at a time"
    lines = [f"localspec serves {about} at {address}"]
    socket = ""
    base = address
    if service.settings.unix is not None:
        socket, base = f" --unix-socket {quote(str(service.settings.unix))}", "http://localhost"
    header = ' -H "Authorization: Bearer $LOCALSPEC_API_KEY"' if key else ""
    body = f'{{"model":"{name}","messages":[{{"role":"user","content":"Hello"}}]}}'
    keys = "your key" if key else "none"
    lines += ["", f"  curl{socket} {base}/v1/chat/completions{header} -d {quote(body)}", ""]
    if not socket:
        lines += [
            f"  OpenAI clients: base_url={base}/v1  api_key={keys}  model={name}",
            f"  variables:      OPENAI_BASE_URL={base}/v1  OPENAI_API_KEY={keys}",
            "",
        ]
    lines.append("Ctrl-C stops the server.")
    return lines
