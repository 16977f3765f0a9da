"""A fit as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localspec.core.units import size_text
from localspec.models.memory.layers import Share
from localspec.models.memory.planner import Fit

_TITLES = ("", "GPU layers", "weights", "KV cache", "compute", "on GPU", "on host")


def table(fit: Fit) -> list[str]:
    """Lines of at most 80 columns: memory of each model by device, free memory, and settings."""
    rows = [_TITLES, *(_row(share) for share in fit.shares)]
    gpu = sum(g.free for g in fit.memory.gpus)
    free = ("free", "", "", "", "", size_text(gpu) if gpu else "-", size_text(fit.memory.host_free))
    lines = _aligned([*rows, free])
    threads = f"{fit.threads} thread{'s' * (fit.threads > 1)}"
    if not fit.memory.gpus and fit.wishes.threads is None:
        threads = "threads measured when loaded"
    lines.append(f"{fit.context} tokens of context, {threads}: {fit.verdict}")
    if fit.memory.shared:
        lines.append("note: GPU and host share their memory")
    notes = (*fit.notes, *([fit.left_out] if fit.left_out else []))
    return [*lines, *(f"note: {note}" for note in notes)]


def needs(fit: Fit) -> str:
    """One line: the planned and the free memory."""
    gpu = sum(sum(share.gpus) for share in fit.shares)
    host = sum(share.host for share in fit.shares)
    text = f"{fit.context} tokens of context, {fit.target.kv_type} KV cache, "
    if fit.memory.gpus:
        free = size_text(sum(g.free for g in fit.memory.gpus))
        layers = f"{fit.target.gpu_layers} of {fit.target.n_layers} layers"
        text += f"{layers} and {size_text(gpu)} of {free} free on {fit.memory.devices}, "
    return f"{text}{size_text(host)} of {size_text(fit.memory.host_free)} free on the host"


def describe(fit: Fit) -> dict[str, Any]:
    """The fit as JSON; all sizes in bytes."""
    return {
        "verdict": fit.verdict,
        "context": fit.context,
        "threads": fit.threads,
        "models": {
            share.role: {
                "gpu_layers": share.gpu_layers,
                "layers": share.n_layers,
                "kv_type": share.kv_type,
                "weights": share.weights,
                "kv": share.kv,
                "compute": share.compute,
                "gpus": list(share.gpus),
                "host": share.host,
            }
            for share in fit.shares
        },
        "free": {
            "gpus": {gpu.name: gpu.free for gpu in fit.memory.gpus},
            "host": fit.memory.host_free,
            "shared": fit.memory.shared,
        },
        "notes": list(fit.notes),
        "left_out": fit.left_out,
    }


def _row(share: Share) -> tuple[str, ...]:
    return (
        share.role,
        f"{share.gpu_layers}/{share.n_layers}",
        size_text(share.weights),
        f"{size_text(share.kv)} {share.kv_type}",
        size_text(share.compute),
        size_text(sum(share.gpus)) if share.gpus else "-",
        size_text(share.host),
    )


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(_TITLES))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
