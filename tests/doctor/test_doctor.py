"""doctor: every topic, every fix, and installations that are broken in all kinds of ways."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Files
from locked import lock
from replies import STATS
from without_home import without_a_home

from localspec import cli
from localspec.cli import interface
from localspec.core.errors import ModelNotFoundError
from localspec.core.events import Speculation, Stats
from localspec.doctor import (
    Finding,
    backend,
    diagnose,
    examiner,
    network,
    pair,
    storage,
    system,
)
from localspec.models.catalog import catalog, hf_cache, toml_file
from localspec.models.catalog.links import is_offline
from localspec.models.hub import api

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No connections, a cache of our own, and no seconds spent on speed."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setattr(pair, "SPEED_CHECK_S", 0.02)


@pytest.fixture
def demo(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The random pair in place of the embedded one, with its hashes."""
    folder = tmp_path / "demo"
    folder.mkdir()
    lines = []
    for name, source in (("target.gguf", files.target), ("draft.gguf", files.draft)):
        shutil.copy(source, folder / name)
        lines.append(f"{hashlib.sha256(source.read_bytes()).hexdigest()}  {name}\n")
    (folder / "SHA256SUMS").write_text("".join(lines))
    monkeypatch.setattr(pair, "DEMO_DIR", folder)
    monkeypatch.setattr(toml_file, "DEMO_DIR", folder)
    catalog.catalog.cache_clear()
    return folder


def by_topic(*, offline: bool = True) -> dict[str, Finding]:
    found = diagnose(offline=offline, examine=examiner.here)
    return {finding.topic: finding for finding in found}


def home() -> Path:
    return Path(os.environ["LOCALSPEC_HOME"])


def test_a_sound_installation(demo: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.call(["doctor", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["ok"] is True
    topics = {f["topic"]: f for f in found["findings"]}
    expected = "python packages terminal llama.cpp cpu device gpu config data state cache settings"
    assert topics.keys() >= {
        *expected.split(),
        "catalogue",
        "models",
        "hub",
        "demo",
        "speed",
        "fit",
    }
    assert topics["packages"]["details"]["llama-cpp-python"] == "0.3.36"
    assert topics["demo"]["details"]["hashes"] == "match"
    assert topics["speed"]["details"]["plain_tokens_per_second"] > 0
    assert topics["fit"]["details"]["models"]["target"]["weights"] > 0
    assert all("\n" not in f["text"] for f in found["findings"])
    assert not any(f["status"] == "broken" for f in found["findings"])


def test_people_get_a_line_a_finding_and_the_table(
    demo: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.call(["doctor", "--offline"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert sum(line.startswith(("✓", "·", "✗")) for line in lines) >= 17
    assert any("GPU layers" in line and "KV cache" in line for line in lines)
    assert any(line.startswith("✓ hub") and "offline, by --offline" in line for line in lines)


# -- the embedded pair -------------------------------------------------------------------------


def test_a_damaged_pair_is_found(demo: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with (demo / "draft.gguf").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x99")
    assert cli.call(["doctor"]) == 1
    out = capfd.readouterr().out
    assert "✗ demo" in out
    assert "draft.gguf is damaged" in out
    assert "fix: install localspec again" in out
    subjects = {line.split()[1] for line in out.splitlines() if line[:1] in "✓✗·"}
    assert "demo" in subjects
    assert "speed" not in subjects, "what is damaged is not measured"


def test_sums_that_are_absent_short_or_no_text(demo: Path) -> None:
    sums = demo / "SHA256SUMS"
    sums.write_text(sums.read_text().splitlines()[0] + "\n")
    assert "does not name draft.gguf" in pair.files_whole(demo).text
    sums.write_bytes(b"\xff\xfe\x00")
    assert pair.files_whole(demo).status == "broken"
    sums.unlink()
    assert pair.files_whole(demo).status == "ok"
    assert "without SHA256SUMS" in pair.files_whole(demo).text
    (demo / "target.gguf").unlink()
    assert "lacks target.gguf" in pair.files_whole(demo).text


def test_a_pair_that_does_not_run_is_broken(demo: Path) -> None:
    (demo / "SHA256SUMS").unlink()
    for name in ("target.gguf", "draft.gguf"):
        (demo / name).write_bytes(b"GGUF and nothing more")
    found = by_topic()
    assert found["speed"].status == "broken"
    assert found["fit"].status == "note"


# -- llama.cpp and GPUs ------------------------------------------------------------------------


def test_a_library_that_does_not_load_is_a_finding() -> None:
    program = (
        "import sys; sys.modules['llama_cpp'] = None; from localspec.cli import call; "
        "sys.exit(call(['doctor', '--json', '--offline']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 1, done.stderr
    found = {f["topic"]: f for f in json.loads(done.stdout)["findings"]}
    assert found["llama.cpp"]["status"] == "broken"
    assert "scripts/localspec doctor" in found["llama.cpp"]["fix"]
    assert "device" not in found


def test_a_wrong_folder_that_the_user_named_is_to_be_corrected(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-m", "localspec", "doctor", "--json", "--offline"],
        env=os.environ | {"LLAMA_CPP_LIB_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    found = {f["topic"]: f for f in json.loads(done.stdout)["findings"]}
    assert found["llama.cpp"]["text"].startswith("llama.cpp cannot be loaded: ")
    assert found["llama.cpp"]["fix"] == "correct LLAMA_CPP_LIB_PATH, or unset it"
    assert "computes right here: llama.cpp cannot be loaded: " in found["build"]["text"]


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_an_idle_gpu_gets_the_command_that_builds_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi(tmp_path, monkeypatch, "echo 'NVIDIA GeForce RTX 4090'")
    finding = backend.unused_gpu()
    assert (finding.status, finding.fix) == (
        "note",
        "LOCALSPEC_BACKEND=cuda scripts/localspec doctor",
    )
    assert "RTX 4090" in finding.text
    monkeypatch.setattr(backend, "in_checkout", lambda: False)
    assert backend.unused_gpu().fix == "LOCALSPEC_BACKEND=cuda localspec build-llama"


def test_a_build_for_any_processor_gets_the_command_that_builds_for_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = ["x86_64", "flags\t\t: sse4_2 avx2 avx512f avx512_vnni"]
    built = "CPU : AVX2 = 1 | LLAMAFILE = 1 | "
    assert backend.processor(4, built, facts).status == "ok"  # a checkout builds by itself
    monkeypatch.setattr(backend, "in_checkout", lambda: False)
    found = backend.processor(4, built, facts)
    assert found.status == "note"
    assert "leaves AVX512 AVX512_VNNI unused" in found.text
    assert found.fix == "LOCALSPEC_BACKEND=cpu localspec build-llama"
    on_cuda = backend.processor(4, f"CUDA : ARCHS = 890 | USE_GRAPHS = 1 | {built}", facts)
    assert on_cuda.text == found.text
    native = built + "AVX512 = 1 | AVX512_VNNI = 1 | "
    assert backend.processor(4, native, facts).status == "ok"
    monkeypatch.setattr(backend.own_build, "used", lambda: True)  # whose ladder left them out
    assert backend.processor(4, built, facts).status == "ok"


def test_a_driver_that_fails_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_DRM", tmp_path / "none")
    nvidia_smi(tmp_path, monkeypatch, "echo 'cannot talk to the driver' >&2; exit 9")
    assert backend.unused_gpu().status == "ok"
    monkeypatch.setattr(backend, "_PROBE_S", 0.1)
    nvidia_smi(tmp_path, monkeypatch, "exec sleep 3")
    assert backend.unused_gpu().status == "ok"


def test_a_build_for_cuda_without_a_driver_says_so_and_that_it_computes_on_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    error = "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected"
    found = backend.no_device("cuda", [error])
    assert found.status == "note"
    assert (
        found.text
        == "llama.cpp is built for CUDA and there is no NVIDIA driver: models run on the CPU"
    )
    nvidia_smi(tmp_path, monkeypatch, "exit 9")
    found = backend.no_device("cuda", ["another line", error, "a later one"])
    assert "finds no device (no CUDA-capable device is detected): models run on" in found.text
    assert "restart" in (found.fix or "")
    assert "finds no device: models" in backend.no_device("vulkan", []).text


def test_doctor_names_what_a_build_is_for_and_that_it_finds_no_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from localspec.llama import devices

    assert devices.silent() == []
    monkeypatch.setattr(devices, "backend", lambda: "cpu")
    monkeypatch.setattr(devices, "silent", lambda: ["cuda"])
    found = {finding.topic: finding for finding in backend.check()}
    assert "built for cuda" in found["llama.cpp"].text
    assert (found["gpu"].details or {})["built_for"] == "cuda"


def test_doctor_says_that_a_card_has_no_memory_left(monkeypatch: pytest.MonkeyPatch) -> None:
    from localspec.llama import devices

    card = devices.Device("CUDA0", "NVIDIA H200", "gpu", 0, 0)
    monkeypatch.setattr(devices, "backend", lambda: "cuda")
    monkeypatch.setattr(devices, "devices", lambda: [card])
    found = {finding.topic: finding for finding in backend.check()}
    assert "other programs have all of its memory" in found["device"].text
    assert (found["device"].status, found["device"].fix) == (
        "note",
        "close them; `nvidia-smi` lists them",
    )


def test_an_idle_gpu_of_another_maker_is_offered_vulkan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_nvidia", list)
    monkeypatch.setattr(backend, "_DRM", tmp_path)
    assert backend.unused_gpu().status == "ok"
    (tmp_path / "renderD128" / "device").mkdir(parents=True)
    (tmp_path / "renderD128" / "device" / "vendor").write_text("0x1002\n")
    finding = backend.unused_gpu()
    assert (finding.status, finding.details) == ("note", {"unused": ["AMD"]})
    assert "LOCALSPEC_BACKEND=vulkan" in (finding.fix or "")


def stats(verified: int, accepted: int, seconds: float = 1.0) -> Stats:
    return replace(
        STATS, drafted=verified, verified=verified, accepted=accepted, decode_seconds=seconds
    )


def test_a_drafted_check_that_accepts_nothing_gets_no_tick() -> None:
    plain = [stats(0, 0)]
    assert pair.speed_finding([stats(40, 39)], plain, 2).status == "ok"
    wrong = pair.speed_finding([stats(40, 0)], plain, 2)
    assert (wrong.status, wrong.fix) == ("broken", "localspec verify demo")
    why = Speculation("parked", "the draft is too slow here")
    parked = pair.speed_finding([replace(stats(0, 0), speculation=why)], plain, 2)
    assert (parked.status, parked.fix) == ("note", "localspec tune demo")
    assert parked.text.endswith("nothing was drafted, because the draft is too slow here")
    busy = pair.speed_finding([replace(stats(0, 0), speculation=why)], plain, 2, busy=True)
    assert (busy.status, busy.fix) == ("note", "localspec doctor, when they are not")
    assert busy.text.endswith("other programs are busy, so the speeds say nothing")


@pytest.mark.parametrize(("verified", "seconds"), [(0, 1.5), (40, 1.8)])
def test_a_device_that_answers_thousands_of_tokens_a_second_gets_no_advice(
    verified: int, seconds: float
) -> None:
    emitted = STATS.emitted
    plain = [stats(0, 0, emitted / 1800)] * 3
    found = pair.speed_finding([stats(verified, verified, seconds * emitted / 1800)] * 3, plain, 16)
    assert (found.status, found.fix) == ("note", None)
    assert found.details is not None
    assert found.details["conclusive"] is False
    assert found.text.endswith("too short here to tell what drafts do for large models")
    slow = pair.speed_finding([stats(40, 39, 3 * emitted / 1800)] * 3, plain, 16)
    assert slow.fix == "localspec tune demo"


def test_the_speed_is_that_of_the_reply_that_was_disturbed_least() -> None:
    found = pair.speed_finding([stats(40, 39, 4.0), stats(40, 39, 1.0)], [stats(0, 0, 2.0)], 2)
    assert found.details["tokens_per_second"] == 60
    assert found.details["plain_tokens_per_second"] == 30


@pytest.mark.parametrize(
    ("busy", "says", "fix"),
    [
        (True, "other programs are busy", "localspec doctor, when they are not"),
        (False, "drafts make it 99% slower here", "localspec tune demo"),
    ],
)
def test_drafts_that_cost_time_get_no_tick(busy: bool, says: str, fix: str) -> None:
    drafted, plain = [stats(40, 30, 100.0)], [stats(0, 0, 1.0)]
    found = pair.speed_finding(drafted, plain, 2, busy=busy)
    assert (found.status, found.fix) == ("note", fix)
    assert says in found.text
    assert pair.speed_finding([stats(40, 30)], plain, 2, busy=busy).status == "ok"


def test_a_small_loss_gets_no_tick_where_it_is_beyond_the_noise() -> None:
    plain = [stats(0, 0, 1.0 + 0.02 * (i % 3)) for i in range(20)]
    slower = [stats(40, 39, s.decode_seconds * 1.1) for s in plain]
    found = pair.speed_finding(slower, plain, 2)
    assert (found.status, found.fix) == ("note", "localspec tune demo")
    assert found.text.endswith(": drafts make it 9% slower here")
    assert found.details["slower"]
    # as often faster as slower
    noisy = [stats(40, 39, 1.05 + 0.3 * (-1) ** i) for i in range(20)]
    assert pair.speed_finding(noisy, plain, 2).status == "ok"
    # slower in each turn, by less than a hundredth
    same = [stats(40, 39, s.decode_seconds * 1.005) for s in plain]
    assert pair.speed_finding(same, plain, 2).status == "ok"
    # too few to tell
    assert pair.speed_finding(slower[:3], plain[:3], 2).status == "ok"
    assert pair.speed_finding(slower[:6], plain[:6], 2).status == "note"


def test_drafts_that_seem_to_cost_time_are_measured_again() -> None:
    plain, slow = [stats(0, 0, 2.0)], [stats(40, 39, 100.0)]
    worse = pair.speed_finding(slow, plain, 2, busy=True)
    better = pair.speed_finding([stats(40, 39)], plain, 2)
    wrong = pair.speed_finding([stats(40, 0)], plain, 2)
    for results, expected, left in (
        ([worse, better, worse], better, 1),
        ([worse, worse, worse], worse, 0),
        ([better, worse], better, 1),
        ([wrong, better], wrong, 1),
    ):
        waiting = list(results)
        assert pair.judged(lambda: waiting.pop(0)) is expected  # noqa: B023
        assert len(waiting) == left


def test_a_mac_without_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_nvidia", list)
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    assert "LOCALSPEC_BACKEND=metal" in (backend.unused_gpu().fix or "")


# -- folders, settings, catalogue, cache -------------------------------------------------------


def test_an_unwritable_home_is_a_finding(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "file"))
    found = by_topic()
    assert found["config"].status == "broken"
    assert "LOCALSPEC_HOME" in (found["config"].fix or "")
    assert found["speed"].status == "note", "one cause, one problem"
    assert found["demo"].status == "ok"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_a_read_only_folder_is_a_finding(tmp_path: Path) -> None:
    state = home() / "state"
    state.mkdir(parents=True)
    state.chmod(0o500)
    assert by_topic()["state"].status == "broken"


def test_a_folder_that_others_may_write_to_is_a_finding_with_its_remedy() -> None:
    for name in ("config", "cache"):
        (home() / name).mkdir(parents=True, mode=0o700)
    (home() / "config").chmod(0o777)
    (home() / "config" / "config.toml").write_text("seed = 3\n")
    found = storage_findings()
    assert "chmod 700" in (found["config"].fix or "")
    assert (found["settings"].status, found["cache"].status) == ("broken", "ok")
    assert found["settings"].fix == f"chmod go-w '{home() / 'config'}'"


def storage_findings() -> dict[str, Finding]:
    return {finding.topic: finding for finding in storage.check(interface.refused())}


def test_without_a_home_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    without_a_home(monkeypatch)
    found = storage_findings()
    for topic in ("config", "data", "state", "cache", "settings", "catalogue"):
        assert found[topic].text == "there is no home folder"
        assert found[topic].fix == "set HOME or LOCALSPEC_HOME"


def test_an_unknown_setting_is_named(demo: Path) -> None:
    folder = home() / "config"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("temprature = 1\nnonsense = 1\nseed = 3\n")
    found = by_topic(offline=False)["settings"]
    assert found.status == "note"
    assert "'temprature' has no effect; did you mean 'temperature'?" in found.text
    assert "'nonsense'" in found.text
    assert "'seed'" not in found.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("temperature = true", "temperature must be a number, not true"),
        ('ctx = "many"', "ctx must be a whole number or auto, not 'many'"),
        ("model = {a = 1}", "model must be a text, not {'a': 1}"),
        ("notify = 3", "notify must be a name, not 3"),
        ("theme = 3", "there is no theme 3"),
        ('theme = "norf"', "there is no theme 'norf'; did you mean nord?"),
        ("keys = 3", "keys is a table"),
        ('[keys]\n"chat.help" = 4', "chat.help needs keys such as"),
        ('[keys]\n"chat.help" = "f2"', "f2 is both chat.help and chat.details"),
        ('tools = "all of them"', "'all of them' names no tool"),
        ('[presets.calm]\ntemperature = "low"', "temperature must be a number, not 'low'"),
        ('strict = true\nverifier = "rejection"', "strict mode promises the same text"),
    ],
)
def test_a_setting_that_stops_commands_or_the_chat_is_broken(text: str, said: str) -> None:
    config = home() / "config" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f"{text}\n")
    found = storage_findings()["settings"]
    assert (found.status, found.fix) == ("broken", f"correct or delete these lines of {config}")
    assert said in found.text
    assert found.text.count(said) == 1


def test_every_setting_that_is_refused_is_named_and_doctor_fails(
    demo: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = home() / "config" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('temprature = 1\nmodel = {a = 1}\nctx = "many"\ntheme = "norf"\nseed = 3\n')
    assert cli.call(["doctor", "--offline", "--json"]) == 1
    found = {f["topic"]: f for f in json.loads(capfd.readouterr().out)["findings"]}
    for name in ("'temprature'", "model must", "ctx must", "theme 'norf'"):
        assert name in found["settings"]["text"]
    assert "seed" not in found["settings"]["text"]
    assert found["fit"]["fix"] is None, "one cause gets one fix"
    assert found["fit"]["text"] == "not tried: the settings cannot be used"


def test_settings_that_are_taken_get_a_tick() -> None:
    config = home() / "config" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('theme = "nord"\nseed = "auto"\n[keys]\n"chat.compare" = "f10"\n')
    found = storage_findings()["settings"]
    assert (found.status, found.text) == ("ok", f"3 in {config}")


def test_damaged_settings_and_catalogue_are_findings(demo: Path) -> None:
    folder = home() / "config"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("model = \n")
    (folder / "models.toml").write_text("[x\n")
    found = by_topic(offline=False)
    assert found["settings"].status == found["catalogue"].status == "broken"
    assert "config.toml" in (found["settings"].fix or "")
    assert "models.toml" in (found["catalogue"].fix or "")
    assert found["demo"].status == "ok"


def test_the_cache_and_what_is_unfinished_in_it(tmp_path: Path) -> None:
    assert "not there yet" in next(iter(storage._models())).text
    blobs = tmp_path / "hf" / "hub" / "models--a--b" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / ("1" * 64)).write_bytes(b"x" * 300_000)
    (blobs / ("2" * 64 + storage.PARTIAL_SUFFIX)).write_bytes(b"x" * 100_000)
    snapshot = blobs.parent / "snapshots" / "c"
    snapshot.mkdir(parents=True)
    (snapshot / "m.gguf").symlink_to(blobs / ("1" * 64))
    whole, begun = storage._models()
    assert whole.details is not None
    assert (whole.details["bytes"], whole.details["unfinished"]) == (300_000, 100_000)
    assert "pull" in (begun.fix or "")


def test_a_cache_of_models_that_may_not_be_looked_at_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hf").mkdir()
    lock(monkeypatch, tmp_path / "hf")
    (found,) = storage._models()
    assert found.status == "broken"
    assert found.text.endswith(f"{tmp_path / 'hf' / 'hub'}: Permission denied")


def test_a_model_in_a_folder_of_somebody_else_is_counted_as_not_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = storage._catalogue().details
    folder = hf_cache.repo_folder("Qwen/Qwen3-8B-GGUF")
    folder.mkdir(parents=True)
    lock(monkeypatch, folder)
    assert storage._catalogue().details == before


# -- the Hub -----------------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A server on loopback; what it was asked."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(self.path)
            self.send_response(405)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Quiet."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield asked
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_hub_that_answers(hub: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    (finding,) = network.check(offline=False)
    assert (finding.status, finding.fix) == ("ok", None)
    assert "answers in" in finding.text
    assert len(hub) == 1


@pytest.mark.parametrize("how", ["flag", "HF_HUB_OFFLINE", "LOCALSPEC_OFFLINE", "config.toml"])
def test_offline_means_no_connection(
    hub: list[str], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    if how == "config.toml":
        (home() / "config").mkdir(parents=True)
        (home() / "config" / how).write_text("offline = true\n")
    elif how != "flag":
        monkeypatch.setenv(how, "1")
    (finding,) = network.check(offline=how == "flag")
    assert finding.details is not None
    assert finding.details["state"] == "offline"
    assert hub == []


@pytest.mark.parametrize(("hub_says", "forbids"), [("0", False), ("", True)])
def test_the_variable_of_the_hub_rules_over_that_of_transformers(
    hub: list[str], hub_says: str, forbids: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in huggingface_hub; and `pull` names the variable that forbids."""
    monkeypatch.setenv("HF_HUB_OFFLINE", hub_says)
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "1")
    (finding,) = network.check(offline=False)
    assert ("offline, by TRANSFORMERS_OFFLINE" in finding.text) is forbids
    assert bool(hub) is not forbids
    assert is_offline() is forbids
    if forbids:
        with pytest.raises(ModelNotFoundError, match="TRANSFORMERS_OFFLINE forbids"):
            api.look_up("some/repo")


def test_a_hub_that_is_away_or_silent_or_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(network, "_WAIT_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for address in (
            "http://127.0.0.1:1",
            f"http://127.0.0.1:{silent.getsockname()[1]}",
            "ftp://x",
        ):
            monkeypatch.setenv("HF_ENDPOINT", address)
            (finding,) = network.check(offline=False)
            assert finding.status == "note"
            assert "cannot be reached" in finding.text
            assert "HF_ENDPOINT" in (finding.fix or "")


def test_a_hub_whose_name_is_not_known_is_no_number_of_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import socket

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    (finding,) = network.check(offline=False)
    assert "cannot be reached (there is no network" in finding.text
    assert "Errno" not in finding.text


@pytest.mark.parametrize("offline", [True, False])
@pytest.mark.parametrize("scheme", ["http://", ""])
@pytest.mark.parametrize("password", ["secret", "se/cret", "it's secret", "sec@ret"])
def test_a_password_in_the_address_of_the_hub_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, password: str, scheme: str, *, offline: bool
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", f"{scheme}bob:{password}@127.0.0.1:1")
    (finding,) = network.check(offline=offline)
    assert not re.search("sec|cret|it's", repr(finding).replace("details", ""))
    # An @ after a slash may be part of a path: that something is left out is told.
    shown = f"{scheme}{'***@' * ('/' in password)}127.0.0.1:1"
    assert shown in finding.text
    assert finding.details is not None
    assert finding.details["endpoint"] == shown


def test_no_part_of_a_finding_holds_a_secret() -> None:
    text = "http://bob:secret@mirror"
    made = Finding("hub", "note", text, text, {"a": [text, {"b": (text, 1)}]}, (text,))
    assert "secret" not in repr(made)
    assert made.details == {"a": ["http://***@mirror", {"b": ("http://***@mirror", 1)}]}


# -- Python and the terminal -------------------------------------------------------------------


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_PACKAGES", ("click", "no-such-package"))
    broken = list(system.check())[1]
    assert broken.status == "broken"
    assert "no-such-package" in broken.text


@pytest.mark.parametrize(
    ("variables", "size", "encoding", "word"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, (120, 40), "utf-8", "16 million"),
        ({"TERM": "xterm-256color"}, (120, 40), "utf-8", "256 colours"),
        ({"TERM": "dumb"}, (120, 40), "utf-8", "TERM"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, (120, 40), "utf-8", "NO_COLOR"),
        ({"TERM": "xterm"}, (60, 20), "utf-8", "80×24"),
        ({"TERM": "xterm"}, (120, 40), "ascii", "UTF-8"),
    ],
)
def test_what_a_terminal_can_do(
    variables: dict[str, str],
    size: tuple[int, int],
    encoding: str,
    word: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TERM", "COLORTERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    screen = type("Screen", (), {"isatty": lambda self: True, "encoding": encoding})()
    monkeypatch.setattr("sys.stdout", screen)
    for name, number in zip(("COLUMNS", "LINES"), size, strict=True):
        monkeypatch.setenv(name, str(number))
    finding = system.terminal()
    assert word in f"{finding.text} {finding.fix}"
    assert (finding.fix is None) == (finding.status == "ok")
