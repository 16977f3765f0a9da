"""A build that is not sound is followed by a safer one, down to the last; no build is made here."""

import itertools
import json
import os
from dataclasses import replace

import bootstrap
import llama_backend
import llama_ladder
import llama_wheel
import pytest
from bootstrap_steps import Failure
from llama_backend import Machine

FLAGS = "sse4_2 avx avx2 bmi2 fma f16c avx512f avx512_vnni amx_bf16 amx_int8 amx_tile"
XEON = Machine(
    "Linux",
    "x86_64",
    json.dumps({"flags": FLAGS, "model name": "Xeon"}),
    nvcc=None,
    cuda_version="",
    gpus="",
)
RYZEN = replace(XEON, cpu=json.dumps({"flags": "sse4_2 avx avx2 bmi2 fma f16c"}))
OLD = replace(XEON, cpu=json.dumps({"flags": "sse4_2 avx"}))
ARM = replace(XEON, arch="aarch64", cpu=json.dumps({"Features": "asimd"}))
MAC = replace(XEON, system="Darwin", arch="arm64", cpu="Apple M3")

NATIVE, STORES, NO_AMX, NO_AVX512, PORTABLE = (
    "natively",
    "natively, with all stores before AMX kept",
    "natively without AMX",
    "natively without AVX-512",
    "for any processor of this kind",
)
ALL = [NATIVE, STORES, NO_AMX, NO_AVX512, PORTABLE]


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (XEON, ALL),
        (RYZEN, [NATIVE, PORTABLE]),
        (ARM, [NATIVE, PORTABLE]),
        (MAC, [NATIVE, PORTABLE]),
    ],
)
def test_only_what_changes_something_on_this_processor_is_tried(machine, expected):
    assert [rung.name for rung in llama_ladder.rungs(machine)] == expected


def test_each_rung_leaves_out_more():
    options = {rung.name: " ".join(rung.options) for rung in llama_ladder.rungs(XEON)}
    assert options[NATIVE] == ""
    assert "KEEP_STORES=ON" in options[STORES]
    assert "-mno-amx-tile" in options[NO_AMX]
    assert "-mno-avx512f" not in options[NO_AMX]
    assert "-mno-amx-tile" in options[NO_AVX512]
    assert "-mno-avx512f" in options[NO_AVX512]
    assert "-DGGML_NATIVE=OFF" in options[PORTABLE]


def test_a_portable_build_takes_nothing_for_granted_that_the_processor_lacks():
    *_, portable = llama_ladder.rungs(OLD)
    assert "-DGGML_AVX=ON" in portable.options
    assert "-DGGML_AVX2=OFF" in portable.options


class World:
    """A checkout whose builds are a line of text and whose proofs are looked up."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.state = {}
        self.built = []
        self.installed = None
        self.faults = {}
        """Results of proofs, by rung: with repacked weights, and with plain ones."""
        self.proofs = 0
        self.backend = "cpu"
        self.machine = XEON
        (folder / ".venv").mkdir()
        monkeypatch.setattr(bootstrap, "VENV", folder / ".venv")
        monkeypatch.setattr(bootstrap, "LOG", folder / "log")
        monkeypatch.setattr(bootstrap.save_state, "__defaults__", (folder / "bootstrap.json",))
        monkeypatch.setattr(llama_backend, "this_machine", lambda: self.machine)
        monkeypatch.setattr(llama_wheel, "this_machine", lambda: self.machine)
        monkeypatch.setattr(llama_wheel, "require_build_tools", lambda *_: None)
        monkeypatch.setattr(llama_wheel, "build_wheel", self.build)
        monkeypatch.setattr(bootstrap, "pip_install", self.install)
        monkeypatch.setattr(bootstrap, "prove", self.prove)
        monkeypatch.setattr(bootstrap, "load_failure", lambda *_: "")
        monkeypatch.setattr(llama_wheel, "usual_cache", lambda *_: folder / "cache")

    def build(self, source, backend, machine, rung, work, base_python, log):
        self.built.append(rung.name)
        wheel = work / "some-1.0-py3-none-any.whl"
        wheel.write_text(rung.name)
        return wheel

    def install(self, title, *arguments):
        self.installed = arguments[-1].read_text()

    def prove(self, *_):
        self.proofs += 1
        failed, plain = self.faults.get(self.installed, ("", ""))
        return {"failed": failed, "failed_plain": plain}

    def start(self, state=None):
        state = self.state if state is None else state
        bootstrap.install_engine(state, self.backend, "key", self.folder / "cache" / "key")

    @property
    def note(self):
        return json.loads((self.folder / ".venv" / "llama-build.json").read_text())


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path, monkeypatch)


BAD = ("SIGILL, at Q4_0 on the processor, a pass of 2 tokens", "SIGILL, at the same place")


def test_a_sound_build_is_proved_once(world, capsys):
    world.start()
    world.start()
    assert (world.built, world.proofs) == ([NATIVE], 1)
    assert world.note == {"rung": NATIVE, "failed": {}}
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_every_rung_that_fails_is_a_line_and_the_next_one_is_built(world, capsys, depth):
    world.faults = dict.fromkeys(ALL[:depth], BAD)
    world.start()
    assert world.built == ALL[: depth + 1]
    assert world.installed == ALL[depth]
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"localspec: llama.cpp, built {this}, is not sound on this processor ({BAD[0]}); "
        f"building it {following}"
        for this, following in itertools.pairwise(ALL[: depth + 1])
    ]
    assert world.note == {"rung": ALL[depth], "failed": dict.fromkeys(ALL[:depth], BAD[0])}


def test_another_checkout_begins_where_this_one_ended_and_proves_it_again(world):
    world.faults = {NATIVE: BAD}
    world.start()
    world.start({})
    assert world.built == [NATIVE, STORES]
    assert world.proofs == 3
    assert world.note["rung"] == STORES


def test_the_ladder_goes_on_whatever_the_umask(world):
    (world.folder / "cache").mkdir(0o700)
    before = os.umask(0)
    try:
        world.faults = {NATIVE: BAD}
        world.start()
    finally:
        os.umask(before)
    assert world.built == [NATIVE, STORES]
    assert llama_wheel.cached_wheel(world.folder / "cache" / "key")


def test_a_kept_wheel_that_fails_here_is_thrown_away(world):
    world.start()
    world.faults = {NATIVE: BAD}
    world.start({})
    assert world.built == [NATIVE, STORES]


def test_where_no_build_is_sound_one_sentence_says_so(world):
    world.faults = dict.fromkeys(ALL, BAD)
    with pytest.raises(Failure, match="is sound on this processor") as caught:
        world.start()
    assert caught.value.status == 1
    assert "proved" not in world.state
    world.faults = {}  # whatever it was, the next start begins at the top
    world.start()
    assert world.built == [*ALL, NATIVE]


def test_the_last_rung_is_kept_where_plain_weights_are_sound(world):
    world.faults = dict.fromkeys(ALL, (BAD[0], ""))
    world.start()
    assert world.installed == PORTABLE
    assert world.state["proved"] == "key"


def test_a_device_that_computes_wrongly_is_not_taken_for_a_processor_that_does(world):
    world.backend = "vulkan"
    world.faults = {NATIVE: ("Q4_0 on vulkan, a pass of 1 token: logits that are not numbers", "x")}
    with pytest.raises(Failure, match="LOCALSPEC_BACKEND=cpu"):
        world.start()
    assert world.built == [NATIVE]


def test_a_proof_that_was_interrupted_is_made_before_anything_else(world, monkeypatch):
    def press_ctrl_c(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as pressed:
        pressed.setattr(bootstrap, "prove", press_ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            world.start()
    world.start()
    assert (world.built, world.proofs) == ([NATIVE], 1)


def test_what_was_built_for_a_failed_rung_is_there_for_the_next_one(world, monkeypatch):
    seen = []
    work = llama_wheel.work_folder(world.folder / "cache" / "key")

    def build(*arguments):
        seen.append((work / "built before").exists())
        (work / "built before").touch()
        return World.build(world, *arguments)

    monkeypatch.setattr(llama_wheel, "build_wheel", build)
    world.faults = {NATIVE: BAD}
    world.start()
    assert seen == [False, True]
    assert not work.exists()
