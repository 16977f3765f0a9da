"""Messages about an engine process that died."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

import pytest

from localspec.core.errors import DeviceLostError, DeviceMemoryError, EngineError, WorkerLostError
from localspec.core.files import paths
from localspec.core.processes import crash
from localspec.engine import native_words
from localspec.engine.main import record_formatter
from localspec.engine.spawn import exit_error, exit_message

STACK = """Fatal Python error: Aborted

Current thread 0x00007f (most recent call first):
  File "context.py", line 234 in _forward
Extension modules: numpy._core (total: 1)
"""
OURS = "2026-01-02 03:04:05,678 4711 INFO localspec.engine: opened"


def test_an_abort_is_told_in_llama_cpps_own_words(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text(f"{OURS}\n/ggml.c:12: GGML_ASSERT(x\x1b > 0) failed\n{STACK}")
    said = exit_message(-signal.SIGABRT, log, "loading a.gguf")
    assert said.startswith("the engine stopped while loading a.gguf (signal 6, SIGABRT): /ggml.c")
    assert r"GGML_ASSERT(x\x1b > 0) failed; its log is" in said


def test_our_own_log_and_an_earlier_crash_are_not_taken_for_its_words(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text(f"/ggml.c:12: GGML_ASSERT(x > 0) failed\n{STACK}{OURS}\n{STACK}")
    assert "GGML" not in exit_message(-signal.SIGABRT, log)
    assert "INFO" not in exit_message(-signal.SIGABRT, log)
    log.write_text(f"{OURS}\na warning of a driver\n{STACK}")
    assert "driver" not in exit_message(-signal.SIGSEGV, log), "a fault comes without a message"


REFUSED = f"""{OURS.replace("INFO", "ERROR")}
| Traceback (most recent call last):
|   File "threading.py", line 994, in start
| RuntimeError: can't start new thread
"""


@pytest.mark.parametrize(
    "earlier",
    [
        REFUSED,
        f"/ggml-cuda.cu:96: CUDA error: out of memory\n{STACK}",
        f"/ggml-cuda.cu:96: CUDA error: out of memory\n{STACK}{OURS}\n",
        f"OpenBLAS error: Memory allocation still failed\n{OURS}\n",
    ],
)
def test_what_failed_before_is_no_reason_of_a_crash(tmp_path: Path, earlier: str) -> None:
    log = tmp_path / "engine.log"
    log.write_text(f"{earlier}/ggml.c:12: GGML_ASSERT(x > 0) failed\n{STACK}")
    error = exit_error(-signal.SIGABRT, log, "answering")
    assert type(error) is EngineError
    assert "(signal 6, SIGABRT): /ggml.c:12: GGML_ASSERT(x > 0) failed" in str(error)
    log.write_text(f"{earlier}{OURS}\n/ggml-cuda.cu:96: CUDA error: out of memory\n{STACK}")
    assert type(exit_error(-signal.SIGABRT, log, "answering")) is DeviceMemoryError


def test_all_lines_of_a_record_are_told_from_those_of_native_code(tmp_path: Path) -> None:
    record = logging.LogRecord("engine", logging.ERROR, "", 0, "one\ntwo", (), None)
    formatter = record_formatter()
    log = tmp_path / "engine.log"
    log.write_text(f"{formatter.format(record)}\n")
    assert native_words.words(log, 1) == ""
    log.write_text(f"{formatter.format(record)}\nnative\nwords\n")
    assert native_words.words(log, 1) == "native\nwords\n"


def test_a_library_that_exits_is_told_in_its_own_words(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    earlier = f"{OURS}\n/ggml.c:12: GGML_ASSERT(x > 0) failed\n{STACK}{OURS}\n"
    log.write_text(f"{earlier}libx: no luck\n")
    said = str(exit_error(1, log, "loading a.gguf"))
    assert said.startswith("the engine stopped while loading a.gguf (exit status 1): libx: no luck")
    log.write_text(earlier)
    assert "GGML" not in str(exit_error(1, log))
    refused = "libgomp: Thread creation failed: Resource temporarily unavailable"
    for words in (refused, "RuntimeError: can't start new thread"):
        log.write_text(f"{earlier}{words}\n")
        threads = exit_error(1, log, "loading a.gguf")
        assert type(threads) is EngineError
        assert "may be started here, and the engine stopped while loading a.gguf" in str(threads)
        assert "ulimit -u" in str(threads)
    log.write_text(f"{earlier}OpenBLAS error: Memory allocation still failed\n")
    assert type(exit_error(1, log)) is DeviceMemoryError


def test_the_last_words_are_those_before_the_stack_of_python() -> None:
    thrown = "terminate called after throwing an instance of 'X'\n  what():  no room\n"
    assert crash.last_words(thrown + STACK) == "what():  no room"
    assert crash.last_words(STACK) == ""
    assert len(crash.last_words("x" * 5000)) == 300


# Lines of llama.cpp's back ends, as its source prints them.
CUDA_MEMORY = "CUDA error: out of memory\n  current device: 0, in function alloc"
VULKAN_MEMORY = "terminate called after throwing an instance of 'vk::OutOfDeviceMemoryError'"
METAL_MEMORY = "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"
HOST_MEMORY = "ggml_gallocr_reserve_n: failed to allocate CPU buffer of size 9"
VULKAN_LOST = "what():  vk::Device::waitForFences: ErrorDeviceLost"
CUDA_LOST = "CUDA error: unspecified launch failure"
WORKER_GONE = "ggml-rpc.cpp:530: Remote RPC server crashed or returned malformed response"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (CUDA_MEMORY, DeviceMemoryError),
        (VULKAN_MEMORY, DeviceMemoryError),
        (METAL_MEMORY, DeviceMemoryError),
        (HOST_MEMORY, DeviceMemoryError),
        (VULKAN_LOST, DeviceLostError),
        (CUDA_LOST, DeviceLostError),
        (WORKER_GONE, WorkerLostError),
        ("GGML_ASSERT(ggml_can_mul_mat(a, b)) failed", EngineError),
    ],
)
def test_a_failed_device_is_told_from_other_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, kind: type[EngineError]
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    log = paths.make(paths.state_dir()) / paths.LLAMA_LOG
    log.write_text(f"2026-01-02 03:04:05,678 ERROR {line}\n")
    engine_log = tmp_path / "engine.log"
    engine_log.write_text(f"/ggml-cuda.cu:97: CUDA error\n{STACK}")
    error = exit_error(-signal.SIGABRT, engine_log, "answering")
    assert type(error) is kind
    named = "worker of --rpc" if kind is WorkerLostError else "GPU"
    named = "this machine" if line == HOST_MEMORY else named
    assert (named in str(error)) == (kind is not EngineError)
    assert type(exit_error(-signal.SIGKILL, engine_log)) is EngineError, "no device kills"


def test_the_advice_for_a_full_device_names_what_makes_room() -> None:
    told = crash.explain(signal.SIGABRT, "answering", "", CUDA_MEMORY)
    assert told.startswith("the GPU ran out of memory")
    assert "--ctx" in crash.advice(signal.SIGABRT, "answering", crash.OUT_OF_MEMORY)


def test_a_worker_that_was_silent_is_told_from_one_that_has_gone() -> None:
    """llama.cpp says the same of both, since the connection to a silent one is ended here."""
    silent = f"{crash.SILENT}there:50052 for 30 s\n{WORKER_GONE}\n"
    assert crash.device_failure(WORKER_GONE) == crash.WORKER_GONE
    assert crash.device_failure(silent) == crash.WORKER_SILENT
    said = crash.explain(signal.SIGABRT, "answering", silent)
    assert said.startswith("a worker of --rpc has not answered for too long (there:50052), and")
    gone = f"{WORKER_GONE}\n{crash.GONE}here:1, there:2\n"
    said = crash.explain(signal.SIGABRT, "answering", gone)
    assert said.startswith(f"{crash.WORKER_GONE} (here:1, there:2), and")


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("alloc_tensor_range: failed to allocate CUDA0 buffer of size 9", crash.OUT_OF_MEMORY),
        ("llama_model_load: unable to allocate MTL0_Private buffer", crash.OUT_OF_MEMORY),
        ("x: failed to allocate Vulkan0 buffer of size 9", crash.OUT_OF_MEMORY),
        ("x: failed to allocate CPU buffer of size 9", crash.OUT_OF_HOST_MEMORY),
        ("x: failed to allocate CPU_REPACK buffer of size 9", crash.OUT_OF_HOST_MEMORY),
        ("x: failed to allocate CUDA_Host buffer of size 9", crash.OUT_OF_HOST_MEMORY),
        (
            "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 9",
            crash.OUT_OF_HOST_MEMORY,
        ),
        ("output_reserve: failed to allocate output buffer of size 9", crash.OUT_OF_HOST_MEMORY),
        ("terminate called after throwing 'std::bad_alloc'", crash.OUT_OF_HOST_MEMORY),
        ("graph_reserve: failed to allocate compute buffers", crash.OUT_OF_HOST_MEMORY),
        ("x: unable to allocate RPC0[10.0.0.1:50052] buffer", crash.OUT_OF_MEMORY),
        (
            "ggml_aligned_malloc: insufficient memory (attempted to allocate 19.73 MB)",
            crash.OUT_OF_HOST_MEMORY,
        ),
        (
            "OpenBLAS error: Memory allocation still failed after 10 retries, giving up.",
            crash.OUT_OF_HOST_MEMORY,
        ),
    ],
)
def test_memory_of_the_machine_is_told_from_that_of_a_gpu(line: str, meaning: str) -> None:
    assert crash.device_failure(line) == meaning
    after_either = "graph_reserve: failed to allocate compute pp buffers"
    assert crash.device_failure(f"{line}\n{after_either}") == meaning
    if meaning == crash.OUT_OF_HOST_MEMORY:
        assert "GPU" not in crash.explain(signal.SIGABRT, "answering", line)
        assert "smaller model" in crash.advice(signal.SIGABRT, "answering", meaning)


@pytest.mark.skipif(not hasattr(signal, "SIGBUS"), reason="signals of POSIX")
def test_a_file_that_changes_while_it_is_mapped_is_named_as_the_cause():
    told = crash.advice(signal.SIGBUS, "answering with a.gguf")
    assert "changed or cut short while it was in use" in told
