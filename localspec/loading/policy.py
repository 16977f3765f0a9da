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
from localspec.llama.devices import devices
from localspec.llama.limits import OUTPUTS
from localspec.llama.timing import Timed, glance, sweep
from localspec.loading.options import Options
from localspec.models.gguf.fingerprint import fingerprint
from localspec.policy import Held, Plain, Policy
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
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
    keep: Callable[[], None] = _nothing
    """Keeps what the policy measured for the next session; may raise OSError."""
    measure: Callable[[OnPass | None], Costs | None] = _no_measure
    """Measures anew what passes cost; None where that is of no use."""


def off(reason: str) -> Control:
    """Plain decoding."""
    return Control(Plain(reason))


def held(k: int, target: Context, branching: Mapping[str, Branching]) -> Control:
    """The draft length that the person wants; ``branching`` holds the drafters of trees."""
    most = (OUTPUTS - 1) // max(1, k)
    breadth = min(_BREADTH, 1 + target.branches, most) if branching else 1
    each = max((spent.leaves for spent in branching.values()), default=1)
    leaves = min(breadth * each, 1 + target.branches)
    return Control(Held(k, Costs(sweep(target, _GLANCE_S)), breadth, leaves))


def automatic(
    options: Options,
    target: Context,
    drafting: Mapping[str, Timed],
    sources: list[str],
    branching: Mapping[str, Branching],
) -> Control:
    """Whatever pays. ``drafting`` holds the prices of drafters that compute, by name;
    ``branching`` those that draft trees.
    """
    file = _costs_file(options, target, drafting)
    knowledge = load(file)
    if knowledge is None:
        knowledge = Knowledge({0: Costs(sweep(target), _draft_costs(drafting))})
    else:
        _renew(knowledge, glance(target), _draft_costs(drafting))
    auto = Controller(knowledge, sources, branching=branching)

    def measure(on_pass: OnPass | None) -> Costs:
        costs = Costs(sweep(target, _THOROUGH_S, on_pass), _draft_costs(drafting))
        auto.measured(costs)
        return costs

    return Control(auto, functools.partial(save, file, knowledge), measure)


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


def state_identity(options: Options, target: Context) -> str:
    """Stands for all that a saved state of the target's KV cache depends on."""
    facts = {
        "target": fingerprint(target.model.path),
        "device": [(d.kind, d.description) for d in devices()],
        "layers": [target.model.offloads, options.gpu_layers],
        "kv": target.kv_type,
        "context": [target.capacity, target.branches],
        "build": [library.version(), library.commit(), library.system_info()],
    }
    return name_of(facts).removesuffix(".json")


def _costs_file(options: Options, target: Context, drafting: Mapping[str, Timed]) -> Path:
    """Where measurements of this very setting are kept."""
    drafts = {name: [fingerprint(t.path), t.threads] for name, t in drafting.items()}
    facts = {
        "target": fingerprint(target.model.path),
        "drafts": drafts,
        "device": [(d.kind, d.description) for d in devices()],
        "layers": target.model.offloads and options.gpu_layers,
        "threads": target.threads,
        "kv": target.kv_type,
        "build": [library.version(), library.commit()],
    }
    return paths.cache_dir() / "costs" / name_of(facts)
