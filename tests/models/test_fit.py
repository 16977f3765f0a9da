"""Fit: what is planned stays within what is free, and is what llama.cpp then allocates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gguf_shapes
import pytest
from conftest import Files
from fit_machines import GB, OTHER, machine
from hypothesis import given
from hypothesis import strategies as st

from localspec import Options, Runtime
from localspec.core.errors import DecodeError, OutOfMemoryError, UsageError
from localspec.core.files.paths import DEMO_DIR
from localspec.core.processes.host import ProcessorTime
from localspec.core.settings_schema import MAX_K
from localspec.llama import devices
from localspec.llama.heads import ggml as bindings
from localspec.llama.memory_estimate import Buffers, dry_run, read_buffers
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.sizes import Sizes, sizes_of
from localspec.models.memory import fit as fitting
from localspec.models.memory import machine as memories
from localspec.models.memory.fit import fit_files, verdict
from localspec.models.memory.layers import BATCH, place, within
from localspec.models.memory.machine import MIB, Gpu, Memory
from localspec.models.memory.planner import Fit, Wishes, plan, step_down
from localspec.models.memory.report import describe, needs, table

pytest_plugins = ["fit_fixtures"]

HEAD = Path(__file__).parents[1] / "data" / "heads" / "eagle3.gguf"


@pytest.fixture(scope="module")
def sized(shapes: dict[str, Path]) -> dict[str, Sizes]:
    return {name: sizes_of(ModelFile(path).header) for name, path in shapes.items()}


# -- what a model takes ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n_ctx", "kv_type"),
    [
        ("small", 8192, "f16"),
        ("small", 600, "q8_0"),
        ("medium", 8192, "q8_0"),
        ("medium", 32_768, "f16"),
        ("large", 4096, "q4_0"),
        ("other", 4096, "f16"),
    ],
)
def test_sizes_are_what_a_dry_run_says(
    shapes: dict[str, Path], sized: dict[str, Sizes], name: str, n_ctx: int, kv_type: str
) -> None:
    sizes = sized[name]
    found = dry_run(shapes[name], gpu_layers=0, n_ctx=n_ctx, n_batch=512, kv_type=kv_type)
    assert sizes.kv_all(n_ctx, kv_type) == pytest.approx(found.kv, rel=0.001)
    compute = sum(found.compute.values())
    assert sizes.compute(n_ctx, 512) == pytest.approx(compute, rel=0.15)
    planned = sizes.weights + sizes.kv_all(n_ctx, kv_type) + sizes.compute(n_ctx, 512)
    assert planned == pytest.approx(sizes.weights + found.kv + compute, rel=0.03)


def test_a_pass_has_rows_for_the_longest_draft(files: Files) -> None:
    with Runtime.open(Options(model=str(files.target), context=512, draft_max=2)) as runtime:
        context = runtime.pair.target._context
        widest = MAX_K + 1
        assert context.forward([(0, [5] * widest, widest)])[0].shape[0] == widest
        context.truncate(0, 0)
        with pytest.raises(DecodeError, match=f"{widest} rows"):
            context.forward([(0, [5] * (widest + 1), widest + 1)])


def test_no_pass_is_as_wide_as_the_tiles_of_llama_cpps_attention() -> None:
    assert MAX_K + 1 < 64


def test_weights_are_counted_to_the_byte(files: Files, sized: dict[str, Sizes]) -> None:
    header = files.target.stat().st_size - sizes_of(ModelFile(files.target).header).weights
    assert 0 < header < 20_000
    medium = sized["medium"]
    assert len(medium.layers) == medium.n_layer == 36
    assert not medium.tied
    assert sized["small"].tied


def test_heads_by_layer_and_uncertain_kinds(tmp_path: Path, sized: dict[str, Sizes]) -> None:
    window = gguf_shapes.write_shape(
        tmp_path / "w.gguf", OTHER, extra={"attention.sliding_window": 1024}
    )
    assert "sliding" in sizes_of(ModelFile(window).header).doubts[0]
    hybrid = gguf_shapes.write_shape(
        tmp_path / "h.gguf", OTHER, extra={"ssm.inner_size": 2048, "ssm.state_size": 128}
    )
    assert sizes_of(ModelFile(hybrid).header).kv_all(1024, "f16") > sized["other"].kv_all(
        1024, "f16"
    )
    assert sizes_of(ModelFile(hybrid).header).doubts
    latent = gguf_shapes.write_shape(
        tmp_path / "l.gguf", OTHER, extra={"attention.kv_lora_rank": 512}
    )
    assert "MLA" in sizes_of(ModelFile(latent).header).doubts[0]


def test_a_head_that_reads_in_small_parts_has_small_compute_buffers() -> None:
    """llama.cpp builds no graph of a head without its target, so no dry run corrects them."""
    target, head = (ModelFile(path) for path in (DEMO_DIR / "target.gguf", HEAD))
    whole, planned = sizes_of(head.header), fitting._draft_sizes(head, target)
    assert 5 * planned.compute(768, BATCH) < whole.compute(768, BATCH)
    assert 0.7e6 < planned.compute(768, BATCH) < 1.6e6  # llama.cpp allocates 0.71 MB
    assert planned.kv_all(768, "f16") == whole.kv_all(768, "f16")


def test_shards_are_added_up(tmp_path: Path, sized: dict[str, Sizes]) -> None:
    whole = gguf_shapes.write_shape(tmp_path / "x-00001-of-00002.gguf", OTHER)
    gguf_shapes.write_shape(tmp_path / "x-00002-of-00002.gguf", OTHER)
    assert sizes_of(ModelFile(whole).header).weights == pytest.approx(
        2 * sized["other"].weights, rel=0.001
    )


def test_llama_cpps_lines_are_read() -> None:
    lines = [
        "load_tensors:        CUDA0 model buffer size =  4000.50 MiB",
        "load_tensors:   CPU_Mapped model buffer size =   333.00 MiB",
        "llama_context:  CUDA_Host  output buffer size =     0.58 MiB",
        "llama_kv_cache:      CUDA0 KV buffer size =  1152.00 MiB",
        "llama_kv_cache: size = 1152.00 MiB (  8192 cells,  36 layers,  1/1 seqs), K (f16): ...",
        "llama_memory_recurrent: size =   10.00 MiB (     1 cells,  4 layers,  1 seqs 0 rs_seq)",
        "sched_reserve:      CUDA0 compute buffer size =   304.75 MiB",
        "sched_reserve:  CUDA_Host compute buffer size =    24.01 MiB",
    ]
    found = read_buffers(lines)
    assert found.kv == 1162 << 20
    assert found.compute == {"CUDA0": int(304.75 * 2**20), "CUDA_Host": int(24.01 * 2**20)}
    assert found.weights["CUDA0"] == int(4000.5 * 2**20)


@pytest.mark.parametrize(
    ("found", "free", "shared"),
    [
        ([("CUDA0", "gpu", 20, 24), ("Intel", "igpu", 8, 16), ("CPU", "cpu", 9, 9)], [20], False),
        ([("MTL0", "gpu", 12, 16), ("CPU", "cpu", 9, 9)], [12], True),
        ([("Vulkan0", "igpu", 8, 16), ("CPU", "cpu", 9, 9)], [8], True),
        ([("Vulkan0", "gpu", 0, 0), ("CPU", "cpu", 9, 9)], [7], True),
        ([("CUDA0", "gpu", 20, 24), ("CUDA1", "gpu", 10, 12)], [20, 10], False),
    ],
)
def test_devices_become_memory(
    found: list[tuple[str, str, int, int]],
    free: list[int],
    shared: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = [devices.Device(n, "x", kind, f * GB, t * GB) for n, kind, f, t in found]
    monkeypatch.setattr(devices, "devices", lambda: listed)
    monkeypatch.setattr(devices, "backend", lambda: "some")
    monkeypatch.setattr(memories, "host_only", lambda: Memory((), 7 * GB, 9 * GB))
    seen = memories.read_memory()
    assert [gpu.free for gpu in seen.gpus] == [n * GB for n in free]
    apple = found[0][0] == "MTL0"
    assert (seen.shared, seen.host_free) == (shared, (9 if apple else 7) * GB)
    assert seen.free_now == (7 * GB if apple else None)


def test_passes_do_not_ask_a_device_for_its_name_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    card = devices.Device("CUDA0", "x", "gpu", 20 * GB, 24 * GB)
    monkeypatch.setattr(devices, "devices", lambda: asked.append("devices") or [card])
    monkeypatch.setattr(devices.c_api, "llama_supports_gpu_offload", lambda: True)
    devices.backend.cache_clear()
    try:
        assert [devices.backend() for _ in range(3)] == ["cuda"] * 3
    finally:
        devices.backend.cache_clear()  # it was the name of a device that is not there
    assert asked == ["devices"]


def test_a_card_that_others_fill_has_room_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    full = [devices.Device("CUDA0", "x", "gpu", 0, 0), devices.Device("CPU", "x", "cpu", 9, 9)]
    monkeypatch.setattr(devices, "devices", lambda: full)
    monkeypatch.setattr(devices, "backend", lambda: "cuda")
    monkeypatch.setattr(memories, "host_only", lambda: Memory((), 7 * GB, 9 * GB))
    seen = memories.read_memory()
    assert (seen.gpu_usable, seen.host_free, seen.shared) == (0, 7 * GB, False)
    full.insert(1, devices.Device("CUDA1", "x", "gpu", 70 * GB, 80 * GB))
    seen = memories.read_memory()
    assert [gpu.free for gpu in seen.gpus] == [0, 70 * GB]
    assert not seen.shared


def test_the_kernels_of_cuda_find_room_on_a_card_that_is_nearly_full() -> None:
    left = 350 * MIB  # of these, llama.cpp aborted in its first pass
    assert Gpu("CUDA0", "x", left, 24 * GB).usable < 100 * MIB
    assert Gpu("MTL0", "x", left, 24 * GB).usable > 300 * MIB
    assert Gpu("CUDA0", "x", 200 * MIB, 24 * GB).usable == 0


def test_a_dry_run_on_a_gpu_corrects_its_compute_buffers(
    shapes: dict[str, Path], sized: dict[str, Sizes], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fake(path, *, gpu_layers, n_ctx, n_batch, kv_type, host_experts, strict, remote):
        asked.append(gpu_layers)
        kv = sized["large"].kv_all(n_ctx, kv_type)
        return Buffers(kv, {"CUDA0": 800_000_000, "CUDA_Host": 70_000_000}, {})

    monkeypatch.setattr("localspec.llama.memory_estimate.dry_run", fake)
    monkeypatch.setattr(fitting, "read_memory", lambda: machine(24))
    fit = fit_files(ModelFile(shapes["large"]), None, Wishes())
    assert asked == [65]
    assert fit.target.gpu_compute == pytest.approx(800_000_000, rel=0.01)


def test_a_cache_that_the_gpu_does_not_take_in_one_piece_stays_on_the_host(
    shapes: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp would abort the process, already in a dry run."""
    monkeypatch.setattr(devices, "computes_with", lambda n_bytes: n_bytes < 128 << 20)
    monkeypatch.setattr(fitting, "read_memory", lambda: machine(24))
    fit = fit_files(ModelFile(shapes["other"]), None, Wishes(context=1 << 20))
    assert fit.target.gpu_layers == 0
    assert "in one piece" in fit.notes[-1]
    assert fit_files(ModelFile(shapes["other"]), None, Wishes(context=4096)).target.gpu_layers == 9
    with pytest.raises(OutOfMemoryError, match="smaller --ctx or --gpu-layers 0"):
        fit_files(ModelFile(shapes["other"]), None, Wishes(context=1 << 20, gpu_layers=9))


def test_a_device_is_asked_what_it_computes_with(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = bindings.calls()
    assert calls is not None
    processor = calls.backend_dev_by_type(bindings.CPU)
    limited = SimpleNamespace(
        **{
            **vars(calls),
            "backend_dev_by_type": lambda kind: processor if kind == bindings.GPU else None,
            "backend_dev_supports_op": lambda _, tensor: calls.nbytes(tensor) <= 128 << 20,
        }
    )
    monkeypatch.setattr(devices.bindings, "calls", lambda: limited)
    assert devices.computes_with(128 << 20)
    assert not devices.computes_with((128 << 20) + 1)


# -- choosing ----------------------------------------------------------------------------------


def inside(fit: Fit) -> None:
    """Nothing is over what is free less a margin."""
    for i, gpu in enumerate(fit.memory.gpus):
        on_it = sum(share.gpus[i] for share in fit.shares)
        assert on_it <= gpu.usable < gpu.free or on_it == 0
    assert sum(share.host for share in fit.shares) <= fit.memory.host_usable


def test_a_large_card_takes_everything(sized: dict[str, Sizes]) -> None:
    fit = plan(sized["medium"], sized["small"], machine(24))
    assert fit.verdict == "fits on GPU"
    assert (fit.context, fit.target.kv_type, fit.notes) == (8192, "f16", ())
    assert fit.target.gpu_layers == 37
    assert fit.draft is not None
    assert fit.draft.gpu_layers == 29
    assert not fit.tight
    inside(fit)


def test_a_pair_gets_a_shorter_context_before_a_quantized_cache(sized: dict[str, Sizes]) -> None:
    """Verifying drafts converts a quantized cache to f16 on GPUs, in every pass."""
    fit = plan(sized["medium"], sized["small"], machine(6.9))
    assert (fit.verdict, fit.context, fit.target.kv_type) == ("fits on GPU", 4096, "f16")
    assert "4096 tokens instead of 8192" in fit.notes[0]
    assert fit.tight
    inside(fit)


def test_a_pair_that_needs_more_room_still_gets_the_quantized_cache(
    sized: dict[str, Sizes],
) -> None:
    fit = plan(sized["medium"], sized["small"], machine(6.9), Wishes(context=8192))
    assert (fit.verdict, fit.context, fit.target.kv_type) == ("fits on GPU", 8192, "q8_0")
    inside(fit)


def test_a_target_alone_gets_a_quantized_cache_before_a_shorter_context(
    sized: dict[str, Sizes],
) -> None:
    alone = next(
        fit
        for gb in range(60, 40, -1)
        if (fit := plan(sized["medium"], None, machine(gb / 10))).target.kv_type != "f16"
        or fit.context < 8192
        or fit.verdict != "fits on GPU"
    )
    assert (alone.verdict, alone.context, alone.target.kv_type) == ("fits on GPU", 8192, "q8_0")


def test_a_small_card_takes_the_draft_and_some_layers(sized: dict[str, Sizes]) -> None:
    fit = plan(sized["medium"], sized["small"], machine(5))
    assert fit.verdict == "partly on GPU"
    assert 10 < fit.target.gpu_layers < 37
    assert fit.draft is not None
    assert fit.draft.gpu_layers == 29
    (note,) = [note for note in fit.notes if "the GPU has room for" in note]
    assert f"{fit.target.gpu_layers} of 37 layers" in note
    inside(fit)
    more = place(
        sized["medium"],
        "target",
        gpu_layers=fit.target.gpu_layers + 1,
        n_ctx=fit.context,
        kv_type=fit.target.kv_type,
        free=[5 * GB],
    )
    assert not within(fit.memory, (more, fit.draft)), "one more layer would have fitted"


@pytest.mark.parametrize(
    ("here", "spare"),
    [
        (machine(24), True),
        (machine(10), False),  # the context would be shorter
        (machine(host=24), True),
        (machine(host=12), False),  # it would fit, and leave nothing for other programs
    ],
)
def test_several_sequences_are_spare_only_where_nothing_else_gets_smaller(
    sized: dict[str, Sizes], here: Memory, spare: bool
) -> None:
    one, three = (
        plan(sized["medium"].for_sequences(n), sized["small"].for_sequences(n), here)
        for n in (1, 3)
    )
    assert three.spares(one) == spare


def mixture(dense: Sizes) -> Sizes:
    """The model with seven eighths of its layers in 128 experts, 8 of which read a token."""
    experts = tuple(n * 7 // 8 for n in dense.layers)
    return replace(dense, experts=experts, experts_read=8 / 128)


def test_a_mixture_that_does_not_fit_leaves_experts_on_the_host_rather_than_layers(
    sized: dict[str, Sizes],
) -> None:
    """A 30B with 3B active on a laptop is such a case: what the host reads for a token decides."""
    target = mixture(sized["large"])
    fit = plan(target, sized["small"], machine(8))
    assert fit.verdict == "partly on GPU"
    assert (fit.target.gpu_layers, fit.target.n_layers) == (65, 65)
    assert 0 < fit.target.host_experts < 64
    assert any(f"but the experts of {fit.target.host_experts} layers" in note for note in fit.notes)
    inside(fit)
    fewer = place(
        target,
        "target",
        gpu_layers=65,
        n_ctx=fit.context,
        kv_type=fit.target.kv_type,
        free=[8 * GB],
        host_experts=fit.target.host_experts - 1,
    )
    assert fit.draft is not None
    assert not within(fit.memory, (fewer, fit.draft)), "one more layer's experts would have fitted"
    layers = plan(target, sized["small"], machine(8), Wishes(cpu_experts=0, gpu_layers=25))
    assert layers.target.host_read > 2 * fit.target.host_read


def test_experts_stay_where_they_all_fit_and_a_dense_model_has_none(
    sized: dict[str, Sizes],
) -> None:
    assert plan(mixture(sized["medium"]), None, machine(24)).target.host_experts == 0
    assert plan(sized["large"], None, machine(8)).target.host_experts == 0


def test_the_memory_of_a_mixture_is_the_same_wherever_its_experts_are(
    sized: dict[str, Sizes],
) -> None:
    target = mixture(sized["medium"])
    one, two = (
        place(target, "", gpu_layers=37, n_ctx=4096, kv_type="f16", free=[24 * GB], host_experts=n)
        for n in (0, 20)
    )
    assert one.weights == two.weights
    assert two.host - one.host == sum(target.experts[:20])
    assert one.host_read == 0
    assert two.host_read == pytest.approx(sum(target.experts[:20]) / 16, rel=0.01)


def test_two_cards_share_by_what_is_free(sized: dict[str, Sizes]) -> None:
    fit = plan(sized["large"], sized["small"], machine(24, 12))
    assert fit.verdict == "fits on GPU"
    one, two = fit.target.gpus
    assert one / two == pytest.approx(2, rel=0.2)
    inside(fit)


def test_without_a_gpu_the_host_decides(sized: dict[str, Sizes]) -> None:
    fit = plan(sized["medium"], sized["small"], machine(host=16))
    assert (fit.verdict, fit.context, fit.target.kv_type) == ("CPU only", 8192, "f16")
    tight = plan(sized["medium"], sized["small"], machine(host=7.2))
    assert tight.context < 8192 or tight.target.kv_type == "q8_0"
    inside(tight)
    alone = plan(sized["medium"], sized["small"], machine(host=5.3))
    assert alone.draft is None
    assert alone.left_out is not None
    assert "does not fit next to medium.gguf" in alone.left_out
    with pytest.raises(OutOfMemoryError, match=r"medium\.gguf.*4\.6 GB.*3\.2 GB.*free"):
        plan(sized["medium"], sized["small"], machine(host=3))


def test_shared_memory_is_counted_once(sized: dict[str, Sizes]) -> None:
    fit = plan(sized["medium"], sized["small"], machine(12, host=16, shared=True))
    assert fit.verdict == "fits on GPU"
    assert any("share their memory" in line for line in table(fit))
    with pytest.raises(OutOfMemoryError):
        plan(sized["large"], None, machine(12, host=16, shared=True))


def test_metal_decides_on_a_mac_with_a_note_where_other_programs_must_make_room(
    sized: dict[str, Sizes],
) -> None:
    """A 16 GB Mac with 4 GB free: its system compresses and maps; Metal recommends up to 11 GB."""
    mac = replace(machine(11, host=11, shared=True), free_now=4 * GB)
    fit = plan(sized["medium"], sized["small"], mac)
    assert (fit.verdict, fit.context) == ("fits on GPU", 8192)
    assert any("4.0 GB are free now" in note or "4.3 GB are free now" in note for note in fit.notes)
    roomy = plan(sized["medium"], sized["small"], replace(mac, free_now=11 * GB))
    assert not any("free now" in note for note in roomy.notes)


def test_requested_layers_override_the_estimate_where_memory_is_shared(
    sized: dict[str, Sizes],
) -> None:
    tight = machine(3, host=3, shared=True)
    fit = plan(sized["medium"], None, tight, Wishes(gpu_layers=37))
    assert fit.target.gpu_layers == 37
    assert any("by the estimates they do not fit" in note for note in fit.notes)


def test_what_the_user_fixed_stays(sized: dict[str, Sizes]) -> None:
    asked = Wishes(context=32_768, gpu_layers=10, draft_gpu_layers=0, kv_type="q4_0", threads=3)
    fit = plan(sized["medium"], sized["small"], machine(24), asked)
    assert (fit.context, fit.threads, fit.target.gpu_layers) == (32_768, 3, 10)
    assert fit.target.kv_type == "q4_0"
    assert fit.draft is not None
    assert (fit.draft.gpu_layers, fit.draft.kv_type) == (0, "q8_0")
    over = plan(sized["large"], sized["small"], machine(8), Wishes(gpu_layers=999))
    assert over.target.gpu_layers == 65
    assert any("were requested" in note for note in over.notes)
    with pytest.raises(OutOfMemoryError, match="40000 tokens"):
        plan(sized["medium"], None, machine(host=6), Wishes(context=40_000))
    with pytest.raises(OutOfMemoryError, match="for its draft"):
        plan(sized["medium"], sized["small"], machine(host=5.3), Wishes(require_draft=True))
    with pytest.raises(UsageError, match="q8_0"):
        Wishes(kv_type="f1")


def test_heads_that_no_block_divides(tmp_path: Path, sized: dict[str, Sizes]) -> None:
    odd = sizes_of(
        ModelFile(
            gguf_shapes.write_shape(tmp_path / "odd.gguf", replace(OTHER, head_size=80))
        ).header
    )
    with pytest.raises(UsageError, match=r"heads of 80.*f16"):
        plan(odd, None, machine(24), Wishes(kv_type="q8_0"))
    fit = plan(sized["medium"], odd, machine(24), Wishes(kv_type="q8_0"))
    assert fit.draft is not None
    assert fit.draft.kv_type == "f16"


@given(
    cards=st.lists(st.floats(0.1, 90), max_size=3),
    host=st.floats(0.5, 200),
    names=st.sampled_from(
        [("medium", "small"), ("large", "small"), ("small", None), ("other", "other")]
    ),
    context=st.one_of(st.none(), st.integers(256, 40_000)),
    kv_type=st.sampled_from([None, "f16", "q8_0", "q4_0"]),
)
def test_a_plan_never_exceeds_what_is_free(
    sized: dict[str, Sizes],
    cards: list[float],
    host: float,
    names: tuple[str, str | None],
    context: int | None,
    kv_type: str | None,
) -> None:
    target, draft = sized[names[0]], sized[names[1]] if names[1] else None
    try:
        fit = plan(target, draft, machine(*cards, host=host), Wishes(context, kv_type=kv_type))
    except OutOfMemoryError:
        assert host < 36, "that much memory takes any of these"
        return
    inside(fit)
    assert fit.context == (context or fit.context)
    assert fit.draft is None or fit.draft.kv_type in {"f16", "q8_0"}
    assert all(len(line) <= 80 for line in table(fit)[:4])
    smaller = None
    try:
        smaller = step_down(fit)
    except OutOfMemoryError:
        return
    if smaller is not None:
        inside(smaller)
        planned, less = (sum(s.total for s in f.shares) for f in (fit, smaller))
        on_gpu = [sum(sum(s.gpus) for s in f.shares) for f in (fit, smaller)]
        assert on_gpu[1] < on_gpu[0] or less < planned


def test_stepping_down_takes_layers_then_context_then_cache(sized: dict[str, Sizes]) -> None:
    gpu = plan(sized["medium"], None, machine(7))
    smaller = step_down(gpu)
    assert smaller is not None
    assert sum(smaller.target.gpus) <= 0.8 * sum(gpu.target.gpus)
    cpu = plan(sized["medium"], None, machine(host=16))
    smaller = step_down(cpu)
    assert smaller is not None
    assert smaller.context == 4096
    fixed = plan(sized["medium"], None, machine(host=16), Wishes(context=8192))
    smaller = step_down(fixed)
    assert smaller is not None
    assert (smaller.context, smaller.target.kv_type) == (8192, "q8_0")
    nothing = plan(sized["medium"], None, machine(host=16), Wishes(context=8192, kv_type="f16"))
    assert step_down(nothing) is None


def test_the_quick_verdict_agrees_with_the_plan(
    sized: dict[str, Sizes], shapes: dict[str, Path]
) -> None:
    for name, *cards in (("medium", 24), ("medium", 5), ("large", 24), ("medium",)):
        here = machine(*(float(c) for c in cards))
        quick = verdict(here, shapes[name].stat().st_size, shapes["small"].stat().st_size)
        assert quick == plan(sized[name], sized["small"], here).verdict
    assert verdict(machine(host=3), 5 * GB) == "too big"
    assert fitting.quick_verdict(1, 1) in {"fits on GPU", "CPU only"}


def test_a_table_and_a_line_explain_it(sized: dict[str, Sizes]) -> None:
    fit = plan(sized["medium"], sized["small"], machine(5))
    text = "\n".join(table(fit))
    for word in ("target", "draft", "GPU layers", "29/29", "free", "8192 tokens", "partly on GPU"):
        assert word in text
    assert "of 37 layers" in needs(fit)
    found = describe(fit)
    assert found["models"]["draft"]["gpu_layers"] == 29
    assert found["free"]["gpus"] == {"CUDA0": 5 * GB}


def test_every_request_at_a_time_has_a_cache_of_its_own(sized: dict[str, Sizes]) -> None:
    one = sized["medium"]
    four = one.for_sequences(4)
    assert four.kv_all(4096, "f16") == 4 * one.kv_all(4096, "f16")
    assert four.weights == one.weights


def lent(memory: Memory, *gigabytes: float) -> Memory:
    """A machine with workers of that much free memory."""
    return memory.with_workers(
        tuple(
            Gpu(f"w{i}:50052", "worker", int(g * GB), int(g * GB), worker=f"w{i}:50052")
            for i, g in enumerate(gigabytes)
        )
    )


def test_workers_have_the_target_and_never_the_draft(sized: dict[str, Sizes]) -> None:
    fit = plan(sized["large"], sized["small"], lent(machine(host=4), 60, 60))
    assert fit.target.gpu_layers == fit.target.n_layers
    assert all(fit.target.gpus), "each worker has layers"
    assert fit.draft is not None
    assert fit.draft.gpu_layers == 0
    assert not any(fit.draft.gpus)
    assert "the workers" in needs(fit)


def test_a_gpu_of_this_machine_has_the_draft_beside_workers(sized: dict[str, Sizes]) -> None:
    fit = plan(sized["large"], sized["small"], lent(machine(8, host=4), 60))
    assert fit.draft is not None
    assert fit.draft.gpu_layers == fit.draft.n_layers
    worker, own = fit.draft.gpus
    assert not worker
    assert own


def test_workers_fill_up_and_the_rest_is_computed_here(sized: dict[str, Sizes]) -> None:
    fit = plan(sized["large"], None, lent(machine(host=60), 6))
    assert 0 < fit.target.gpu_layers < fit.target.n_layers
    assert any(note.startswith("the workers have room for") for note in fit.notes)


def test_what_neither_workers_nor_this_machine_hold_is_refused(sized: dict[str, Sizes]) -> None:
    with pytest.raises(OutOfMemoryError, match="of memory on workers and here are free"):
        plan(sized["large"], None, lent(machine(host=2), 3))


def test_memory_of_workers_is_not_this_machines_even_where_that_is_shared(
    sized: dict[str, Sizes],
) -> None:
    fit = plan(sized["large"], None, lent(machine(2, host=2, shared=True), 60))
    assert fit.target.gpu_layers == fit.target.n_layers


def test_what_stands_beside_a_model_is_left_for_it() -> None:
    gpu = Gpu("a", "a", 10 << 30, 12 << 30)
    both = Memory((gpu, gpu), 20 << 30, 32 << 30)
    assert [g.free >> 30 for g in both.without(3 << 30).gpus] == [7, 10]
    assert Memory((), 20 << 30, 32 << 30).without(3 << 30).host_free == 17 << 30
    assert Memory((), 1, 32 << 30).without(3 << 30).host_free == 0


def test_who_has_one_core_waits_for_no_sample_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memories, "sleep", lambda _: pytest.fail("it was sampled"))
    assert memories.free_cores(1) == 1


@pytest.mark.parametrize(("busy", "cores"), [(4.0, 2), (1.0, 3), (0.0, 4)])
def test_cores_that_others_use_are_left_to_them_but_half(
    monkeypatch: pytest.MonkeyPatch, busy: float, cores: int
) -> None:
    seconds, now = iter((100.0, 100.0 + busy / 20)), iter((5.0, 5.05))
    monkeypatch.setattr(memories.host, "processor_time", lambda: ProcessorTime(next(seconds), 4))
    monkeypatch.setattr(memories, "monotonic", lambda: next(now))
    assert memories.free_cores(4) == cores


def test_a_draft_that_was_left_out_stays_out_after_a_refused_allocation(
    sized: dict[str, Sizes],
) -> None:
    for memory in (machine(7), machine(host=16)):
        fit = replace(plan(sized["medium"], None, memory), left_out="no room", threads=7)
        smaller = step_down(fit)
        assert smaller is not None
        assert (smaller.left_out, smaller.threads) == ("no room", 7)
