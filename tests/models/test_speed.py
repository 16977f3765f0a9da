"""Expected speeds from sizes, and the pair that suits a machine best."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.cli import call
from localspec.core.files import paths
from localspec.core.processes import host, neighbours
from localspec.core.processes.host import ProcessorTime
from localspec.demo.race import Machine
from localspec.demo.speeds import advice
from localspec.loading import machine_speed as module
from localspec.loading.machine_speed import machine_speed, machine_speed_async, saved
from localspec.loading.offers import READING, Offer, best, in_folder, offers, recommended
from localspec.models.memory import ask_machine, fit
from localspec.models.memory.machine import Gpu, Memory
from localspec.models.memory.speed import MachineSpeed, Reads, expected, weight_type
from tui.controllers.greeting import toy

GB = 10**9
LAPTOP = Memory((), 16 * GB, 16 * GB)
CURVE = {1: 40e-12, 4: 80e-12, 8: 150e-12}
CPU = MachineSpeed({"Q4_0": CURVE, "Q4_K": CURVE}, {})


def test_plain_speed_is_what_reading_the_weights_once_a_token_allows() -> None:
    assert expected(CPU, LAPTOP, Reads.alone(5 * GB, "x-Q4_K_M.gguf")).plain == pytest.approx(5.0)


def test_drafting_gains_what_its_acceptance_pays_and_never_loses() -> None:
    def gain(acceptance: float, draft: int) -> float:
        reads = Reads(5 * GB, draft, "Q4_K", acceptance=acceptance)
        found = expected(CPU, LAPTOP, reads)
        return found.drafted / found.plain

    assert gain(0.95, GB // 10) > gain(0.7, GB // 10) > gain(0.7, GB) >= 1.0
    assert gain(0.2, GB) == 1.0
    # K = 2: 1 + 0.8 + 0.64 tokens for a pass over three and two passes of the draft
    assert gain(0.8, GB // 2) == pytest.approx(2.44 / (5 / 3 + 2 * 0.1))


def test_experts_make_a_token_cheap_and_a_draft_dear() -> None:
    dense = Reads(4 * GB, 0, "Q4_K")
    few = Reads(20 * GB, 0, "Q4_K", active=0.2)
    assert expected(CPU, LAPTOP, few).plain == pytest.approx(expected(CPU, LAPTOP, dense).plain)
    assert few.read(4) / few.read(1) > 2.9
    assert dense.read(4) == dense.read(1)
    assert dense.size < few.size < 20 * GB


def test_layers_without_room_on_the_gpu_are_computed_at_the_speed_of_the_host() -> None:
    fast = {n: s / 10 for n, s in CURVE.items()}
    both = MachineSpeed(CPU.host, {"Q4_0": fast, "Q4_K": fast})
    half = Memory((Gpu("CUDA0", "a card", 6 * GB, 8 * GB),), 32 * GB, 32 * GB)
    reads = Reads.alone(10 * GB, "x")
    share = half.gpu_usable / (10 * GB)
    seconds = 10 * GB * (share * fast[1] + (1 - share) * CURVE[1])
    assert expected(both, half, reads).plain == pytest.approx(1 / seconds)


def test_the_type_is_known_by_the_name_of_the_file() -> None:
    assert weight_type("gemma-3-12b-it-qat-Q4_0.gguf") == "Q4_0"
    assert weight_type("Qwen3-8B-Q4_K_M.gguf") == "Q4_K"


def test_the_best_pair_is_the_largest_that_writes_as_fast_as_one_reads() -> None:
    found = best(offers().found, CPU, LAPTOP)
    assert found is not None
    assert found.speed.drafted >= READING
    others = [
        o
        for o in offers().found
        if o.reads and found.offer.reads and o.reads.size > found.offer.reads.size
        if o.drafting and not o.about.startswith("code")
    ]
    speeds = [o.speed(CPU, LAPTOP) for o in others]
    assert all(speed is None or speed.drafted < READING for speed in speeds)


def test_on_a_slow_machine_the_best_pair_is_the_fastest_and_never_the_toy() -> None:
    slow = MachineSpeed({k: {n: 50 * s for n, s in CURVE.items()} for k in ("Q4_0", "Q4_K")}, {})
    found = best(offers().found, slow, LAPTOP)
    assert found is not None
    assert not found.offer.embedded
    assert found.speed.drafted < READING
    assert best(offers().found, slow, Memory((), GB // 2, GB)) is None


def test_every_pair_of_known_size_has_an_expected_speed() -> None:
    everything = Memory((), 1000 * GB, 1000 * GB)
    for offer in offers().found:
        assert isinstance(offer, Offer)
        speed = offer.speed(CPU, everything)
        assert (speed is None) == (offer.target_bytes is None or offer.embedded)
        assert speed is None or speed.drafted >= speed.plain > 0


def test_an_empty_file_has_no_expected_speed(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    (offer,) = in_folder(tmp_path)
    assert offer.speed(CPU, LAPTOP) is None


def answer(**changes: object) -> dict[str, object]:
    curves = {"Q4_0": {"1": 4e-11}, "Q4_K": {"1": 4e-11}}
    return {"host": curves, "gpu": {}, "disturbed": False} | changes


def test_the_machine_is_measured_once_and_again_where_others_disturbed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def ask(*words: str) -> object:
        asked.append(words)
        return answer(disturbed=len(asked) == 1)

    monkeypatch.setattr(module, "ask", ask)
    for _ in range(3):
        assert machine_speed() is not None
    assert len(asked) == 2
    assert saved() == MachineSpeed({"Q4_0": {1: 4e-11}, "Q4_K": {1: 4e-11}}, {})


HERE = {"machine": "as here", "runs": 1}


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{}",
        '{"machine": 1}',
        json.dumps({"machine": "as here", "runs": 1, "speed": answer(host={})}),
    ],
)
def test_a_damaged_file_is_measured_anew(damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_machine", lambda: "as here")
    (paths.make(paths.cache_dir()) / "speed.json").write_text(damage)
    assert saved() is None


def test_where_nothing_can_be_measured_there_is_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    for said in ({}, answer(host={"Q4_K": {"4": 1e-11}}), answer(host={"Q4_K": {"1": -1}})):
        monkeypatch.setattr(module, "ask", lambda *_, said=said: said)
        assert machine_speed() is None


async def test_where_little_memory_is_free_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system would read the measured models again and again."""
    asked = []
    monkeypatch.setattr(module, "ask", lambda *_: asked.append(1) or answer())
    monkeypatch.setattr(host, "memory", lambda: host.HostMemory(300_000_000, 300_000_000))
    assert machine_speed() is None
    assert await machine_speed_async() is None
    assert not asked
    monkeypatch.setattr(host, "memory", lambda: host.HostMemory(700_000_000, GB))
    assert machine_speed() is not None
    monkeypatch.setattr(host, "memory", lambda: host.HostMemory(300_000_000, 300_000_000))
    assert machine_speed() is not None, "known is known"


def test_of_disturbed_measurements_the_least_of_each_width_counts_and_they_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = iter(
        [{"1": 9e-11, "4": 2e-10}, {"1": 4e-11}, {"1": 5e-11, "4": 1e-10}, *[{"1": 1}] * 9]
    )
    asked = []

    def ask(*_: str) -> object:
        asked.append(next(seconds))
        return answer(host={"Q4_K": asked[-1]}, disturbed=True)

    monkeypatch.setattr(module, "ask", ask)
    monkeypatch.setattr(neighbours, "busy_now", lambda: True)
    for _ in range(9):
        machine_speed()
    known = saved()
    assert known is not None
    assert known.host["Q4_K"] == {1: 4e-11, 4: 1e-10}
    assert len(asked) == 5


def test_a_machine_that_was_always_busy_is_measured_again_as_soon_as_it_is_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = True

    def ask(*_: str) -> object:
        return answer(host={"Q4_K": {"1": 9e-11 if busy else 2e-11}}, disturbed=busy)

    monkeypatch.setattr(module, "ask", ask)
    monkeypatch.setattr(neighbours, "busy_now", lambda: busy)
    for _ in range(9):
        machine_speed()
    busy = False
    machine_speed()
    assert saved() == MachineSpeed({"Q4_K": {1: 2e-11}}, {})


async def test_a_machine_can_be_measured_again_although_it_was_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = iter((9e-11, 2e-11))

    async def ask(*_: str) -> object:
        return answer(host={"Q4_K": {"1": next(seconds)}})

    monkeypatch.setattr(module, "ask_async", ask)
    await machine_speed_async()
    await machine_speed_async()
    assert (await machine_speed_async(again=True)) == MachineSpeed({"Q4_K": {1: 2e-11}}, {})


def test_speeds_of_a_busy_machine_are_lower_bounds_and_condemn_no_model() -> None:
    busy = dataclasses.replace(CPU, disturbed=True)
    big = Reads.alone(20 * GB, "x-Q4_K_M.gguf")
    known, doubtful = (expected(m, Memory((), 99 * GB, 99 * GB), big) for m in (CPU, busy))
    assert (str(known), known.slow) == ("1.2", True)
    assert (str(doubtful), doubtful.slow) == ("1.2+", False)
    assert doubtful.words == "at least 1.2 tokens/s"


def test_the_recommendation_is_the_same_wherever_it_is_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a race, in the models of the shell, and after the toy's first reply."""
    curves = {kind: {str(n): s for n, s in CURVE.items()} for kind in ("Q4_0", "Q4_K")}
    monkeypatch.setattr(module, "ask", lambda *_: answer(host=curves))
    monkeypatch.setattr(ask_machine, "memory", lambda: LAPTOP)
    monkeypatch.setattr(fit, "memory_now", lambda: LAPTOP)
    speed = machine_speed()
    assert speed is not None
    found, after_race = recommended(), asyncio.run(Machine().best(speed, LAPTOP))
    assert found == after_race
    assert found is not None
    assert call(["models", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [pair["name"] for pair in listed if pair["best"]] == [found.offer.name]
    assert found.sentence in advice(after_race, GB, "")
    assert found.sentence in toy("F4", found)


def test_the_work_of_our_children_is_ours_also_after_they_have_ended() -> None:
    before = neighbours._ours()
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert neighbours._ours() - before >= 0.2


@pytest.mark.parametrize(("share", "busy"), [(0.14, False), (0.16, True)])
def test_more_than_a_seventh_of_the_processor_is_busy(
    monkeypatch: pytest.MonkeyPatch, share: float, busy: bool
) -> None:
    used, now = iter((100.0, 100.0 + 10 * share * 3)), iter((5.0, 15.0))
    monkeypatch.setattr(neighbours, "_others", lambda: ProcessorTime(next(used), 3))
    monkeypatch.setattr(neighbours, "monotonic", lambda: next(now))
    assert neighbours.Neighbours().busy is busy
