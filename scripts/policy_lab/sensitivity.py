"""What half and one and a half times each constant of tuning does to the controller.

A constant that is here is tuned: nothing but the laboratory says what it should be. Those of
`FIXED` are not: each is measured, or follows from what it describes.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

import localspec.policy
from policy_lab.curves import CURVES, DISTURBANCES
from policy_lab.evidence import Recorded
from policy_lab.report import controller, session
from policy_lab.world import World

TUNED = (
    "BIN_DECAY", "TEXT_DECAY", "CARRIED",
    "START", "SHARE", "LOOKS", "SAVED", "AT_FIRST", "LONGEST",
    "OFFSET", "DRIFT", "MOST", "NOISE", "WEIGHT", "FAR", "FARTHER", "LEAP", "NEAR",
    "QUICK", "STEADY", "TRIED", "MARGIN", "USUAL_LENGTH", "PROBE", "TRIAL",
    "DOUBTFUL", "UNSEEN", "DOUBT", "RECENT",
)  # fmt: skip
FIXED = {
    "EDGES": "borders of bins: their acceptance is measured",
    "BINS": "follows from EDGES",
    "COMPUTED": "measured on the recorded evidence",
    "COPIED": "measured on the recorded evidence",
    "USUAL": "measured on the recorded evidence",
    "LATEST": "verdicts of a sentence that is shown",
    "QUIET": "rounds of a state that is shown",
    "ENOUGH": "guesses of a share that is shown",
    "BEHIND": "what a draft reads without a pause: that of `localspec.generation.prefill`",
    "KEPT_UP": "the last token and the one that the target added",
    "UNPADDED": "how often a width that is padded from is seen, at no cost to a reply",
    "READ_EVERY": "saves the time of planning only",
    "SETTLE": "passes in which llama.cpp builds and captures graphs",
    "FIRST_ANSWER": "an index is built once",
    "FORMAT": "of the file",
    "WIDTHS": "bounds the time of an observation",
}
_OTHERS = {"MAX_K", "NO_LIMIT"}
"""Names that the policy takes from elsewhere."""
_CURVES = ("epyc", "own-vnni", "rtx3090")
_SETS = (("suffix", "model"), ("close",))


def constants() -> dict[str, float]:
    """All numbers that modules of the policy name in upper case, by name."""
    named = [item for module in _modules() for item in vars(module).items()]
    return {
        n: x for n, x in named if n.isupper() and n[0] != "_" and n not in _OTHERS and _number(x)
    }


def _number(value: object) -> bool:
    return isinstance(value, int | float) or (
        isinstance(value, tuple) and all(isinstance(x, int | float) for x in value)
    )


def _modules() -> list[object]:
    path = localspec.policy.__path__
    return [
        importlib.import_module(f"localspec.policy.{m.name}") for m in pkgutil.iter_modules(path)
    ]


@contextmanager
def _changed(name: str, factor: float) -> Iterator[None]:
    """With one constant so many times as large; a decay forgets so many times as fast."""
    before = constants()[name]
    value = 1 - factor * (1 - before) if name.endswith("DECAY") else factor * before
    value = max(1, round(value)) if isinstance(before, int) else value
    users = [module for module in _modules() if hasattr(module, name)]
    for module in users:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module in users:
            setattr(module, name, before)


def _played(replies: Sequence[Recorded]) -> tuple[float, float]:
    """(Mean of the ratios to plain decoding, mean of the slowest percent) over the settings: first
    replies, and sessions.
    """
    means, least, steady = [], [], DISTURBANCES[0]
    for curve in (c for c in CURVES if c.name in _CURVES):
        for sources in _SETS:
            first = []
            for seed, reply in enumerate(replies):
                policy = controller(curve, steady, sources, seed)
                first += World(policy, curve, steady, seed, sources).play([reply])
            for played in (first, session(replies, curve, steady, sources)):
                ratios = [running.ratio for running in played]
                means.append(np.mean(ratios))
                least.append(np.quantile(ratios, 0.01))
    return float(np.mean(means)), float(np.mean(least))


def lines(replies: Sequence[Recorded]) -> Iterator[str]:
    """A table: by how many percent the mean and the slowest percent of replies change."""
    mean, worst = _played(replies)
    yield f"mean {mean:.3f}, slowest percent {worst:.3f}"
    known = constants()
    for name in TUNED:
        changes = []
        for factor in (0.5, 1.5):
            with _changed(name, factor):
                now = _played(replies)
            changes += [f"{100 * (now[0] / mean - 1):+.1f}, {100 * (now[1] / worst - 1):+.1f}"]
        yield f"| `{name}` | {known[name]:g} | {changes[0]} | {changes[1]} |"
