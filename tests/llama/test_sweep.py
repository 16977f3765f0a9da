"""The sweep passes what rounds pass: tokens, widths in turn, contexts; and counts no first pass."""

from __future__ import annotations

import ctypes
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any, cast

import pytest
from conftest import Files
from moe_files import ARCHITECTURES, Size, write_moe

from localspec import Message, Options, Runtime, Sampling
from localspec.core.files.paths import DEMO_DIR
from localspec.llama import timing
from localspec.llama.context import Context
from localspec.llama.library import c_api, libggml
from localspec.llama.model import Model
from localspec.llama.passes import Passes, ordinary_tokens


@dataclass
class Machine:
    """A context whose passes take as long as told, by a clock of its own."""

    on_device: bool = False
    first_s: float = 0.0
    """Further seconds of the first pass of each width."""
    captured: float = 1.0
    """Time of a third equal pass relative to the first, where graphs are captured."""
    token_s: float = 1e-3
    attention_s: float = 0.0
    """A token with each of context."""
    capacity: int = 4096
    n_batch: int = 512
    outputs: int = 512
    rollback: int | None = None
    now: float = 0.0
    held: int = 0
    widths: list[int] = field(default_factory=list)

    @property
    def model(self) -> Any:
        return SimpleNamespace(
            path="target.gguf",
            gpu_layers=int(self.on_device),
            n_vocab=5000,
            vocab_type=1,
            tokenize=lambda text: [ord(c) for c in text],
            piece=lambda token: b"x" if token > 2 else b"",
        )

    def clock(self) -> float:
        return self.now

    def length(self, seq: int) -> int:
        assert seq == 0
        return self.held

    def truncate(self, seq: int, length: int) -> None:
        assert seq == 0
        self.held = length

    def forward(self, work: Sequence[tuple[int, Sequence[int], int]]) -> None:
        ((_, tokens, _),) = work
        n = len(tokens)
        seconds = (self.token_s + self.attention_s * self.held) * n
        if self.widths[-2:] == [n, n]:
            seconds *= self.captured
        self.now += seconds + (self.first_s if n not in self.widths else 0)
        self.widths.append(n)
        self.held += n


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr("time.perf_counter", lambda: made.now)
    return made


def swept(machine: Machine, budget_s: float = 1.5) -> dict[int, float]:
    return timing.sweep(cast(Context, machine), budget_s)


def test_ordinary_tokens_are_distinct_and_stand_for_text(files: Files) -> None:
    model = Model(files.target)
    tokens = ordinary_tokens(model, 200)
    assert len(set(tokens)) == 200
    assert all(model.piece(token) for token in tokens)
    assert set(ordinary_tokens(model, 1000)) == set(range(259)) - {0, 1, 2}
    model.close()


def test_passes_are_of_distinct_tokens_and_change_their_width(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass of the width of the one before finds a graph that a draft's passes do not find."""
    model = Model(files.target)
    context = Context(model, n_ctx=256, n_batch=64, threads=1)
    passed: list[tuple[list[int], int, int]] = []
    forward = Context.forward

    def recorded(self: Context, work: Any, *, states: bool = False) -> Any:
        passed.append((list(work[0][1]), work[0][2], self.length(0)))
        return forward(self, work, states=states)

    monkeypatch.setattr(Context, "forward", recorded)
    timing.sweep(context, 0.3)
    (read, rows, _), *timed = passed
    assert (len(read), rows) == (32, 0)
    for tokens, outputs, before in timed:
        assert len(set(tokens)) == len(tokens) == outputs
        assert before == 32
    wide = [(a, b) for (a, _, _), (b, _, _) in itertools.pairwise(timed) if len(b) > 1]
    assert wide
    assert all(len(a) != len(b) for a, b in wide)
    singles = [tokens[0] for tokens, _, _ in timed if len(tokens) == 1]
    assert len(set(singles)) > 2
    assert context.length(0) == 0
    context.close()
    model.close()


def test_no_first_pass_of_a_device_is_counted(machine: Machine) -> None:
    """It compiles and loads kernels: counted, it would make every draft look like a loss."""
    machine.on_device, machine.first_s = True, 0.3
    passes = Passes(cast(Context, machine))
    assert {n: passes.seconds(n) for n in (1, 4, 8)} == pytest.approx({1: 1e-3, 4: 4e-3, 8: 8e-3})
    found = swept(machine, 60.0)
    assert found == pytest.approx({n: 1e-3 * n for n in found})
    assert len(found) > 10


def test_a_first_pass_of_a_processor_is_counted_only_where_it_is_long(machine: Machine) -> None:
    machine.first_s = 0.01
    assert swept(machine, 60.0)[8] == pytest.approx(8e-3)
    machine.token_s, machine.first_s = 0.1, 0.0
    machine.widths.clear()
    Passes(cast(Context, machine)).seconds(8)
    assert machine.widths == [8]


def test_what_a_device_keeps_of_equal_passes_helps_single_tokens_alone(machine: Machine) -> None:
    machine.on_device, machine.captured = True, 0.5
    passes = Passes(cast(Context, machine))
    assert [passes.seconds(n) for n in (1, 4, 1)] == pytest.approx([0.5e-3, 4e-3, 0.5e-3])
    found = swept(machine, 60.0)
    assert found[1] == pytest.approx(0.5e-3)
    assert found[2] == pytest.approx(1e-3)  # at most one token each, as without a draft
    curve = {n: Passes(cast(Context, machine)).seconds(n) for n in (4, 8)}
    assert curve == pytest.approx({4: 4e-3, 8: 8e-3})


def test_some_widths_are_measured_again_after_a_long_context(machine: Machine) -> None:
    machine.token_s, machine.attention_s = 1e-4, 1e-7
    near = swept(machine)
    far = timing.sweep_long(cast(Context, machine), near)
    assert set(far) == {1, 4, 8}
    assert far[1] == pytest.approx(1e-4 + 2048e-7)
    assert near[1] == pytest.approx(1e-4 + 32e-7)
    assert machine.held == 0


@pytest.mark.parametrize(
    "trouble", [{"token_s": 0.02}, {"capacity": 2048}, {"rollback": 7}], ids=str
)
def test_a_long_context_that_is_too_dear_is_not_read(
    machine: Machine, trouble: dict[str, Any]
) -> None:
    for name, value in trouble.items():
        setattr(machine, name, value)
    near = swept(machine)
    began = machine.now
    assert timing.sweep_long(cast(Context, machine), near) == {}
    assert machine.now - began < 0.6
    assert machine.held == 0


def test_reading_a_long_context_ends_where_it_turns_out_too_slow(machine: Machine) -> None:
    """Prompts cost as much a token as drafts here: the time for them is hardly exceeded."""
    machine.token_s = 1e-3
    assert timing.sweep_long(cast(Context, machine), {1: 1e-3, 32: 0.032}) == {}
    assert 0 < machine.now < 0.6


def test_a_small_context_is_swept_by_what_it_holds(files: Files) -> None:
    model = Model(files.target)
    context = Context(model, n_ctx=16, threads=1)
    found = timing.sweep(context, 0.3)
    assert 1 in found
    assert max(found) <= 12
    context.close()
    model.close()


def test_two_contexts_are_compared_in_turns(machine: Machine) -> None:
    """Both see the same neighbours; and only what was seen of both is told."""
    other = Machine(token_s=2e-3)
    order: list[int] = []

    def noted(which: int, context: Machine) -> Any:
        forward = context.forward

        def timed(work: Any) -> None:
            order.append(which)
            before = context.now
            forward(work)
            machine.now += 0 if context is machine else context.now - before

        context.forward = timed  # type: ignore[method-assign]
        return context

    contexts = [noted(0, machine), noted(1, other)]
    first, second = timing.compare(contexts, 1.0)
    assert first == pytest.approx({n: 1e-3 * n for n in first})
    assert second == pytest.approx({n: 2e-3 * n for n in second})
    assert set(first) == set(second)
    assert len(first) >= 4
    changes = sum(a != b for a, b in itertools.pairwise(order))
    assert changes >= 2 * len(first) - 1
    assert machine.now < 1.2


class Experts:
    """Counts the experts that a pass's tokens go to, as llama.cpp computes them."""

    def __init__(self) -> None:
        self.touched: dict[int, list[int]] = defaultdict(list)
        """By width: distinct experts of each layer of each pass."""
        self.callback: Any = c_api.ggml_backend_sched_eval_callback(self._see)
        for name, result, *arguments in (
            ("ggml_get_name", ctypes.c_char_p, ctypes.c_void_p),
            ("ggml_nbytes", ctypes.c_size_t, ctypes.c_void_p),
            ("ggml_nelements", ctypes.c_int64, ctypes.c_void_p),
            ("ggml_backend_tensor_get", None, *[ctypes.c_void_p] * 2, *[ctypes.c_size_t] * 2),
        ):
            function = getattr(libggml, name)
            function.restype, function.argtypes = result, arguments
        self.used = 0

    def _see(self, tensor: Any, ask: bool, _data: object) -> bool:
        if not libggml.ggml_get_name(tensor).startswith(b"ffn_moe_topk-"):
            return not ask
        if not ask:
            n_bytes = libggml.ggml_nbytes(tensor)
            ids = (ctypes.c_int32 * (n_bytes // 4))()
            libggml.ggml_backend_tensor_get(tensor, ids, 0, n_bytes)
            width = libggml.ggml_nelements(tensor) // self.used
            # Rows of a view: the experts in use are the first of each.
            row = (len(ids) - self.used) // (width - 1) if width > 1 else 0
            chosen = {ids[i * row + j] for i in range(width) for j in range(self.used)}
            self.touched[width].append(len(chosen))
        return True


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_swept_pass_touches_as_many_experts_as_one_of_a_real_round(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is what t(4) / t(1) of such a model depends on, and depends on no clock."""
    size = Size(layers=4, experts=16, used=2)
    path = write_moe(tmp_path / "moe.gguf", architecture, size)
    experts = Experts()
    experts.used = size.used

    def watched(self: Context, params: Any) -> None:
        if self.model.path == path:
            params.cb_eval = experts.callback

    monkeypatch.setattr(Context, "_adjust", watched)
    draft = str(DEMO_DIR / "draft.gguf")
    options = Options(str(path), draft=draft, drafter=("model",), draft_max=3, threads=1)
    with Runtime.open(options) as runtime:
        target = next(
            part
            for part in runtime.pair.parts.loaded
            if isinstance(part, Context) and part.model.path == path
        )
        experts.touched.clear()
        timing.sweep(target, 0.5)
        swept = mean(experts.touched[4])
        experts.touched.clear()
        for seed in range(4):
            messages = [Message("user", "Tell me a story about a lighthouse keeper.")]
            sampling = Sampling(temperature=1.0, top_k=0, top_p=1.0)
            for _ in runtime.reply(messages, sampling=sampling, seed=seed, max_tokens=16):
                pass
        real = mean(experts.touched[4])
        runtime.forget()
        experts.touched.clear()
        target.forward([(0, [5] * 4, 4)])
        alike = mean(experts.touched[4])
    assert swept == pytest.approx(real, rel=0.15)
    assert alike < 0.85 * real


@pytest.mark.parametrize("on_device", [False, True], ids=["processor", "device"])
def test_reading_is_measured_without_the_pass_that_loads_kernels(
    on_device: bool, machine: Machine
) -> None:
    machine.on_device, machine.first_s, machine.token_s = on_device, 0.03, 1e-3
    found = timing.TimedContext(cast(Context, machine)).read_seconds()
    assert found == pytest.approx(1e-3)
    assert machine.held == 0


def test_a_slow_drafter_reads_once_to_be_measured(machine: Machine) -> None:
    machine.token_s = 0.02
    assert timing.TimedContext(cast(Context, machine)).read_seconds() == pytest.approx(0.02)
    assert machine.widths == [16]


def test_reading_is_not_measured_behind_a_text(machine: Machine) -> None:
    machine.held = 5
    assert timing.TimedContext(cast(Context, machine)).read_seconds() is None
