"""Our own kernels are used where they are compiled, proved and not slower; else one line says why.

What a proof finds is in tests/kernels/test_prove.py; here is what follows from it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import Files
from kernel_stand_ins import stand_in

from localspec.compiling import cxx, own_build
from localspec.core import settings_schema as schema
from localspec.core.errors import LocalspecError, NoKernelError, UsageError
from localspec.core.options import Options
from localspec.kernels import build
from localspec.kernels.build import Built
from localspec.kernels.compiler import RefusedError
from localspec.llama import own_kernels as registered
from localspec.llama import weight_speed
from localspec.loading import kernel_proof, loader, machine_speed, own_kernels
from localspec.loading.kernel_proof import Proved

pytestmark = pytest.mark.skipif(
    os.environ.get("LOCALSPEC_KERNELS") == "llama",
    reason="our kernels are left out",
)


@pytest.fixture
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results go to a place of the test's own, and nothing is measured."""
    monkeypatch.setattr(kernel_proof.soundness, "places", lambda name: [tmp_path / name])
    monkeypatch.setattr(kernel_proof, "_times", lambda *_: {})
    monkeypatch.setattr(build, "impossible", lambda: "")


def stored(monkeypatch: pytest.MonkeyPatch, path: Path) -> Built:
    built = Built(path, ("stand_in",), {}, "cc")
    monkeypatch.setattr(build, "stored", lambda: built)
    return built


@pytest.mark.slow
@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("OFF", "off by"),
        ("BY_WIDTH", "other bits"),
        ("CRASHES", "SIGABRT, at F32"),
        ("HANGS", "no answer"),
    ],
)
def test_kernels_that_fail_their_proof_are_not_used_and_doctor_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str, why: str
) -> None:
    monkeypatch.setattr(kernel_proof, "_PATIENCE_S", 3.0 if wrong == "HANGS" else 60.0)
    built = stored(monkeypatch, stand_in(tmp_path, wrong))
    choice = own_kernels.engage(None)
    assert not choice.unit
    assert why in choice.why
    assert why in own_kernels.state()
    with pytest.raises(LocalspecError, match=f"--kernels own is not possible: .*{why}"):
        own_kernels.engage("own")
    known = kernel_proof.recorded(built)
    assert known is not None
    assert why in known.failed["stand_in"]


@pytest.mark.usefixtures("_alone")
def test_a_failed_proof_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(monkeypatch, stand_in(tmp_path, "OFF"))
    first, told = own_kernels.engage(None), list[str]()
    monkeypatch.setattr(kernel_proof, "prove", lambda _: pytest.fail("proved again"))
    assert own_kernels.engage(None, told.append) == first
    assert not told


@pytest.mark.usefixtures("_alone")
def test_a_library_that_is_not_opened_is_not_checked_at_each_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(monkeypatch, stand_in(tmp_path, "OFF"))
    tmp_path.chmod(0o777)
    told = list[str]()
    assert f"others may write to {tmp_path}" in own_kernels.engage(None, told.append).why
    assert not told


@pytest.mark.usefixtures("_alone")
def test_another_library_is_proved_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = stored(monkeypatch, stand_in(tmp_path, "OFF"))
    own_kernels.engage(None)
    built.path.with_name(f"{built.path.name}.sha256").write_text("another\n")
    assert kernel_proof.recorded(built) is None


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize("seconds", ["0", "-1.0", "1e999", "NaN"])
def test_a_time_that_no_pass_takes_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: str
) -> None:
    built = stored(monkeypatch, stand_in(tmp_path, "OFF"))
    proved = {"failed": {"avx2": ""}, "of_width": {"1": float(seconds)}, "untimed": ""}
    kernel_proof.save({"identity": kernel_proof.identity(built), "proved": proved})
    assert kernel_proof.recorded(built) is None


@pytest.mark.usefixtures("_alone")
def test_llama_s_kernels_are_taken_where_they_are_faster_unless_ours_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(monkeypatch, tmp_path / "library")
    monkeypatch.setattr(kernel_proof, "recorded", lambda _: Proved({"avx2": ""}, {"1": 1.3}))
    choice = own_kernels.engage(None)
    assert choice.text == "llama.cpp's kernels: ours take 1.30 times as long on this machine"
    monkeypatch.setattr(cxx, "library_folder", lambda: tmp_path)
    monkeypatch.setattr(registered, "register", lambda *arguments: arguments[2])
    assert own_kernels.engage("own").unit == "avx2"


@pytest.mark.usefixtures("_alone")
def test_doctor_names_what_the_compiler_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = Built(tmp_path / "library", ("avx2",), {"amx": "a.h:1: error: no"}, "cc")
    monkeypatch.setattr(build, "stored", lambda: built)
    monkeypatch.setattr(kernel_proof, "recorded", lambda _: Proved({"avx2": ""}, {"1": 0.5}))
    said = own_kernels.state()
    assert "AMX was left out: a.h:1: error: no" in said
    assert f"delete {tmp_path} to compile again" in said


@pytest.mark.usefixtures("_alone")
def test_what_the_system_refuses_to_this_process_leaves_the_next_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(monkeypatch, tmp_path / "library")
    proved = Proved({"amx": "", "avx512vnni": "wrong", "avx2": ""}, {"1": 0.5})
    monkeypatch.setattr(kernel_proof, "recorded", lambda _: proved)
    monkeypatch.setattr(cxx, "library_folder", lambda: tmp_path)

    def register(_path: Path, _libraries: Path, unit: str) -> str:
        if unit == "amx":
            raise NoKernelError("the processor has no instructions for amx")
        return unit

    monkeypatch.setattr(registered, "register", register)
    assert own_kernels.engage("own").unit == "avx2"


def test_what_the_kernels_gain_is_said_only_where_it_was_measured_and_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(monkeypatch, tmp_path / "library")

    def found(of_width: dict[str, float]) -> None:
        monkeypatch.setattr(kernel_proof, "recorded", lambda _: Proved({"avx2": ""}, of_width))

    found({"1": 0.5, "4": 0.25, "128": 0.4})
    assert "one token is 2.0× as fast here, one over four tokens 4.0×" in own_kernels.gain()
    assert "2.0 for 1, 4.0 for 4, 2.5 for 128" in own_kernels.state()
    for nothing in ({}, {"1": 1.3, "4": 1.2}, {"128": 0.5}):
        found(nothing)
        assert own_kernels.gain() == ""
    found({"1": 0.5, "4": 0.25})
    monkeypatch.setenv("LOCALSPEC_KERNELS", "llama")
    assert own_kernels.gain() == ""


def test_what_the_settings_leave_out_is_not_there_unless_the_environment_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_kernels, "_ready", lambda *_, **__: (None, Proved({"avx2": ""}, {})))
    monkeypatch.delenv("LOCALSPEC_KERNELS", raising=False)
    assert own_kernels.without_making() is None
    monkeypatch.setattr(own_kernels.config, "settings", lambda: {"kernels": "llama"})
    assert own_kernels.without_making() == "llama"
    assert "kernels in " in own_kernels.state()
    monkeypatch.setenv("LOCALSPEC_KERNELS", "auto")
    assert own_kernels.without_making() is None


def test_a_machine_that_is_too_busy_to_tell_uses_ours() -> None:
    assert not Proved({"avx2": ""}, {}).slower
    assert not Proved({"avx2": ""}, {"1": 1.1, "4": 0.95}).slower
    assert Proved({"avx2": ""}, {"1": 1.06}).slower


@pytest.mark.usefixtures("_alone")
def test_a_busy_machine_is_not_timed_at_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes beside neighbours take many times as long, and their times say nothing."""
    built = stored(monkeypatch, stand_in(tmp_path, "OFF"))
    monkeypatch.setattr(kernel_proof, "_times", lambda *_: pytest.fail("timed"))
    monkeypatch.setattr(kernel_proof.neighbours, "busy_now", lambda: True)
    found = kernel_proof.timed(built, Proved({"stand_in": ""}, {}))
    assert found.untimed == "other programs kept the processor busy"
    assert kernel_proof.recorded(built) == found


@pytest.mark.parametrize(("times", "processes"), [(0.5, 2), (2.0, 2), (0.95, 4), (1.1, 4)])
def test_kernels_are_timed_once_more_only_where_one_turn_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: float, processes: int
) -> None:
    asked: list[bool] = []

    def answer(_module: str, _folder: str, *own: str) -> dict[str, dict[str, float]]:
        asked.append(bool(own))
        return {"Q4_0": {"1": times if own else 1.0, "4": times if own else 1.0}}

    monkeypatch.setattr(kernel_proof, "ask", answer)
    found = kernel_proof._times(Built(tmp_path / "library", (), {}, ""), tmp_path, "avx2")
    assert found == pytest.approx({"1": times, "4": times})
    assert asked == [True, False] * (processes // 2)


def test_the_best_instruction_set_that_is_right_is_used() -> None:
    assert Proved({"avx512vnni": "wrong", "avx2": ""}, {}).unit == "avx2"


def test_llama_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "stored", lambda: pytest.fail("looked for"))
    assert own_kernels.engage("llama").text == "llama.cpp's kernels: --kernels llama"


@pytest.mark.usefixtures("_alone")
def test_a_checkout_compiles_none_while_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "stored", lambda: None)
    monkeypatch.setattr(own_build, "build", lambda: own_build.Build("natively", {}))
    monkeypatch.setattr(build, "obtain", lambda **_: pytest.fail("compiled"))
    assert "they are not compiled; run `" in own_kernels.engage(None).why


@pytest.mark.usefixtures("_alone")
def test_a_check_with_a_limit_compiles_and_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`doctor` in an installation would compile for a minute, and call itself hung."""
    monkeypatch.setattr(own_build, "build", lambda: None)
    monkeypatch.setattr(build, "obtain", lambda **_: pytest.fail("compiled"))
    monkeypatch.setattr(kernel_proof, "prove", lambda _: pytest.fail("proved"))
    monkeypatch.setattr(build, "stored", lambda: None)
    assert own_kernels.without_making() == own_kernels.LLAMA
    stored(monkeypatch, tmp_path / "library")
    monkeypatch.setattr(kernel_proof, "recorded", lambda _: None)
    assert own_kernels.without_making() == own_kernels.LLAMA
    monkeypatch.setattr(kernel_proof, "recorded", lambda _: Proved({"avx2": ""}, 0.5))
    assert own_kernels.without_making() is None
    monkeypatch.setenv("LOCALSPEC_KERNELS", "llama")
    assert own_kernels.without_making() == own_kernels.LLAMA


@pytest.fixture
def failing(_alone: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[LocalspecError]:
    """An installation without compiled kernels, and the errors that compiling ends with."""
    errors: list[LocalspecError] = []

    def fails(**_: object) -> Built:
        raise errors.pop(0)

    compiler = tmp_path / "c++"
    compiler.write_text("a compiler")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(build, "stored", lambda: None)
    monkeypatch.setattr(own_build, "build", lambda: None)
    monkeypatch.setattr(build, "obtain", fails)
    return errors


def test_an_installation_compiles_them_once_and_remembers_a_refusal(
    failing: list[LocalspecError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing += [RefusedError("a.h: error"), RefusedError("b.h: error")]
    first = own_kernels.engage(None)
    assert first.why.startswith("a.h: error; tried again in a day, or at once by `")
    assert own_kernels.engage(None) == first
    (tmp_path / "c++").write_text("another compiler")
    assert own_kernels.engage(None).why.startswith("b.h: error")


@pytest.mark.parametrize(
    ("error", "seconds"), [(RefusedError("no"), 86400), (LocalspecError("no"), 3600)]
)
def test_a_failure_is_tried_again_in_time(
    failing: list[LocalspecError],
    monkeypatch: pytest.MonkeyPatch,
    error: LocalspecError,
    seconds: float,
) -> None:
    failing += [error, LocalspecError("tried again"), LocalspecError("and again")]
    own_kernels.engage(None)
    assert own_kernels.engage(None).why.startswith("no; tried again in ")
    now = kernel_proof.time.time()
    monkeypatch.setattr(kernel_proof.time, "time", lambda: now + seconds + 60)
    assert own_kernels.engage(None).why.startswith("tried again; ")
    monkeypatch.setattr(kernel_proof.time, "time", lambda: now)
    assert own_kernels.engage(None).why.startswith("and again; "), "the clock was set back"


def test_what_a_compiler_or_the_network_mends_is_not_remembered(
    failing: list[LocalspecError], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing += [LocalspecError("there is no C++ compiler"), LocalspecError("it is not here")]
    with monkeypatch.context() as bare:
        bare.setattr(cxx, "command", lambda: None)
        assert own_kernels.engage(None).why == "there is no C++ compiler"
    assert own_kernels.engage(None, offline=True).why == "it is not here"
    failing += [LocalspecError("tried")]
    assert own_kernels.engage(None).why.startswith("tried; ")


@pytest.mark.parametrize("damage", ['"until": "soon"', '"unbuilt": "no"', '"seconds": null'])
def test_a_damaged_note_of_a_failure_is_none(
    failing: list[LocalspecError], tmp_path: Path, damage: str
) -> None:
    note = tmp_path / "own-kernels.json"
    note.write_text(f'{{"identity": "{build.key()}", "compiler": [], {damage}}}')
    failing += [LocalspecError("tried")]
    assert own_kernels.engage(None).why.startswith("tried; ")


class _LoadingError(Exception):
    """Ends a load where it has been watched for long enough."""


@pytest.mark.parametrize(("variable", "flag"), [("1", False), ("", True), ("", False)])
def test_a_load_that_must_not_connect_compiles_and_fetches_nothing_by_the_network(
    files: Files, monkeypatch: pytest.MonkeyPatch, variable: str, flag: bool
) -> None:
    """`HF_HUB_OFFLINE` forbids it as `--offline` does, also for workers and pictures."""
    found: list[bool] = []

    def engage(*_: object, offline: bool) -> own_kernels.Choice:
        found.append(offline)
        return own_kernels.NOT_WANTED

    def connected(options: Options, _tell: object, _cancelled: object) -> None:
        found.append(options.offline)
        raise _LoadingError

    monkeypatch.setenv("HF_HUB_OFFLINE", variable)
    monkeypatch.setattr(own_kernels, "engage", engage)
    monkeypatch.setattr(loader, "connected", connected)
    with pytest.raises(_LoadingError):
        loader.load(Options(model=str(files.target), offline=flag), None, None)
    assert found == [bool(variable) or flag] * 2


def test_another_llama_cpp_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cxx, "installed", lambda: "0.4.0")
    assert own_kernels.state() == (
        "llama.cpp's kernels: made for llama-cpp-python 0.3.36, installed is 0.4.0"
    )


def test_the_flag_takes_three_names() -> None:
    assert schema.KERNELS.parse("auto") is None
    assert Options(kernels="own").kernels == "own"
    with pytest.raises(UsageError, match="no kernels called 'best'; there are: own, llama"):
        Options(kernels="best")


@pytest.mark.usefixtures("_alone")
def test_a_machine_is_measured_without_our_kernels_where_replies_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(monkeypatch, tmp_path / "library")
    monkeypatch.setattr(kernel_proof, "recorded", lambda _: Proved({"avx2": ""}, {}))
    monkeypatch.setattr(own_kernels, "_registered", lambda *_: "avx2")
    monkeypatch.setattr(machine_speed, "keeps_holes", lambda _: True)
    used: set[bool] = set()

    def curve(*_: object, own_kernels: bool = False, **more: object) -> dict[int, float]:
        if more["gpu_layers"] == 0:
            used.add(own_kernels)
        return {1: 1.0}

    monkeypatch.setattr(weight_speed, "curve", curve)
    machine_speed.measure(tmp_path)
    assert used == {True}
    monkeypatch.setenv("LOCALSPEC_KERNELS", "llama")
    used.clear()
    machine_speed.measure(tmp_path)
    assert used == {False}
