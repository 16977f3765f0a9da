"""The policy of a loaded pair: its measurements, and the file that keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from localspec.core.adapter_list import AS_LOADED, Blend
from localspec.core.drafter_registry import PREDICTION, Branching
from localspec.core.files import paths
from localspec.core.files.measured import keep_newest, name_of
from localspec.llama import library, own_kernels
from localspec.llama.context import Context
from localspec.llama.devices import devices, driver
from localspec.llama.pass_layout import PassTimes
from localspec.llama.timing import LONG, Timed, glance, sweep, sweep_long
from localspec.loading import soundness
from localspec.policy import Policy
from localspec.policy.controller import Controller
from localspec.policy.costs import Costs
from localspec.policy.exercise import Exercise
from localspec.policy.prices import bucket_of
from localspec.policy.simple import FixedLength, Plain
from localspec.policy.storage import Knowledge, load, save

_DEARER = 2.0
"""Factor by which a drafted token may cost more, in passes of the target, than was saved."""
_GLANCE_S = 0.1
"""Seconds for measuring passes where the draft length is given."""
_REMOTE_S = 6.0
"""The same for a target on workers, at every load: the network may be another one, and the first
pass of each width takes some round trips more, which no reply should wait for."""
_BREADTH = 3
"""Nodes at each depth of a tree of given depth."""
_BLENDS = 32
"""Blends of adapters whose acceptance is kept in memory."""
_FILES = 256
"""Files of their acceptance, of all models: each scale of an adapter has one."""
_THOROUGH_S = 30.0
"""Seconds at most, where the user asked for measurements and waits for them."""


OnPass = Callable[[int, float], None]
"""Is told (tokens, seconds) of a pass that was measured, and may raise to end it."""


@dataclass(frozen=True)
class Control:
    """The policy of a loaded pair, without measurements to save."""

    policy: Policy

    @property
    def proof(self) -> Policy:
        """A policy that drafts all that ``policy`` may draft, whether it pays or not."""
        return self.policy

    @property
    def times(self) -> PassTimes | None:
        """The seconds of passes as the policy has them now; None where it measures none."""
        return None if self.policy.costs is None else _CurrentTimes(self.policy)

    def policy_for(self, blend: Blend) -> Policy:
        """The policy of requests with these adapters."""
        del blend
        return self.policy

    def save(self) -> None:
        """Write what the policy measured to disk, for the next session.

        Raises:
            OSError: it cannot be written.
        """

    def measure(self, on_pass: OnPass | None = None) -> Costs | None:
        """Measure the seconds of passes again; None where that has no use."""
        del on_pass
        return None


class _CurrentTimes:
    """The `PassTimes` of the policy's last plan: those of the contexts that are decoded now."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def pass_seconds(self, n: int) -> float:
        """Seconds of a pass over n rows."""
        costs = self._policy.costs
        assert costs is not None  # or there are no times
        return costs.pass_seconds(n)


def off(reason: str) -> Control:
    """Plain decoding."""
    return Control(Plain(reason))


def fixed_length(k: int, target: Context, branching: Mapping[str, Branching]) -> Control:
    """The draft length that the user wants; ``branching`` has the drafters of trees."""
    most = max(1, (target.widest - 1) // max(1, k))
    breadth = min(_BREADTH, 1 + target.branches, most) if branching else 1
    each = max((spent.leaves for spent in branching.values()), default=1)
    leaves = min(breadth * each, 1 + target.branches)
    return Control(FixedLength(k, Costs(sweep(target, _GLANCE_S)), breadth, leaves))


@dataclass(frozen=True)
class MeasuredControl(Control):
    """The controller, with its measurements in a file."""

    policy: Controller
    exercise: Exercise
    target: Context
    drafting: Mapping[str, Timed]
    file: Path
    knowledge: Knowledge
    """Content of the file; ``policy`` updates it."""
    another: Callable[[Knowledge], Controller]
    """Makes a controller of the same drafters."""
    adapted: dict[Blend, tuple[Path, Knowledge, Controller]] = field(default_factory=dict)
    """Controllers of requests with adapters of their own, whose texts differ from the drafters' in
    another way, with what they know and its files; the one used last is the last."""
    unsaved: set[Blend] = field(default_factory=lambda: {AS_LOADED})
    """Blends that may have learnt something since they were saved, `AS_LOADED` for ``policy``."""

    @property
    def proof(self) -> Policy:
        """See `Control`."""
        return self.exercise

    def policy_for(self, blend: Blend) -> Policy:
        """See `Control`. Costs are first those of the model as it was loaded; acceptance is
        measured apart from the beginning.
        """
        if not blend.key:
            self.unsaved.add(AS_LOADED)
            return self.policy
        known = self.adapted.pop(blend, None) or self._adapted(blend)
        self.adapted[blend] = known
        self.unsaved.add(blend)
        if len(self.adapted) > _BLENDS:
            del self.adapted[oldest := next(iter(self.adapted))]
            self.unsaved.discard(oldest)
        return known[2]

    def _adapted(self, blend: Blend) -> tuple[Path, Knowledge, Controller]:
        facts = {"beside": self.file.name, "adapters": blend.parts}
        file = self.file.parent / "adapters" / name_of(facts)
        # Of an earlier session acceptance alone: no pass at load measures its costs again.
        known, saved = self.knowledge.costs, load(file) or Knowledge()
        knowledge = Knowledge({at: c.copy() for at, c in known.items()}, saved.acceptance)
        return file, knowledge, self.another(knowledge)

    def save(self) -> None:
        """See `Control`."""
        if AS_LOADED in self.unsaved:
            paths.make_parent(self.file)
            save(self.file, self.knowledge)
            self.unsaved.remove(AS_LOADED)
        for blend in [*self.unsaved]:
            file, knowledge, _ = self.adapted[blend]
            paths.make_parent(file)
            new = not file.exists()
            save(file, knowledge)
            self.unsaved.remove(blend)
            if new:
                keep_newest(file.parent, _FILES)

    def measure(self, on_pass: OnPass | None = None) -> Costs:
        """See `Control`; takes up to a minute."""
        near = sweep(self.target, _THOROUGH_S, on_pass)
        far = sweep_long(self.target, near, _THOROUGH_S)
        curves = _curves(near, far, self.drafting)
        self.policy.measured(curves)
        self.unsaved.add(AS_LOADED)
        return curves[0]


def automatic(
    target: Context,
    drafting: Mapping[str, Timed],
    sources: list[str],
    branching: Mapping[str, Branching],
    *,
    pads: bool,
) -> MeasuredControl:
    """Drafting where it pays. ``drafting`` has the costs of drafters that compute, by name;
    ``branching`` the drafters of trees; ``pads`` is as in `Controller`. Measurements of an earlier
    session are used.
    """
    file, here = costs_file(target, drafting), target.model.remote is None
    knowledge = load(file)
    if knowledge is None:
        near = sweep(target) if here else sweep(target, _REMOTE_S)
        knowledge = Knowledge(_curves(near, sweep_long(target, near), drafting))
    else:
        seen = glance(target) if here else sweep(target, _REMOTE_S)
        _renew(knowledge, seen, _draft_costs(drafting))
    deepest = target.widest - 1
    another = partial(
        Controller,
        sources=sources,
        free=[source for source in sources if source not in drafting],
        branching=branching,
        k_max=deepest,
        pads=pads,
        read_shares=_read_shares(drafting, knowledge),
    )
    return MeasuredControl(
        policy=another(knowledge),
        exercise=Exercise([s for s in sources if s != PREDICTION], branching, deepest),
        target=target,
        drafting=drafting,
        file=file,
        knowledge=knowledge,
        another=another,
    )


def _curves(
    near: Mapping[int, float], far: Mapping[int, float], drafting: Mapping[str, Timed]
) -> dict[int, Costs]:
    """Costs by bucket of context length, from passes after a short and after a long context."""
    drafts = _draft_costs(drafting)
    curves = {0: Costs(near, drafts)}
    if far:
        curves[bucket_of(LONG)] = curves[0].renewed(far, drafts)
    return curves


def _renew(knowledge: Knowledge, seen: Mapping[int, float], drafts: Mapping[str, float]) -> None:
    """Scale what an earlier session measured to the speed of the machine now."""
    near = knowledge.costs[min(knowledge.costs)]
    usual = near.pass_seconds(1)
    today = min(seen.values()) / usual
    drafts = {
        # Real drafts taught what was saved: what is much dearer now was disturbed.
        name: min(seconds, _DEARER * near.token_seconds(name) * today or seconds)
        for name, seconds in drafts.items()
    }
    for bucket, costs in knowledge.costs.items():
        longer = costs.pass_seconds(1) / usual  # a pass after a longer context takes longer
        here = {n: seconds * longer for n, seconds in seen.items()}
        knowledge.costs[bucket] = costs.renewed(here, drafts)


def _draft_costs(drafting: Mapping[str, Timed]) -> dict[str, float]:
    """Seconds a token, by drafter that computes."""
    return {name: timed.seconds() for name, timed in drafting.items()}


def _read_shares(drafting: Mapping[str, Timed], knowledge: Knowledge) -> dict[str, float]:
    """See `Controller`."""
    drafts = knowledge.costs[min(knowledge.costs)].token_seconds_by_drafter()
    seconds = {name: timed.read_seconds() for name, timed in drafting.items()}
    return {
        name: each / drafts[name]
        for name, each in seconds.items()
        if each is not None and drafts.get(name)
    }


def state_identity(target: Context) -> str:
    """A digest of all that a saved state of the target's KV cache depends on."""
    facts = {**_setting(target), "context": target.capacity, "sequences": target.sequences}
    facts["libraries"] = soundness.digest()
    return name_of(facts).removesuffix(".json")


def costs_file(target: Context, drafting: Mapping[str, Timed]) -> Path:
    """The file with the measurements of this setting."""
    drafts = {name: [t.digest, t.layers, t.threads] for name, t in drafting.items()}
    facts = {**_setting(target), "threads": target.threads, "drafts": drafts}
    return paths.cache_dir() / "costs" / name_of(facts)


def _setting(target: Context) -> dict[str, object]:
    """All that the target's passes depend on: the values chosen, not those asked for."""
    model = target.model
    strict = {"least rows": target.least_rows} if target.least_rows > 1 else {}
    products = {} if library.tiled() else {"tiled": False}
    workers = model.remote.workers if model.remote is not None else ()
    adapters: dict[str, object] = {"adapters": facts} if (facts := model.adapters.facts()) else {}
    if vectors := model.vectors.facts():
        adapters["control vectors"] = vectors
    remote = {"workers": [[d.total for d in w.devices] for w in workers]} if workers else {}
    return {
        **strict,
        **products,
        **remote,
        **adapters,
        "target": model.digest,
        "device": [(d.kind, d.description) for d in devices()],
        "driver": driver(),
        "layers": [model.gpu_layers, model.host_experts],
        "buffers": model.buffers,
        "flash attention": target.flash_attention,
        "kv": target.kv_type,
        "build": own_kernels.build(),
    }
