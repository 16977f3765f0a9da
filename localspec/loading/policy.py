"""The policy of a loaded pair: what is measured for it, and where that is kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.config import paths
from localspec.core.plan import Branching
from localspec.llama import library
from localspec.llama.context import Context
from localspec.llama.devices import devices, driver
from localspec.llama.limits import OUTPUTS
from localspec.llama.timing import LONG, Timed, glance, sweep, sweep_long
from localspec.models.gguf.fingerprint import fingerprint
from localspec.policy import FixedLength, Plain, Policy
from localspec.policy.controller import K_MAX, Controller, bucket_of
from localspec.policy.costs import Costs
from localspec.policy.exercise import Exercise
from localspec.policy.storage import Knowledge, load, name_of, save

_GLANCE_S = 0.1
"""Seconds for measuring passes where the draft length is given."""
_BREADTH = 3
"""Nodes at each depth of a tree of given depth."""
_THOROUGH_S = 30.0
"""Seconds at most, where the person asked for measurements and waits for them."""


OnPass = Callable[[int, float], None]
"""Is told (tokens, seconds) of a pass that was measured, and may raise to end it."""


def _nothing() -> None:
    return None


def _no_measure(_: OnPass | None = None) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Control:
    """A policy, and what can be asked of it from outside of the loop."""

    policy: Policy
    save: Callable[[], None] = _nothing
    """Keeps what the policy measured for the next session; may raise OSError."""
    measure: Callable[[OnPass | None], Costs | None] = _no_measure
    """Measures anew what passes cost; None where that is of no use."""
    proof: Policy | None = None
    """Drafts all that ``policy`` may draft; None: ``policy`` itself does."""


def off(reason: str) -> Control:
    """Plain decoding."""
    return Control(Plain(reason))


def held(k: int, target: Context, branching: Mapping[str, Branching]) -> Control:
    """The draft length that the person wants; ``branching`` holds the drafters of trees."""
    most = (OUTPUTS - 1) // max(1, k)
    breadth = min(_BREADTH, 1 + target.branches, most) if branching else 1
    each = max((spent.leaves for spent in branching.values()), default=1)
    leaves = min(breadth * each, 1 + target.branches)
    return Control(FixedLength(k, Costs(sweep(target, _GLANCE_S)), breadth, leaves))


def automatic(
    target: Context,
    drafting: Mapping[str, Timed],
    sources: list[str],
    branching: Mapping[str, Branching],
) -> Control:
    """Whatever pays. ``drafting`` holds the prices of drafters that compute, by name;
    ``branching`` those that draft trees.
    """
    file = costs_file(target, drafting)
    knowledge = load(file)
    if knowledge is None:
        near = sweep(target)
        knowledge = Knowledge(_curves(near, sweep_long(target, near), drafting))
    else:
        _renew(knowledge, glance(target), _draft_costs(drafting))
    auto = Controller(knowledge, sources, branching=branching)

    def measure(on_pass: OnPass | None) -> Costs:
        near = sweep(target, _THOROUGH_S, on_pass)
        curves = _curves(near, sweep_long(target, near, _THOROUGH_S), drafting)
        auto.measured(curves)
        return curves[0]

    proof = Exercise(sources, branching, K_MAX)
    return Control(auto, functools.partial(save, file, knowledge), measure, proof)


def _curves(
    near: Mapping[int, float], far: Mapping[int, float], drafting: Mapping[str, Timed]
) -> dict[int, Costs]:
    """Costs by bucket of context length, of what was measured after a short and a long context."""
    drafts = _draft_costs(drafting)
    curves = {0: Costs(near, drafts)}
    if far:
        curves[bucket_of(LONG)] = curves[0].renewed(far, drafts)
    return curves


def _renew(knowledge: Knowledge, seen: Mapping[int, float], drafts: Mapping[str, float]) -> None:
    """What was measured another day, moved to what the machine is today."""
    usual = knowledge.costs[min(knowledge.costs)].verify(1)
    for bucket, costs in knowledge.costs.items():
        longer = costs.verify(1) / usual  # a pass after a longer context takes longer
        here = {n: seconds * longer for n, seconds in seen.items()}
        knowledge.costs[bucket] = costs.renewed(here, drafts)


def _draft_costs(drafting: Mapping[str, Timed]) -> dict[str, float]:
    """Seconds for one token, of each drafter that computes."""
    return {name: timed.seconds() for name, timed in drafting.items()}


def state_identity(target: Context) -> str:
    """Stands for all that a saved state of the target's KV cache depends on."""
    facts = {**_setting(target), "context": target.capacity}
    return name_of(facts).removesuffix(".json")


def costs_file(target: Context, drafting: Mapping[str, Timed]) -> Path:
    """Where measurements of this very setting are kept."""
    drafts = {name: [fingerprint(t.path), t.layers, t.threads] for name, t in drafting.items()}
    facts = {**_setting(target), "threads": target.threads, "drafts": drafts}
    return paths.cache_dir() / "costs" / name_of(facts)


def _setting(target: Context) -> dict[str, object]:
    """What the target's passes depend on: as it was chosen, not as it was asked for."""
    model = target.model
    return {
        "target": fingerprint(model.path),
        "device": [(d.kind, d.description) for d in devices()],
        "driver": driver(),
        "layers": model.gpu_layers,
        "buffers": model.buffers,
        "flash attention": target.flash_attention,
        "kv": target.kv_type,
        "build": [library.version(), library.commit(), library.system_info()],
    }
