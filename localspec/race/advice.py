"""The sentence after a race: which real model to use on this machine."""

from __future__ import annotations

from localspec.core.units import size
from localspec.models.catalog.offers import Best
from localspec.models.memory.speed import Expected, rounded


def advice(found: Best | None, n_bytes: int, *, disturbed: bool = False) -> str:
    """A line with the size of the race's target, ``n_bytes``, and the best pair for this machine.

    ``disturbed``: other programs were busy when the machine was measured. Nothing is said of a
    pair where none is known to fit.
    """
    toy = f"That was a toy of 4 MB, padded with zeros to {size(n_bytes)}."
    if found is None:
        return toy
    offer = found.offer
    more = ", more when it is less busy" if disturbed else ""
    return (
        f"{toy} The best model for this machine is {offer.name} ({size(offer.n_bytes or 0)}, "
        f"fits): {expectation(found.speed)}{more}."
    )


def expectation(speed: Expected) -> str:
    """Expected speeds in words."""
    plain, drafted = rounded(speed.plain), rounded(speed.drafted)
    if plain == drafted:
        return f"about {plain} tokens/s"
    return f"about {plain} tokens/s plain and {drafted} with drafting"


__all__ = ["advice", "expectation"]
