"""Finding out whether a server answers, which engine it is, its models, and how large a context."""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.core.errors import LocalspecError, ModelNotFoundError, RemoteError, UsageError
from localspec.core.events import Speculation
from localspec.core.safe_text import safe_line
from localspec.remote import dialects
from localspec.remote.address import Address
from localspec.remote.connection import Connection, Patience
from localspec.remote.dialects import Dialect
from localspec.remote.keys import Key
from localspec.remote.reported import count, mapping, name, read_counters

_OWNERS = {
    "llamacpp": dialects.LLAMA_SERVER,
    "vllm": dialects.VLLM,
    "sglang": dialects.SGLANG,
    "library": dialects.OLLAMA,
    "localspec": dialects.LOCALSPEC,
}
"""Engines by the owner that ``/v1/models`` names."""
_PYTHON_TITLE = "llama.cpp Python API"
"""In the description of llama-cpp-python's server, which names no owner of its models."""
_SHOWN = 8
"""Models that a message lists."""
_MOST = 1000

NOT_REPORTED = Speculation(
    "unknown", "this server does not report its speculation", "speculation not reported"
)
_DRAFT_MODEL = "(a draft model given with -md is used only with --spec-type draft-simple)"

_HURRIED = Patience(connect=1.0, question=2.0)


@dataclass(frozen=True, slots=True)
class Found:
    """The facts that a server tells about itself."""

    dialect: Dialect
    model: str
    """The model to ask, by its name there."""
    models: tuple[str, ...]
    context: int
    """Tokens; 0 where it does not say."""
    parallel: int
    """Requests to make at a time."""
    speculation: Speculation
    counters: bool = False
    """Whether ``/metrics`` has counters of speculation."""


async def look(connection: Connection, wanted: str | None) -> Found:
    """Ask a server what it is; ``wanted`` names the model to use.

    Raises:
        LocalspecError: it does not answer, or has no such model.
    """
    listed = _listed(await connection.ask(f"{connection.address.path}/models"))
    if listed is None:
        raise RemoteError(
            f"{connection.address} lists no models; is the address right? it usually ends in /v1"
        )
    dialect = await _dialect(connection, listed)
    models = tuple(name(entry.get("id")) for entry in listed if name(entry.get("id")))
    model = _chosen(str(connection.address), models, wanted or _present(listed))
    entry = next((e for e in listed if name(e.get("id")) == model), {})
    context, parallel = _context(entry), 4
    speculation, counters = NOT_REPORTED, False
    if dialect is dialects.LLAMA_SERVER:
        parallel, speculation = await _slots(connection)
    elif dialect is dialects.SGLANG:
        speculation = await _sglang(connection)
    elif dialect is dialects.VLLM:
        counters, speculation = await _vllm(connection)
    elif dialect is dialects.LM_STUDIO:
        context = await _lm_studio(connection, model)
    elif dialect is dialects.LOCALSPEC:
        parallel, speculation = _own(mapping(entry.get("localspec")))
    return Found(dialect, model, models, context, parallel, speculation, counters)


def _listed(data: Any) -> list[dict[str, Any]] | None:
    """The entries of a list of models; None where ``data`` is not such a list."""
    entries = data.get("data") if isinstance(data, dict) else None
    if entries is None and isinstance(data, dict) and data.get("object") == "list":
        return []  # Ollama without a model
    if not isinstance(entries, list):
        return None
    return [entry for entry in entries[:_MOST] if isinstance(entry, dict)]


async def _dialect(connection: Connection, listed: list[dict[str, Any]]) -> Dialect:
    """The engine, by what it says of its models, or by a path that it alone has."""
    for entry in listed:
        owner = entry.get("owned_by")
        if isinstance(owner, str) and owner in _OWNERS:
            return _OWNERS[owner]
    traits = (
        ("/props", "default_generation_settings", dialects.LLAMA_SERVER),
        ("/api/version", "version", dialects.OLLAMA),
        ("/server_info", "tp_size", dialects.SGLANG),
    )
    own = await asyncio.gather(
        _of_lm_studio(connection), *(_optional(connection, path) for path, _, _ in traits)
    )
    if own[0]:
        return dialects.LM_STUDIO
    for found, (_, trait, dialect) in zip(own[1:], traits, strict=True):
        if trait in found:
            return dialect
    title = mapping((await _optional(connection, "/openapi.json")).get("info")).get("title")
    if isinstance(title, str) and _PYTHON_TITLE in title:
        return dialects.LLAMA_CPP_PYTHON
    return dialects.UNKNOWN


async def _optional(connection: Connection, path: str) -> Mapping[str, Any]:
    """An object that not every server has; empty where it does not."""
    try:
        return mapping(await connection.ask(path))
    except LocalspecError:
        return {}


def _chosen(server: str, models: tuple[str, ...], wanted: str | None) -> str:
    """The model to ask.

    Raises:
        ModelNotFoundError: the server does not have it, or has none.
        UsageError: there are several, and none is wanted.
    """
    if wanted is not None:
        if not models or wanted in models:
            return wanted
        if f"{wanted}:latest" in models:  # as Ollama completes names
            return f"{wanted}:latest"
        close = difflib.get_close_matches(wanted, models, n=3, cutoff=0.4)
        raise ModelNotFoundError(
            f"{server} has no model {safe_line(wanted)!r}; it has {_list(tuple(close) or models)}"
        )
    if not models:
        raise ModelNotFoundError(f"{server} has no model; load one there, or name it with -m")
    if len(models) > 1:
        raise UsageError(f"{server} has several models; choose one with -m: {_list(models)}")
    return models[0]


def _present(listed: list[dict[str, Any]]) -> str | None:
    """The model that a `localspec serve` has now: the one that it has loaded, of all that it may
    load; where it has none yet, the first one, which it loads. None where it has several. Adapters
    count as their model, and what writes no text does not.
    """
    models = []
    for entry in listed:
        own = mapping(entry.get("localspec"))
        if "loaded" in own and not own.get("task") and not entry.get("parent"):
            models.append((name(entry.get("id")), own["loaded"] is True))
    loaded = [model for model, is_loaded in models if is_loaded]
    found = loaded or [model for model, _ in models[:1]]
    return found[0] or None if len(found) == 1 else None


def _list(models: tuple[str, ...]) -> str:
    shown = ", ".join(models[:_SHOWN])
    more = len(models) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _context(entry: Mapping[str, Any]) -> int:
    """Size of the context by the entry of a model; 0 where it does not say."""
    return count(entry.get("max_model_len")) or count(mapping(entry.get("meta")).get("n_ctx")) or 0


async def _slots(connection: Connection) -> tuple[int, Speculation]:
    """llama-server: requests at a time, and whether it was started with speculation."""
    props = await _optional(connection, "/props")
    parallel = _at_a_time(props.get("total_slots"))
    try:
        slots = await connection.ask("/slots")
    except LocalspecError:
        return parallel, NOT_REPORTED
    first = mapping(slots[0]) if isinstance(slots, list) and slots else {}
    match first.get("speculative"):
        case True:
            return parallel, Speculation("on")
        case False:
            off = _plain(dialects.LLAMA_SERVER)
            return parallel, dataclasses.replace(off, reason=f"{off.reason} {_DRAFT_MODEL}")
    return parallel, NOT_REPORTED


async def _sglang(connection: Connection) -> Speculation:
    info = await _optional(connection, "/server_info")
    info = info or await _optional(connection, "/get_server_info")
    if "speculative_algorithm" not in info:
        return NOT_REPORTED
    return Speculation("on") if info["speculative_algorithm"] else _plain(dialects.SGLANG)


def _own(entry: Mapping[str, Any]) -> tuple[int, Speculation]:
    """`localspec serve`: requests at a time, and the state of its drafting."""
    told = mapping(entry.get("speculation"))
    state, reason = told.get("state"), told.get("reason")
    speculation = NOT_REPORTED
    if state in {"on", "parked", "off"}:
        speculation = Speculation(state, safe_line(reason) if isinstance(reason, str) else None)
    return _at_a_time(entry.get("parallel")), speculation


def _at_a_time(told: object) -> int:
    """Requests to make at a time to a server that tells how many it answers."""
    return min(count(told) or 1, 32)


async def _vllm(connection: Connection) -> tuple[bool, Speculation]:
    found = await read_counters(connection)
    if found is None:
        return False, NOT_REPORTED
    if found.drafted is None:
        return False, _plain(dialects.VLLM)
    return True, Speculation("on")


async def _of_lm_studio(connection: Connection) -> list[Mapping[str, Any]]:
    """LM Studio's own list of models, whose entries tell whether they are loaded."""
    data = (await _optional(connection, "/api/v0/models")).get("data")
    entries = [mapping(entry) for entry in data] if isinstance(data, list) else []
    return [entry for entry in entries if "state" in entry]


async def _lm_studio(connection: Connection, model: str) -> int:
    for entry in await _of_lm_studio(connection):
        if entry.get("id") == model:
            return count(entry.get("loaded_context_length")) or 0
    return 0


def _plain(dialect: Dialect) -> Speculation:
    reason = f"{dialect.name} was started without speculative decoding"
    return Speculation("off", reason, "the server does not speculate")


def answers(address: Address, key: Key) -> bool:
    """Whether a `localspec serve` answers there, and lets us in."""
    return asyncio.run(_answers(address, key))


async def _answers(address: Address, key: Key) -> bool:
    connection = Connection(address, key, _HURRIED)
    try:
        data = await connection.ask("/localspec/info")
    except LocalspecError:
        return False
    finally:
        await connection.close()
    return isinstance(data, dict) and "version" in data
