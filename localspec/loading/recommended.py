"""The model to begin with on this machine, by what was measured here earlier."""

from __future__ import annotations

from localspec.loading import machine_speed
from localspec.loading.offers import Best, best, offers
from localspec.models.memory import ask_machine


def recommended() -> Best | None:
    """The pair that `localspec.loading.offers.best` finds for this machine, as in F4, in
    `localspec models` and after a race; None where the machine was not measured yet, or nothing
    fits. Measures nothing itself. Blocks.
    """
    speed = machine_speed.saved()
    if speed is None:
        return None
    return best(offers().found, speed, ask_machine.memory())
