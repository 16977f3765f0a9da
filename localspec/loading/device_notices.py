"""Notices about what a device cannot compute."""

from __future__ import annotations

from localspec.llama.context import Context


def left_device(context: Context) -> tuple[str, ...]:
    """A notice where a device has all layers, and the processor computes parts of every pass."""
    if not context.leaves_device:
        return ()
    told = (
        f"the device lacks an operation of {context.model.path.name}: parts of every pass are "
        f"computed on the CPU ({context.graph_splits} graph splits), which is slow"
    )
    return (told,)
