"""The model to begin with on this machine, by what was measured here earlier."""

from __future__ import annotations

from pathlib import Path

from localspec.demo import FOLDER
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


def after_the_toy(target: str) -> str:
    """What is to be said after a reply that names a model to pull, where the embedded target wrote
    it; else "". The toy has learnt one name by heart, whatever machine it runs on. Blocks.
    """
    if Path(target).parent != FOLDER:
        return ""
    best = recommended()
    if best is None:
        return "the demo knows the name of one model by heart; `localspec models` lists all"
    return f"the demo knows the name of one model by heart. {best.sentence}"
