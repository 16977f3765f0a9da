"""Which kernels compute a target: compared once where that can win, kept, and never unsound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import contexts
import gguf_tools
import pytest
from conftest import Files

from localspec import Options, Runtime
from localspec.bench.lab import Lab
from localspec.core.files import paths
from localspec.llama import own_kernels as registered
from localspec.llama.adapters import Adapters
from localspec.llama.batch import StopFlag
from localspec.llama.context import Context
from localspec.llama.control_vectors import ControlVectors
from localspec.llama.model import Model
from localspec.loading import kernels, loader, own_kernels, policy, resources
from localspec.loading.kernels import UNSOUND, Trials, speed
from localspec.loading.resources import Parts
from localspec.models.gguf.model_file import ModelFile
from localspec.models.memory.fit import fit_files
from localspec.models.memory.planner import Wishes

FLAT, STEEP = {1: 0.010, 4: 0.012, 8: 0.015}, {1: 0.007, 4: 0.027, 8: 0.053}
"""Slow for one token and cheap for several; the reverse."""


class Loads:
    """Records of loads and comparisons, on a processor with kernels for extra buffers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.extra_buffers: list[tuple[str, bool]] = []
        self.compared = 0
        self.curves = FLAT, STEEP
        made = Model.__init__

        def load(model: Model, path: Path, *, extra_buffers: bool = True, **settings: Any) -> None:
            made(model, path, extra_buffers=extra_buffers, **settings)
            model.buffers = ("CPU_Mapped", "CPU_REPACK") if extra_buffers else ("CPU_Mapped",)
            self.extra_buffers.append((path.name, extra_buffers))

        monkeypatch.setattr(Model, "__init__", load)
        monkeypatch.setattr(kernels, "compare", self._compare)
        monkeypatch.setattr(kernels, "_LEAST_BYTES", 0)
        for limit in ("_LOAD_S", "_LONGEST_PASS_S"):  # however busy this machine is
            monkeypatch.setattr(kernels, limit, 1e9)

    def _compare(self, contexts: tuple[Context, Context], budget_s: float) -> Any:
        assert [c.model.uses_extra_buffers for c in contexts] == [True, False]
        assert budget_s <= kernels.SECONDS
        self.compared += 1
        return self.curves

    def of_target(self) -> list[bool]:
        found = [extra for name, extra in self.extra_buffers if name == "target.gguf"]
        self.extra_buffers.clear()
        return found


@pytest.fixture(autouse=True)
def _llama_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice between llama.cpp's kernels; `test_own_kernels.py` is about ours."""
    monkeypatch.setattr(own_kernels, "engage", lambda *_, **__: own_kernels.NOT_WANTED)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    return Loads(monkeypatch)


@pytest.fixture
def options(files: Files) -> Options:
    return Options(model=str(files.target), draft="none", threads=1)  # from the text, for nothing


def opened(options: Options) -> tuple[str, bool, str]:
    """The kernels as told, whether the one target uses extra buffers, and the states' identity."""
    with Runtime.open(options) as runtime:
        pairing = Lab(runtime).borrow()
        path = Path(options.model)
        (target,) = [p for p in pairing.parts.loaded if isinstance(p, Model) and p.path == path]
        assert target is pairing.target_model
        return runtime.info.kernels, target.uses_extra_buffers, pairing.identity


def test_the_kernels_that_give_more_tokens_with_drafting_are_kept(
    loads: Loads, options: Options
) -> None:
    """Not those that give more without: one token is slower with them."""
    loads.curves = STEEP, FLAT
    told, extra, _ = opened(options)
    assert told.startswith("plain (")
    assert not extra
    assert loads.of_target() == [True, False]
    assert opened(options) == (told, False, opened(options)[2])
    assert loads.of_target() == [False, False]
    assert loads.compared == 1


def test_extra_buffers_stay_where_they_are_faster(loads: Loads, options: Options) -> None:
    told, extra, _ = opened(options)
    assert told.startswith("extra buffers (")
    assert extra
    assert opened(options)[:2] == (told, True)
    assert loads.of_target() == [True, False, True]
    assert loads.compared == 1


def test_a_difference_within_what_measurements_vary_changes_nothing(
    loads: Loads, options: Options
) -> None:
    loads.curves = FLAT, {n: 0.97 * s for n, s in FLAT.items()}
    assert opened(options)[1]


def test_a_session_that_does_not_draft_uses_what_is_known_and_compares_nothing(
    loads: Loads, options: Options
) -> None:
    loads.curves = STEEP, FLAT
    off = Options(options.model, draft="none", drafter=("off",), threads=1)
    fixed = Options(options.model, draft=options.draft, draft_max=3, threads=1)
    assert opened(off)[1]
    assert opened(fixed)[1]
    assert loads.compared == 0
    opened(options)
    assert not opened(off)[1]
    assert not opened(fixed)[1]


def test_states_of_one_kind_of_kernels_are_not_taken_for_those_of_the_other(
    loads: Loads, options: Options
) -> None:
    before = Options(options.model, draft=options.draft, draft_max=3, threads=1)
    extra = opened(before)[2]
    loads.curves = STEEP, FLAT
    assert opened(options)[2] != extra


def trials(options: Options, *, sound: bool = True) -> Trials:
    target = Path(options.model)
    fit = fit_files(ModelFile(target), None, Wishes(threads=1))
    return Trials(Parts(fit, 1, StopFlag(), extra_buffers=sound), target)


def test_extra_buffers_that_are_unsound_are_never_used(loads: Loads, options: Options) -> None:
    opened(options)
    known = trials(options).known()
    assert known is not None
    assert known.extra_buffers
    assert trials(options, sound=False).known() == UNSOUND
    loads.of_target()
    bounded = trials(options, sound=False)
    bounded.parts.model(bounded.target, bounded.parts.fit.target, extra_buffers=True)
    bounded.parts.close()
    assert loads.of_target() == [False]


def test_what_was_kept_and_damaged_is_measured_again(loads: Loads, options: Options) -> None:
    opened(options)
    (kept,) = (paths.cache_dir() / "kernels").glob("*.json")
    for damage in ("", "[]", '{"format": 1}', '{"format": 1, "extra_buffers": true, "why": ""}'):
        kept.write_text(damage)
        assert trials(options).known() is None
    opened(options)
    assert loads.compared == 2


def test_tune_compares_again(loads: Loads, options: Options) -> None:
    """A comparison that a busy machine got wrong can be put right."""
    loads.curves = STEEP, FLAT
    opened(options)
    loads.curves = FLAT, STEEP
    with Runtime.open(replace(options, remeasure=True)) as runtime:
        assert runtime.info.kernels.startswith("extra buffers")
    assert opened(options)[1]
    assert loads.compared == 2


Spoil = Callable[[pytest.MonkeyPatch], None]


SPOILS: list[tuple[Spoil, str]] = [
    (lambda m: m.setattr(kernels, "_LEAST_BYTES", 1 << 40), "the target is small"),
    (lambda m: m.setattr(kernels, "_room", lambda: 0), "too little free memory"),
    (lambda m: m.setattr(Model, "gpu_layers", 1), "some of its layers are on a GPU"),
    (lambda m: m.setattr(kernels, "_LONGEST_PASS_S", 0.0), "its passes take too long"),
    (lambda m: m.setattr(kernels, "_LOAD_S", -1.0), "loading it a second time takes too long"),
]


@pytest.mark.parametrize(("spoil", "why"), SPOILS, ids=[why for _, why in SPOILS])
def test_where_a_comparison_would_cost_too_much_the_reason_is_told(
    loads: Loads, options: Options, monkeypatch: pytest.MonkeyPatch, spoil: Spoil, why: str
) -> None:
    """And what a busy machine could not compare is compared the next time."""
    loads.curves = STEEP, FLAT
    with monkeypatch.context() as spoilt:
        spoil(spoilt)
        told, extra, _ = opened(options)
        assert why in told
        assert extra
        assert loads.compared == 0
    assert not opened(options)[1]


def test_what_is_too_slow_every_time_is_not_tried_for_ever(
    loads: Loads, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_LONGEST_PASS_S", 0.0)
    for _ in range(3):
        assert trials(options).known() is None
        opened(options)
    known = trials(options).known()
    assert known is not None
    assert known.extra_buffers


def test_the_reckoning_counts_what_drafts_cost() -> None:
    assert speed(FLAT, 0.0) > speed(STEEP, 0.0)
    assert speed(FLAT, 0.1) < speed(STEEP, 0.1)


# -- what is kept is kept under what was chosen ------------------------------------------------


def placed(path: Path, **chosen: Any) -> Context:
    facts = {
        "gpu_layers": 0,
        "host_experts": 0,
        "buffers": ("CPU_Mapped",),
        "flash_attention": "enabled",
    }
    facts |= {
        "kv_type": "f16",
        "threads": 1,
        "capacity": 512,
        "branches": 0,
        "sequences": 1,
        "least_rows": 1,
    }
    facts |= chosen
    model = {
        "path": path,
        "remote": None,
        "adapters": Adapters(),
        "digest": "as it was loaded",
        "vectors": ControlVectors(),
        **{k: facts[k] for k in ("gpu_layers", "host_experts", "buffers")},
    }
    return cast(Context, SimpleNamespace(**facts, model=SimpleNamespace(**model)))


@pytest.mark.parametrize(
    "chosen",
    [
        {"gpu_layers": 28},
        {"host_experts": 4},
        {"buffers": ("CPU_Mapped", "CPU_REPACK")},
        {"flash_attention": "disabled"},
        {"kv_type": "q8_0"},
        {"least_rows": 2},
    ],
    ids=str,
)
def test_another_placement_has_other_costs_and_other_states(
    files: Files, chosen: dict[str, Any]
) -> None:
    usual, other = placed(files.target), placed(files.target, **chosen)
    assert policy.costs_file(usual, {}) == policy.costs_file(placed(files.target), {})
    assert policy.costs_file(usual, {}) != policy.costs_file(other, {})
    assert policy.state_identity(usual) != policy.state_identity(other)


def test_another_driver_has_other_costs_and_other_states(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = placed(files.target)
    before = policy.costs_file(target, {}), policy.state_identity(target)
    monkeypatch.setattr(policy, "driver", lambda: "999.1")
    after = policy.costs_file(target, {}), policy.state_identity(target)
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_states_of_another_compilers_build_are_not_restored(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which has the version, commit and features of the first, and may have other bits."""
    target = placed(files.target)
    before = policy.costs_file(target, {}), policy.state_identity(target)
    monkeypatch.setattr(policy.soundness, "digest", lambda: "another")
    assert policy.costs_file(target, {}) == before[0]
    assert policy.state_identity(target) != before[1]


def test_kernels_of_another_compiler_are_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = SimpleNamespace(path=Path("/kernels-0/liblocalspec-kernels.so"))
    monkeypatch.setattr(registered._process, "kernels", kernels)
    before = registered.build()
    monkeypatch.setattr(registered._process, "digest", "another")
    assert registered.build() != before


@dataclass(frozen=True)
class Priced:
    """A drafter whose tokens cost a second each."""

    digest: str
    layers: int
    threads: int = 1

    def seconds(self) -> float:
        return 1.0

    def read_seconds(self) -> float | None:
        return None


def test_a_draft_on_a_device_has_other_costs_than_one_on_the_host(files: Files) -> None:
    target = placed(files.target)
    on_host, on_gpu = (
        policy.costs_file(target, {"model": Priced("draft", layers)}) for layers in (0, 2)
    )
    assert on_host != on_gpu


def test_a_context_knows_what_llama_cpp_resolved(files: Files) -> None:
    with contexts.opened(Model(files.target), n_ctx=64) as context:
        assert context.flash_attention in {"enabled", "disabled"}
        assert context.model.gpu_layers <= context.model.n_layer + 1


@pytest.mark.parametrize(("layers", "on_host"), [(0, True), (2, True), (3, False)])
def test_threads_are_chosen_and_watched_wherever_the_processor_computes_layers(
    files: Files,
    options: Options,
    monkeypatch: pytest.MonkeyPatch,
    layers: int,
    on_host: bool,
) -> None:
    """With the target wholly on a GPU they are not; with its output alone on the host they are."""
    chosen: list[Path] = []
    watchdog = SimpleNamespace(look=lambda _: iter(()))
    monkeypatch.setattr(loader, "Watchdog", lambda *_: watchdog)
    monkeypatch.setattr(
        resources, "choose_threads", lambda context: chosen.append(context.model.path)
    )
    monkeypatch.setattr(Model, "gpu_layers", layers)
    measured = Options(options.model, draft="none", drafter=("off",))
    with Runtime.open(measured) as runtime:
        assert (files.target in chosen) is on_host
        assert (runtime.pair.watchdog is watchdog) is on_host


def test_kernels_are_compared_in_a_context_smaller_than_the_widest_pass(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_LEAST_BYTES", 0)
    small = Options(model=str(files.target), draft="none", kernels="llama", context=16)
    with Runtime.open(small) as runtime:
        assert runtime.info.context == 16


def test_a_draft_that_is_refused_is_freed(files: Files, tmp_path: Path) -> None:
    mamba = gguf_tools.write_mamba(tmp_path / "mamba.gguf")
    with Runtime.open(Options(model=str(files.target), draft=str(mamba))) as runtime:
        assert any("recurrent state" in notice for notice in runtime.info.notices)
        models = [part.path for part in runtime.pair.parts.loaded if isinstance(part, Model)]
        assert models == [files.target]
