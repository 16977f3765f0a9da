"""The sentences after a race: what it was made with, and which real model to use here."""

from __future__ import annotations

from localspec.core.units import size
from localspec.models.catalog.offers import Best


def advice(found: Best | None, n_bytes: int, kernels: str) -> str:
    """What ``kernels`` gained, the size of the race's target, ``n_bytes``, and the best pair for
    this machine, in a line.

    Nothing is said of a pair where none is known to fit.
    """
    toy = f"That was a toy of 4 MB, padded with zeros to {size(n_bytes)}."
    return " ".join(filter(None, [kernels, toy, found.sentence if found is not None else ""]))


__all__ = ["advice"]
