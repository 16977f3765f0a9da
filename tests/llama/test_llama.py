"""The room around llama.cpp: logits, truncation, errors, interrupts, on a random pair."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import contexts
import gguf_tools
import memory_files
import numpy as np
import pytest
from conftest import Files

from localspec.core.errors import (
    ContextFullError,
    DecodeError,
    Interrupted,
    ModelFileError,
    ModelNotFoundError,
    OutOfMemoryError,
    PassRefusedError,
    UnsupportedModelError,
    UsageError,
)
from localspec.core.processes.host import HostMemory
from localspec.core.target import Work
from localspec.core.values import Draft, Proposal, chain_parents, no_draft
from localspec.llama import devices, library, threads, timing
from localspec.llama import state as states
from localspec.llama.batch import StopFlag
from localspec.llama.context import Context
from localspec.llama.devices import physical_cores
from localspec.llama.draft_model import LlamaDraftModel
from localspec.llama.library import c_api
from localspec.llama.limits import decode_error
from localspec.llama.load_file import load_error
from localspec.llama.model import Model
from localspec.llama.target import LlamaTarget
from localspec.models.compat.header_vocabulary import require_text_model, vocabulary_mismatch
from localspec.models.gguf.model_file import ModelFile


@pytest.fixture
def model(files: Files) -> Iterator[Model]:
    loaded = Model(files.target)
    yield loaded
    loaded.close()


@pytest.fixture
def context(model: Model) -> Iterator[Context]:
    made = Context(model, n_ctx=256, n_seq=2, n_batch=64, threads=1)
    yield made
    made.close()


def test_facts_of_a_file(model: Model) -> None:
    assert model.n_vocab == 259
    assert model.end_ids == {0, 2}
    assert model.architecture == "llama"
    assert model.partial_removal
    assert model.template == gguf_tools.CHATML
    assert model.special_ids["eos"] == 2
    assert model.marker(1) == "<|im_start|>"


def test_tokens_and_pieces_are_inverse_for_any_text(model: Model) -> None:
    text = "Grüße, 世界! \x00 🙂\r\n"
    tokens = model.tokenize(text)
    assert b"".join(model.piece(t) for t in tokens).decode() == text
    assert model.tokenize("<|im_end|>", special=True) == [2]
    assert model.tokenize("<|im_end|>") != [2]
    assert model.piece(2) == b""
    assert model.tokenize("") == []


def test_rows_are_views_of_the_rows_asked_for(context: Context) -> None:
    rows = context.forward([(0, [5, 6, 7], 2), (1, [8], 1)])
    assert [r.shape for r in rows] == [(2, 259), (1, 259)]
    assert rows[0].base is not None
    assert np.isfinite(rows[0]).all()


def test_sequences_do_not_touch_each_other(context: Context) -> None:
    both = context.forward([(0, [5, 6, 7], 1), (1, [8, 9], 1)])
    apart = both[0][0].copy()
    context.truncate(0, 0)
    alone = context.forward([(0, [5, 6, 7], 1)])[0][0]
    np.testing.assert_allclose(apart, alone, atol=1e-4)
    assert (context.length(0), context.length(1)) == (3, 2)


def test_truncation_forgets_exactly_the_end(context: Context) -> None:
    first = context.forward([(0, [5, 6, 7, 8], 4)])[0].copy()
    context.truncate(0, 2)
    assert context.length(0) == 2
    again = context.forward([(0, [7, 8], 2)])[0]
    np.testing.assert_allclose(first[2:], again, atol=1e-4)
    context.audit()


def test_a_full_context_is_an_error_and_changes_nothing(context: Context) -> None:
    context.read(0, [3] * 250)
    with pytest.raises(ContextFullError, match="--ctx"):
        context.forward([(0, [3] * 10, 1)])
    assert context.length(0) == 250
    context.audit()


def test_a_context_smaller_than_a_batch_reads_in_passes_and_ends_where_asked(model: Model) -> None:
    """llama.cpp makes it larger and its batches smaller, and aborts on a larger batch."""
    small = Context(model, n_ctx=40, n_batch=512, threads=1)
    try:
        assert small.capacity == 40
        small.read(0, [3] * 40)
        assert small.length(0) == 40
        with pytest.raises(ContextFullError):
            small.forward([(0, [3], 1)])
        with pytest.raises(DecodeError, match="41 tokens"):
            small.forward([(0, [3] * 41, 1)])
    finally:
        small.close()


def test_what_would_abort_llama_cpp_is_refused_before(context: Context) -> None:
    with pytest.raises(DecodeError, match="vocabulary"):
        context.forward([(0, [259], 1)])
    with pytest.raises(DecodeError, match="vocabulary"):
        context.forward([(0, [-1], 1)])
    with pytest.raises(DecodeError, match="65 tokens"):
        context.forward([(0, [1] * 65, 1)])
    context.audit()


def test_a_pass_is_interrupted_in_its_middle_and_the_context_lives_on(files: Files) -> None:
    """A pass of seconds on this model, stopped from another thread.

    Measured in the time that this process computes, so that a busy machine changes nothing.
    """
    path = gguf_tools.write_llama(files.folder / "wide.gguf", width=1024, layers=8, context=4096)
    model, stop = Model(path), StopFlag()
    context = Context(model, n_ctx=4096, n_batch=2048, threads=1, stop=stop)
    pressed = []

    def press() -> None:
        pressed.append(time.process_time())
        stop.set()

    threading.Timer(0.1, press).start()
    with pytest.raises(Interrupted):
        context.read(0, [7] * 4000)
    assert time.process_time() - pressed[0] < 0.5  # 50 ms is the promise
    context.audit()
    stop.clear()
    context.forward([(0, [7], 1)])
    context.close()
    model.close()


@pytest.mark.parametrize("code", [1, 2, -1, -2, -3])
def test_every_return_code_has_its_error(code: int) -> None:
    kinds = {1: ContextFullError, 2: Interrupted, -1: PassRefusedError}
    expected = kinds.get(code, DecodeError)
    assert type(decode_error(code)) is expected
    assert decode_error(0) is None


def test_target_scores_and_keeps_zero_some_and_all(context: Context) -> None:
    target = LlamaTarget(context)
    target.read(0, [5, 6])
    drafted = np.array([8, 9, 10], np.int32)
    draft = Draft(drafted, chain_parents(3), Proposal.DETERMINISTIC, None, "test")
    for accepted in (0, 1, 3):
        before = target.length(0)
        (scores,) = target.score([Work(0, 7, draft)])
        assert scores.logits.shape == (4, 259)
        target.keep(0, range(accepted))
        assert target.length(0) == before + 1 + accepted
        context.audit()


def test_a_tree_is_refused_by_name(context: Context) -> None:
    parents = np.array([-1, -1], np.int32)
    tree = Draft(np.array([3, 4], np.int32), parents, Proposal.DETERMINISTIC, None, "bushy")
    with pytest.raises(DecodeError, match="bushy"):
        LlamaTarget(context).score([Work(0, 7, tree)])


def test_a_chain_scores_like_single_steps(context: Context) -> None:
    target = LlamaTarget(context)
    target.read(0, [5, 6])
    draft = Draft(np.array([8, 9], np.int32), chain_parents(2), Proposal.DETERMINISTIC, None, "t")
    chain = target.score([Work(0, 7, draft)])[0].logits.copy()
    target.keep(0, ())
    target.truncate(0, 2)
    for i, token in enumerate([7, 8, 9]):
        (row,) = target.score([Work(0, token, no_draft("t"))])
        np.testing.assert_allclose(chain[i], row.logits[0], atol=1e-3)
        target.keep(0, ())


def test_the_draft_model_reads_long_gaps_in_passes(context: Context, model: Model) -> None:
    runner = LlamaDraftModel(context, target_vocab=100)
    (rows,) = runner.extend([(0, list(range(3, 203)), 2)])
    assert rows.shape == (2, 100)
    assert context.length(0) == 200
    runner.truncate(0, 150)
    assert context.length(0) == 150


def test_a_failed_extension_adds_nothing(context: Context) -> None:
    runner = LlamaDraftModel(context, target_vocab=259)
    runner.extend([(0, [5, 6], 1)])
    with pytest.raises(ContextFullError):
        runner.extend([(0, [5] * 300, 1)])
    assert context.length(0) == 2
    context.audit()


def test_reading_a_prompt_stops_between_passes_where_a_device_does_not_stop_one(
    context: Context,
) -> None:
    c_api.llama_set_abort_callback(context.handle, c_api.ggml_abort_callback(), None)
    with pytest.raises(Interrupted):
        context.read(0, [5] * 200, lambda _: context.stop.set())
    assert context.length(0) == context.n_batch
    context.audit()


@pytest.mark.parametrize(
    ("fact", "other"), [("gpu_layers", 3), ("host_experts", 2), ("buffers", ("Vulkan0",))]
)
def test_the_state_of_a_draft_is_of_the_placement_that_was_chosen(
    fact: str, other: object, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = LlamaDraftModel(context, target_vocab=259).identity
    assert LlamaDraftModel(context, target_vocab=259).identity == before
    monkeypatch.setattr(context.model, fact, other)
    assert LlamaDraftModel(context, target_vocab=259).identity != before


def test_threads_and_widths_are_measured(context: Context) -> None:
    assert 1 <= threads.choose_threads(context) <= devices.physical_cores()
    costs = timing.sweep(context, budget_s=0.2)
    assert costs[1] > 0
    assert len(costs) >= 2
    assert context.length(0) == 0


def test_a_curve_keeps_its_shape_while_other_programs_come_and_go() -> None:
    """Every third visit is disturbed: the least of several is what the machine can do."""
    true = {1: 1.0, 4: 2.7, 8: 5.3, 2: 1.9}
    visits = iter(range(100))

    def visit(width: int) -> float:
        return true[width] * (4.0 if next(visits) % 3 == 0 else 1.0)

    assert timing.least_seconds(visit, list(true), 60.0) == true


def test_a_disturbed_sweep_has_more_turns() -> None:
    """All of the first turns was disturbed, and it shows: visits differ by more than noise."""
    true = {1: 1.0, 4: 2.7, 8: 5.3}
    visits = iter(range(100))

    def visit(width: int) -> float:
        at = next(visits)
        return true[width] * (60.0 - 4 * at if at < 12 else 1.0)

    assert timing.least_seconds(visit, list(true), 60.0) == true


def test_a_pass_over_several_tokens_is_never_taken_for_dearer_than_one_each() -> None:
    seconds = {1: 1.0, 4: 9.0, 2: 1.5}
    found = timing.least_seconds(seconds.__getitem__, list(seconds), 60.0)
    assert found == {1: 1.0, 4: 4.0, 2: 1.5}


def test_a_single_token_is_never_taken_for_dearer_than_several() -> None:
    seconds = {1: 50.0, 4: 2.5, 2: 1.5}
    found = timing.least_seconds(seconds.__getitem__, list(seconds), 60.0)
    assert found == {1: 1.5, 4: 2.5, 2: 1.5}


def test_a_slow_model_is_measured_at_two_widths_at_least() -> None:
    assert timing.least_seconds(lambda n: n * 0.5, [1, 4, 8], 0.0) == {1: 0.5, 4: 2.0}


def test_the_watchdog_halves_threads_only_when_passes_stay_slow(context: Context) -> None:
    context.set_threads(4)
    watchdog = threads.Watchdog(context)
    quiet = [notice for _ in range(50) for notice in watchdog.look((1, 0.01))]
    one_spike = list(watchdog.look((1, 1.0)))
    assert quiet + one_spike == []
    notices = [notice for _ in range(40) for notice in watchdog.look((1, 0.5))]
    assert "2 threads" in notices[0].text
    assert context.threads < 4


def watched(watchdog: threads.Watchdog, context: Context, seconds: dict[int, float]) -> list[str]:
    """Notices of 400 passes whose time depends on the threads."""
    return [
        notice.text for _ in range(400) for notice in watchdog.look((1, seconds[context.threads]))
    ]


def test_the_watchdog_takes_the_threads_back_when_the_neighbour_is_gone(context: Context) -> None:
    context.set_threads(2)
    watchdog = threads.Watchdog(context)
    assert watched(watchdog, context, {2: 0.01, 1: 0.02}) == []
    busy = watched(watchdog, context, {2: 0.5, 1: 0.02})
    assert [text for text in busy if "busy" in text] == busy[:1]
    assert context.threads == 1
    (back,) = watched(watchdog, context, {2: 0.01, 1: 0.02})
    assert back == "the cores are free again: computing on 2 threads"
    assert context.threads == 2
    assert watched(watchdog, context, {2: 0.01, 1: 0.02}) == []


def test_threads_that_were_left_out_at_a_busy_start_are_tried_later(context: Context) -> None:
    context.set_threads(1)
    watchdog = threads.Watchdog(context, most=2)
    assert len(watched(watchdog, context, {2: 0.01, 1: 0.02})) == 1
    assert context.threads == 2
    context.set_threads(1)
    watchdog = threads.Watchdog(context, most=2)
    assert watched(watchdog, context, {2: 0.02, 1: 0.02}) == []
    assert context.threads == 1


def test_unknown_kv_type_is_refused(model: Model) -> None:
    with pytest.raises(UsageError, match="q8_0"):
        Context(model, n_ctx=64, threads=1, kv_type="q3")


def test_a_state_continues_where_it_was_saved(context: Context) -> None:
    context.forward([(0, [5, 6, 7, 8], 1)])
    saved = bytearray(states.state(context, 0))
    expected = context.forward([(0, [9], 1)])[0].copy()
    states.restore(context, 1, saved)
    assert context.length(1) == 4
    np.testing.assert_allclose(context.forward([(1, [9], 1)])[0], expected, atol=1e-5)
    context.audit()
    with pytest.raises(DecodeError, match="damaged"):
        states.restore(context, 0, saved[: len(saved) // 2])
    assert context.length(0) == 0
    context.audit()


# -- files that are no models -------------------------------------------------------------------


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="localspec models"):
        Model(tmp_path / "nothing.gguf")


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\x03\x04 a zip", b"GGUF"])
def test_files_that_cannot_be_gguf(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"bad\.gguf"):
        Model(path)


def test_a_recurrent_context_lives_on_after_an_interrupt(tmp_path: Path) -> None:
    model = Model(gguf_tools.write_mamba(tmp_path / "mamba.gguf"))
    context = Context(model, n_ctx=256, n_batch=128, threads=1)
    try:
        first = context.forward([(0, [3, 4, 5, 6], 1)])[0].copy()
        context.stop.set()
        context.forward([(0, [7, 8, 9], 1)])  # a pass that decodes runs to its end
        with pytest.raises(Interrupted):
            context.forward([(0, [7] * 100, 0)])
        context.stop.clear()
        context.audit()
        assert context.length(0) == 0
        np.testing.assert_allclose(first, context.forward([(0, [3, 4, 5, 6], 1)])[0], atol=1e-4)
    finally:
        context.close()
        model.close()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are Unix")
def test_a_named_pipe_is_no_model_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="pipe"):
        Model(tmp_path / "pipe.gguf")


def test_a_directory_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="directory"):
        Model(tmp_path)


@pytest.mark.parametrize("fraction", [0.001, 0.01, 0.3, 0.9, 0.999])
def test_truncated_anywhere(files: Files, tmp_path: Path, fraction: float) -> None:
    whole = files.target.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: int(len(whole) * fraction)])
    with pytest.raises(ModelFileError, match=r"cut\.gguf"):
        Model(path)


def test_an_architecture_nobody_knows(tmp_path: Path) -> None:
    path = gguf_tools.write_unknown_architecture(tmp_path / "abacus.gguf")
    with pytest.raises(UnsupportedModelError, match="'abacus'"):
        Model(path)


def test_a_file_that_llama_cpp_saved_is_a_chat_model(tmp_path: Path) -> None:
    unstated = 0xFFFFFFFF  # -1, written as an unsigned number
    path = gguf_tools.write_llama(tmp_path / "saved.gguf", pooling=unstated)
    require_text_model(ModelFile(path).header)
    Model(path).close()


def test_an_embedding_model_is_named_as_one(tmp_path: Path) -> None:
    path = gguf_tools.write_bert(tmp_path / "embedder.gguf")
    with pytest.raises(UnsupportedModelError, match="embedding model"):
        Model(path)


def test_a_diffusion_model_is_named_as_one(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="diffusion model"):
        Model(memory_files.write_dream(tmp_path / "dream.gguf"))


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("asked", ["on_progress", "cancelled"])
def test_what_the_progress_raises_ends_the_loading_and_is_raised(files: Files, asked: str) -> None:
    def broken(*_fraction: float) -> bool:
        raise BrokenPipeError("nobody reads")

    with pytest.raises(BrokenPipeError, match="nobody reads"):
        Model(files.target, **{asked: broken})  # type: ignore[arg-type]


def test_loading_can_be_cancelled(files: Files) -> None:
    seen: list[float] = []
    with pytest.raises(Interrupted):
        Model(files.target, on_progress=seen.append, cancelled=lambda: True)
    assert seen


def test_out_of_memory_is_told_from_damage(files: Files) -> None:
    for line in (
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 9",
        "llama_model_load: error loading model: mmap failed: Cannot allocate memory",
        "llama_model_load: error loading model: std::bad_alloc",
    ):
        assert isinstance(load_error(files.target, [line]), OutOfMemoryError)
    odd = load_error(files.target, ["llama_model_load: error loading model: it is Tuesday"])
    assert "it is Tuesday" in str(odd)


# -- vocabularies -------------------------------------------------------------------------------


def mismatch(target: Path, draft: Path) -> str | None:
    a, b = Model(target), Model(draft)
    found = vocabulary_mismatch(a, b)
    a.close()
    b.close()
    return found


def test_equal_vocabularies_match(files: Files) -> None:
    assert mismatch(files.target, files.draft) is None


def test_the_first_differing_id_and_both_texts_are_named(files: Files, tmp_path: Path) -> None:
    words = gguf_tools.byte_vocabulary()
    words[70], words[71] = words[71], words[70]
    other = gguf_tools.write_llama(tmp_path / "other.gguf", vocabulary=words)
    found = mismatch(files.target, other) or ""
    assert "id 70" in found
    assert repr(words[71]) in found
    assert repr(words[70]) in found


def test_padding_is_no_mismatch_but_a_larger_vocabulary_is(files: Files, tmp_path: Path) -> None:
    padded = gguf_tools.byte_vocabulary(extra=61)
    larger = gguf_tools.byte_vocabulary(extra=300)
    a = gguf_tools.write_llama(tmp_path / "padded.gguf", vocabulary=padded)
    b = gguf_tools.write_llama(tmp_path / "larger.gguf", vocabulary=larger)
    assert mismatch(files.target, a) is None
    assert "259 and 559" in (mismatch(files.target, b) or "")


def test_special_ids_must_agree(files: Files, tmp_path: Path) -> None:
    other = gguf_tools.write_llama(tmp_path / "eos.gguf", eos=0)
    assert "eos is id 2 in the target and 0 in the draft" in (mismatch(files.target, other) or "")


def test_devices_are_listed_with_free_memory() -> None:
    found = devices.devices()
    assert any(d.kind == "cpu" and 0 < d.free <= d.total for d in found)
    assert devices.physical_cores() >= 1
    assert library.version() == "0.3.36"


@pytest.mark.parametrize(("share", "cores"), [(None, 16), (3.5, 3), (0.5, 1), (99.0, 16), (1.0, 1)])
def test_no_more_cores_are_used_than_a_container_has_the_time_of(
    share: float | None, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices.cgroups, "processors", lambda: share)
    monkeypatch.setattr("psutil.cpu_count", lambda **_: 16)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(32)), raising=False)
    assert physical_cores() == cores


def test_the_processor_has_the_memory_of_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.host, "memory", lambda: HostMemory(3 << 20, 4 << 20))
    (found,) = (d for d in devices.devices() if d.kind == "cpu")
    assert (found.free, found.total) == (3 << 20, 4 << 20)


def test_a_log_that_cannot_be_written_is_silent(
    files: Files, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "llama.log").mkdir()
    try:
        library.log_to(tmp_path / "llama.log")
        library.logger.warning("nobody reads this")
    finally:
        library.log_to(tmp_path / "other.log")
    assert capfd.readouterr().err == ""


def test_a_file_that_is_replaced_while_it_is_loaded_is_refused(
    files: Files, tmp_path: Path
) -> None:
    """Or states of the old weights would be saved under the name of the new ones."""
    path, other = tmp_path / "model.gguf", tmp_path / "other.gguf"
    path.write_bytes(files.target.read_bytes())
    other.write_bytes(files.draft.read_bytes())

    def replaced(fraction: float) -> None:
        if fraction >= 0.9 and other.exists():
            other.replace(path)

    with pytest.raises(ModelFileError, match="changed while it was loaded"):
        Model(path, on_progress=replaced)
    Model(path).close()


def test_a_draft_is_named_by_its_file_as_it_was_loaded(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "draft.gguf"
    path.write_bytes(files.draft.read_bytes())
    with contexts.opened(Model(path), n_ctx=64) as context:
        path.unlink()
        assert LlamaDraftModel(context, 512).identity.startswith(context.model.digest)
