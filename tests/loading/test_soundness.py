"""Builds that compute wrongly, crash or hang are found out, and the result is saved."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
from conftest import Files

from localspec import cli
from localspec.compiling import own_build
from localspec.compiling.own_build import Build
from localspec.core import kernel
from localspec.core.errors import LocalspecError, UnsoundBuildError
from localspec.core.options import Options
from localspec.core.processes.children import command
from localspec.doctor import build as build_finding
from localspec.doctor import diagnose
from localspec.llama import devices, proof
from localspec.llama.heads.tensors import mapped
from localspec.llama.proof import TYPES, write_model
from localspec.loading import library, machine_speed, resources, soundness
from localspec.loading.soundness import Prover, Soundness
from localspec.models.gguf.model_file import ModelFile
from localspec.models.memory.speed import MachineSpeed
from localspec.runtime import Runtime

# The real proof, over a library whose passes break in one way: in all builds of it, or only where
# weights are repacked.
BROKEN = """
import ctypes, os, signal, sys
from localspec.llama import proof

class Broken(proof.Context):
    def forward(self, work, **kinds):
        rows = super().forward(work, **kinds)
        if len(work[0][1]) != 4 or (sys.argv[2] == "repacked" and "--plain-buffers" in sys.argv):
            return rows
        if sys.argv[1] == "SIGSEGV":
            ctypes.string_at(0)
        elif sys.argv[1] == "NaN":
            rows[0][2, 7] = float("nan")
        elif sys.argv[1] == "wrong":
            rows[0][2] = rows[0][2][::-1].copy()
        else:
            os.kill(os.getpid(), getattr(signal, sys.argv[1]))
        return rows

proof.Context = Broken
sys.exit(proof.main(sys.argv[1:]))
"""
HANGS = """
import time
print('{"at": "Q4_0 on the processor, a pass of 4 tokens"}', flush=True)
time.sleep(600)
"""
PLACE = "Q4_0 on the processor, a pass of 4 tokens"


def prover(program: str, *arguments: str, patience: float = 100.0) -> Prover:
    _, environment = command(soundness.PROOF)
    line = (sys.executable, "-P", "-c", program, *arguments)
    return Prover(line, environment | {"OPENBLAS_NUM_THREADS": "1"}, patience)


@pytest.fixture
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment in which nothing was proved yet."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return tmp_path


def test_the_library_here_agrees_with_numpy() -> None:
    found = soundness.prover_by(soundness.PROOF).soundness()
    assert found.extra_buffers, found.failed
    assert found.sound


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGILL", "SIGSEGV", "SIGABRT", "NaN", "wrong"])
def test_a_library_that_breaks_is_unsound_and_the_place_is_named(how: str) -> None:
    failed = prover(BROKEN, how, "always").failure()
    expected = {"NaN": "not numbers", "wrong": "standard deviations"}.get(how, how)
    assert expected in failed
    assert PLACE in failed


def test_what_breaks_with_repacked_weights_alone_is_used_without_them() -> None:
    found = prover(BROKEN, "SIGILL", "repacked").soundness()
    assert (found.sound, found.extra_buffers) == (True, False)
    assert "SIGILL" in found.failed


def test_a_proof_that_crashes_leaves_no_models_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert "SIGABRT" in prover(BROKEN, "SIGABRT", "always").failure()
    assert not any(tmp_path.iterdir())


def test_what_breaks_either_way_is_not_sound() -> None:
    assert not prover(BROKEN, "SIGILL", "always").soundness().sound


def test_a_library_that_hangs_is_unsound() -> None:
    assert "no answer within" in prover(HANGS, patience=0.5).failure()


def test_a_step_that_hangs_ends_by_its_own_alarm() -> None:
    program = "import os, signal; os.kill(os.getpid(), signal.SIGALRM)"
    assert "no answer for 60 s" in prover(program).failure()


def test_a_device_that_compiles_kernels_has_ten_minutes_for_a_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alarms: list[int] = []
    monkeypatch.setattr(signal, "alarm", alarms.append)
    case = proof.Case("F16", Path("no such file"), [1], np.zeros((1, 4), np.float32), 1.0)
    for layers in (0, None):
        with pytest.raises(LocalspecError):
            proof.prove(case, "a device", gpu_layers=layers, extra_buffers=False)
    assert alarms == [60, 600]
    program = 'import os, signal; print(\'{"at": "x", "limit": 600}\', flush=True)'
    program += "; os.kill(os.getpid(), signal.SIGALRM)"
    assert "no answer for 600 s" in prover(program).failure()


@pytest.mark.parametrize(
    "program",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "raise OSError('libcuda.so.1: cannot open shared object file')",
        "raise SystemExit(0)",
    ],
)
def test_a_proof_that_was_not_made_says_nothing_about_the_build(program: str) -> None:
    with pytest.raises(LocalspecError, match="computes right here"):
        prover(program).soundness()


def test_a_card_that_others_nearly_fill_is_no_fault_of_the_build(own_environment: Path) -> None:
    """llama.cpp says this in a pass there, and aborts."""
    program = "import os; os.write(2, b'CUDA error: out of memory'); os.abort()"
    with pytest.raises(LocalspecError, match="the GPU ran out of memory; close other programs"):
        soundness.proved(prover(program))
    assert soundness.recorded() is None


def test_a_machine_without_memory_is_no_fault_of_the_build_nor_of_a_card(
    own_environment: Path,
) -> None:
    words = "b'ggml_gallocr_reserve_n: failed to allocate CPU buffer of size 9'"
    program = f"import os; os.write(2, {words}); os.abort()"
    with pytest.raises(LocalspecError, match="memory; close other programs") as told:
        soundness.proved(prover(program))
    assert "CUDA" not in str(told.value)
    assert "GPU" not in str(told.value)
    assert soundness.recorded() is None


def test_a_full_disk_of_temporary_files_is_named_with_what_to_do(
    own_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = "raise OSError(28, 'No space left on device')"
    with pytest.raises(LocalspecError, match=f"{tmp_path}.*make room there, or set TMPDIR"):
        soundness.proved(prover(program))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(LocalspecError, match=f"{tmp_path}.*make room there, or set TMPDIR"):
        soundness.proved(prover(program))


@pytest.mark.parametrize(("free", "total"), [(0, 0), (70 << 20, 24 << 30)])
def test_beside_a_card_that_others_fill_the_processor_is_proved_and_later_the_card(
    own_environment: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    free: int,
    total: int,
) -> None:
    monkeypatch.setattr(proof, "backend", lambda: "cuda")
    monkeypatch.setattr(devices, "backend", lambda: "cuda")
    card = devices.Device("CUDA0", "", "gpu", free, total)
    monkeypatch.setattr(devices, "free_accelerators", lambda: [card])
    monkeypatch.setattr(proof, "cases", lambda *_: [SimpleNamespace(name="a case")])
    places: list[str] = []
    monkeypatch.setattr(proof, "prove", lambda case, place, **_: places.append(place) or 0.0)
    assert proof.main([]) == proof.IN_PART
    assert places == ["the processor"]
    said = capsys.readouterr().out
    found = soundness.proved(prover(f"print({said!r}); raise SystemExit({proof.IN_PART})"))
    assert (found.sound, found.in_part) == (True, True)
    assert soundness.recorded() is None


def test_the_result_of_a_proof_is_saved(own_environment: Path) -> None:
    first = soundness.proved(prover(BROKEN, "SIGILL", "repacked"))
    never = Prover(("/no/such/program",), {})
    assert soundness.proved(never) == soundness.recorded() == first


def test_the_result_is_read_again_where_it_was_written_with_a_umask_of_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)  # the cache is the place
    before = os.umask(0)
    try:
        first = soundness.proved(prover("print('{\"worst\": 0}')"))
        speed = MachineSpeed({"Q4_K": {1: 1.0}}, {}, disturbed=True)
        for runs in (1, 2):
            machine_speed._merged(dataclasses.asdict(speed), machine_speed._Record.read())
            known = machine_speed._Record.read()
            assert known is not None
            assert known.runs == runs
    finally:
        os.umask(before)
    assert soundness.recorded() == first


def test_another_processor_is_proved_anew(
    own_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soundness.proved(prover("print('{\"worst\": 0}')"))
    monkeypatch.setattr(library, "processor", lambda: ["another"])
    assert soundness.recorded() is None
    assert not soundness.proved(prover(HANGS, patience=0.1)).sound


def test_a_build_for_cuda_is_proved_anew_where_a_card_appears(
    own_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = tmp_path / "lib"
    libraries.mkdir()
    (libraries / "libold.so").symlink_to("gone")
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(libraries))
    monkeypatch.setattr(library, "_DRIVER", tmp_path / "version")

    def proved_after(change: Path) -> bool:
        soundness.proved(prover("print('{\"worst\": 0}')"))
        change.write_text("580.95.05\n")
        return soundness.recorded() is not None

    assert proved_after(tmp_path / "version"), "a driver is nothing to a build for the processor"
    (tmp_path / "version").unlink()
    (libraries / "libggml-cuda.so").touch()
    assert not proved_after(tmp_path / "version")
    soundness.proved(prover("print('{\"worst\": 0}')"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert soundness.recorded() is None
    soundness.proved(prover("print('{\"worst\": 0}')"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert soundness.recorded() is not None, "two engines with other cards prove once each"


CARD = {"vendor": "0x10de", "device": "0x2330", "subsystem_vendor": "0x10de"}


@pytest.mark.parametrize("device", ["cuda", "vulkan"])
def test_a_build_for_a_card_is_proved_anew_on_another_card(
    own_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    pci = tmp_path / "pci" / "0000:01:00.0"
    pci.mkdir(parents=True)
    for name, value in CARD.items():
        (pci / name).write_text(f"{value}\n")
    (tmp_path / "gpus" / pci.name).mkdir(parents=True)
    (tmp_path / "drm" / "renderD128").mkdir(parents=True)
    (tmp_path / "drm" / "renderD128" / "device").symlink_to(pci)
    libraries = tmp_path / "lib"
    libraries.mkdir()
    (libraries / f"libggml-{device}.so").touch()
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(libraries))
    for name, folder in (("_PCI", "pci"), ("_GPUS", "gpus"), ("_DRM", "drm")):
        monkeypatch.setattr(library, name, tmp_path / folder)
    soundness.proved(prover("print('{\"worst\": 0}')"))
    assert soundness.recorded() is not None
    (pci / "device").write_text("0x2335\n")
    assert soundness.recorded() is None
    (pci / "device").write_text("0x2330\n")
    assert soundness.recorded() is not None
    if device == "vulkan":
        monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "1")
        assert soundness.recorded() is None


def test_what_a_proof_itself_changes_does_not_undo_it(
    own_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first use of a card makes its nodes, and a restart of the machine takes them away."""
    nodes: list[str] = []

    class Proving(Prover):
        def soundness(self) -> Soundness:
            nodes.append("/dev/nvidia0")
            return Soundness(extra_buffers=True)

    monkeypatch.setattr(library, "identity", lambda: f"with {nodes}")
    soundness.proved(Proving((), {}))
    nodes.clear()
    assert soundness.recorded() is not None


def test_a_library_is_known_by_its_contents_from_when_it_was_proved(
    own_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = tmp_path / "lib"
    libraries.mkdir()
    (libraries / "libllama.so").write_text("by GCC 12")
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(libraries))
    first = soundness.digest()
    assert soundness.proved(prover("print('{\"worst\": 0}')")).digest == first
    with monkeypatch.context() as known:
        known.setattr(library, "digest", lambda: pytest.fail("read again"))
        assert soundness.digest() == first
    os.utime(libraries / "libllama.so", (1, 1))
    assert soundness.digest() == first, "a copy is the same library"
    (libraries / "libllama.so").write_text("by GCC 14")
    assert soundness.digest() != first


def test_another_library_is_proved_anew(
    own_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soundness.proved(prover("print('{\"worst\": 0}')"))
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(own_environment))
    assert soundness.recorded() is None


def test_a_proof_is_told_before_it_starts_and_not_when_its_result_is_saved(
    own_environment: Path,
) -> None:
    told: list[str] = []
    for _ in range(2):
        soundness.proved(prover("print('{\"worst\": 0}')"), lambda: told.append("told"))
    assert told == ["told"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"identity": 1}'])
def test_damaged_notes_are_no_proof(own_environment: Path, content: str) -> None:
    (own_environment / "llama-proof.json").write_text(content)
    assert soundness.recorded() is None


def test_where_the_environment_belongs_to_others_the_cache_remembers(
    own_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    soundness.proved(prover("print('{\"worst\": 0}')"))
    assert soundness.recorded() is not None
    assert not (own_environment / "llama-proof.json").exists()


def test_reading_the_saved_result_loads_no_llama() -> None:
    program = "import sys; from localspec.loading import soundness; soundness.recorded(); "
    program += "sys.exit('llama_cpp' in sys.modules or 'numpy' in sys.modules)"
    line, environment = command(soundness.PROOF)
    subprocess.run([line[0], "-P", "-c", program], env=environment, check=True)


# What the product does with it


def known(monkeypatch: pytest.MonkeyPatch, found: Soundness, how: Build | None = None) -> None:
    monkeypatch.setattr(soundness, "recorded", lambda: found)
    monkeypatch.setattr(own_build, "build", lambda: how)


REPACKED = Soundness(extra_buffers=False, failed=f"SIGILL, at {PLACE}")
NOT_SOUND = dataclasses.replace(REPACKED, failed_plain=f"SIGSEGV, at {PLACE}")


@pytest.mark.slow
@pytest.mark.parametrize("found", [Soundness(extra_buffers=True), REPACKED])
def test_models_are_loaded_in_the_way_that_is_sound(
    found: Soundness, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(monkeypatch, found)
    asked: list[bool] = []

    class Watched(resources.Model):
        def __init__(self, *args, extra_buffers, **kinds) -> None:
            asked.append(extra_buffers)
            super().__init__(*args, extra_buffers=extra_buffers, **kinds)

    monkeypatch.setattr(resources, "Model", Watched)
    with Runtime.open(Options(model=str(files.target), draft=str(files.draft), draft_max=2)):
        assert asked == [found.extra_buffers] * 2


def test_nothing_is_loaded_where_nothing_is_sound(
    files: Files, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    known(monkeypatch, NOT_SOUND)
    assert cli.call(["run", "-m", str(files.target), "hello"]) == 1
    said = capfd.readouterr()
    assert said.err.count("\n") == 1
    assert "SIGSEGV" in said.err
    assert "build it again: localspec build-llama" in said.err
    with pytest.raises(UnsoundBuildError):
        soundness.required()


def test_doctor_names_the_rung_and_why() -> None:
    ladder = Build("natively without AMX", {"natively": f"SIGILL, at {PLACE}"})
    found = build_finding.finding(Soundness(extra_buffers=True), ladder)
    assert found.status == "ok"
    assert found.text.startswith("built natively without AMX")
    assert f"natively failed: SIGILL, at {PLACE}" in found.text
    by_pip = build_finding.finding(REPACKED, None)
    assert by_pip.status == "ok"
    assert "without repacked weights" in by_pip.text


def test_doctor_has_the_command_for_quicker_sampling_where_numpy_does_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel, "loaded", lambda: None)
    monkeypatch.setattr(sys, "executable", "/opt/a folder/bin/python")
    monkeypatch.setattr(os, "access", lambda *_: True)
    found = build_finding.finding(Soundness(extra_buffers=True), None)
    assert "`'/opt/a folder/bin/python' -m localspec.core.kernel.build`" in found.text
    assert found.details["row_kernel"] is False
    monkeypatch.setattr(os, "access", lambda *_: False)
    others = build_finding.finding(Soundness(extra_buffers=True), None)
    assert others.text.endswith("; numpy samples"), "nobody is told to write where he may not"
    monkeypatch.setattr(kernel, "loaded", object)
    assert "numpy samples" not in build_finding.finding(Soundness(extra_buffers=True), None).text


def test_doctor_outlives_a_library_that_nothing_can_be_done_with(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    known(monkeypatch, NOT_SOUND)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = {finding.topic: finding for finding in diagnose(offline=True)}
    assert found["build"].status == "broken"
    assert found["build"].fix == "localspec build-llama"
    assert "llama.cpp" not in found  # it was not loaded into this process
    assert found["speed"].text.startswith("not tried")


# The reference


@pytest.mark.parametrize("kind", TYPES)
def test_weights_are_read_as_the_format_says(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, kind)
    name = "blk.1.ffn_down.weight"
    weight = mapped(ModelFile(path), {name})[name]
    expected = gguf.quants.dequantize(
        np.array(weight.data).reshape(weight.shape[1], -1),
        gguf.GGMLQuantizationType(weight.ggml_type),
    )
    found = weight.numbers()
    np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=1e-6, atol=1e-9)
    assert abs(float(found.mean())) < 0.05 * float(found.std())


def test_one_wrong_logit_shows() -> None:
    rng = np.random.default_rng(0)
    expected = rng.normal(0, 3, (4, 512)).astype(np.float32)
    rows = expected + rng.normal(0, 0.1, expected.shape).astype(np.float32)
    assert proof.deviation(rows, expected) < proof.RANDOM_TOLERANCE
    rows[2, 100] = 9
    assert proof.deviation(rows, expected) > proof.RANDOM_TOLERANCE
    rows[2, 100] = np.inf
    assert np.isnan(proof.deviation(rows, expected))
