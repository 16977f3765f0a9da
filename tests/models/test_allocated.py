"""What is planned is what llama.cpp allocates, and what happens where it is refused."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import gguf
import gguf_shapes
import gguf_tools
import pytest
from conftest import Files
from fit_machines import GB, OTHER, machine
from gguf_shapes import Shape

from localspec import Options, Runtime
from localspec.core.errors import ModelFileError, OutOfMemoryError
from localspec.kernels.library import BUFFER
from localspec.llama import library
from localspec.llama.memory_estimate import Buffers, dry_run, read_buffers
from localspec.loading.loader import load
from localspec.models.gguf.model_file import ModelFile
from localspec.models.gguf.sizes import sizes_of
from localspec.models.memory import fit as fitting
from localspec.models.memory.fit import fit_files
from localspec.models.memory.layers import place
from localspec.models.memory.machine import Gpu, Memory
from localspec.models.memory.planner import Fit, Wishes

pytest_plugins = ["fit_fixtures"]

# -- what is then allocated --------------------------------------------------------------------


def allocated(options: Options) -> tuple[Fit, Buffers, Runtime]:
    """Load a pair; the plan, and what llama.cpp logged."""
    target, draft = Path(options.model), Path(options.draft) if options.draft else None
    wishes = Wishes(context=options.context, kv_type=options.kv_type)
    fit = fit_files(ModelFile(target), ModelFile(draft), wishes)
    with library.listening() as lines:  # only what this thread does is heard
        runtime = Runtime(load(options, None, None))
    return fit, read_buffers(lines), runtime


def compare(fit: Fit, found: Buffers) -> float:
    """Planned over allocated, everything together."""
    rows = sum(share.sizes.rows for share in fit.shares)
    planned = sum(share.total for share in fit.shares) - rows
    real = found.kv + sum(found.compute.values()) + sum(s.weights for s in fit.shares)
    return planned / real


def test_the_random_pair_takes_what_was_planned(files: Files) -> None:
    options = Options(model=str(files.target), draft=str(files.draft), context=512, draft_max=2)
    fit, found, runtime = allocated(options)
    runtime.close()
    assert compare(fit, found) == pytest.approx(1, abs=0.1)
    weights = sum(share.weights for share in fit.shares)
    # What is packed is not used where it is mapped, and the system takes those pages back.
    used = {BUFFER: found.weights[BUFFER]} if BUFFER in found.weights else found.weights
    assert sum(used.values()) == pytest.approx(weights, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("kv_type", "context"), [("f16", 2048), ("q8_0", 4096)])
def test_a_larger_pair_takes_what_was_planned(tmp_path: Path, kv_type: str, context: int) -> None:
    target = gguf_shapes.write_shape(
        tmp_path / "target.gguf",
        Shape(12, 1024, 3072, 16, 8, vocabulary=32_000, context=8192),
        quant=gguf.GGMLQuantizationType.Q8_0,
    )
    draft = gguf_shapes.write_shape(
        tmp_path / "draft.gguf",
        Shape(4, 512, 1536, 8, 4, vocabulary=32_000, context=8192, tied=True),
        quant=gguf.GGMLQuantizationType.Q8_0,
    )
    options = Options(
        model=str(target), draft=str(draft), context=context, kv_type=kv_type, draft_max=2
    )
    fit, found, runtime = allocated(options)
    runtime.close()
    assert sum(share.weights for share in fit.shares) > 200_000_000
    assert compare(fit, found) == pytest.approx(1, abs=0.1)


@pytest.mark.slow
def test_a_tight_machine_asks_llama_cpp(
    shapes: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "read_memory", lambda: machine(host=7.2))
    fit = fit_files(ModelFile(shapes["medium"]), ModelFile(shapes["small"]), Wishes())
    assert fit.target.sizes.compute_factor != 1.0
    found = dry_run(
        shapes["medium"],
        gpu_layers=0,
        n_ctx=fit.context,
        n_batch=512,
        kv_type=fit.target.kv_type,
    )
    assert fit.target.compute == pytest.approx(sum(found.compute.values()), rel=0.03)


def test_uncertain_kinds_are_settled_by_a_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = gguf_shapes.write_shape(
        tmp_path / "w.gguf", OTHER, extra={"attention.sliding_window": 1024}
    )
    monkeypatch.setattr(fitting, "read_memory", lambda: machine(host=30))
    fit = fit_files(ModelFile(path), None, Wishes())
    assert fit.notes == ()
    assert fit_files(ModelFile(path), None, Wishes(threads=2)).threads == 2


def test_a_draft_that_cannot_be_loaded_is_left_to_loading(files: Files, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(files.draft.read_bytes()[:-5000])
    short = tmp_path / "short.gguf"
    short.write_bytes(files.draft.read_bytes()[:500])
    alien = gguf_tools.write_unknown_architecture(tmp_path / "alien.gguf")
    for draft in (cut, short, alien, tmp_path / "gone.gguf"):
        assert (
            fit_files(ModelFile(files.target), ModelFile(draft), Wishes(context=512)).draft is None
        )
    with pytest.raises(ModelFileError, match="cut short or damaged"):
        fit_files(ModelFile(cut), ModelFile(files.draft), Wishes())


# -- refused all the same ----------------------------------------------------------------------


def refuse(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Let llama.cpp refuse so many contexts; returns the sizes that were asked for."""
    from localspec.loading import resources

    real, asked = resources.Context, []

    def context(model, *, n_ctx, **rest):
        asked.append(n_ctx)
        if len(asked) <= times:
            raise OutOfMemoryError(f"no context of {n_ctx} tokens: refused")
        return real(model, n_ctx=n_ctx, **rest)

    monkeypatch.setattr(resources, "Context", context)
    return asked


def test_a_refused_allocation_steps_down_once_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = gguf_tools.write_llama(tmp_path / "long.gguf", context=8192)
    asked = refuse(monkeypatch, 1)
    with Runtime.open(Options(model=str(path), draft_max=2)) as runtime:
        assert asked == [8192, 4096]
        assert runtime.info.context == 4096
        assert "refused" in runtime.info.notices[0]
        assert "4096 tokens" in runtime.info.notices[0]


def test_refused_twice_it_fails_with_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = gguf_tools.write_llama(tmp_path / "long.gguf", context=8192)
    asked = refuse(monkeypatch, 9)
    with pytest.raises(OutOfMemoryError, match=r"refused.*MB of .* GB free"):
        Runtime.open(Options(model=str(path), draft_max=2))
    assert asked == [8192, 4096]
    asked.clear()
    with pytest.raises(OutOfMemoryError, match="free on the host"):
        Runtime.open(Options(model=str(path), draft_max=2, context=512, kv_type="f16"))
    assert asked == [512]


def test_a_draft_without_room_leaves_ngrams(
    files: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    room = sizes_of(ModelFile(files.target).header)
    planned = place(room, "target", gpu_layers=0, n_ctx=512, kv_type="f16", free=[])
    here = replace(machine(), host_free=int(planned.host * 1.2))
    monkeypatch.setattr(fitting, "read_memory", lambda: here)
    own = tmp_path / "home" / "config" / "models.toml"
    own.parent.mkdir(parents=True)
    own.write_text(
        f'[mine]\ntarget = {{ file = "{files.target}" }}\ndraft = {{ file = "{files.draft}" }}\n'
    )
    with Runtime.open(Options(model="mine", context=512, kv_type="f16", draft_max=2)) as runtime:
        assert runtime.info.draft is None
        assert any(
            "does not fit next to" in n and "from the text" in n for n in runtime.info.notices
        )


def test_refused_layers_are_fewer_the_second_time(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    from localspec.loading import resources

    tiny = Memory((Gpu("Vulkan0", "a card", 30_000_000, 10**9),), 60 * GB, 70 * GB)
    monkeypatch.setattr(fitting, "read_memory", lambda: tiny)
    real, asked = resources.Model, []

    def model(path, *, gpu_layers, **rest):
        asked.append((path.name, gpu_layers))
        if len(asked) == 1:
            raise OutOfMemoryError("target.gguf does not fit into memory")
        return real(path, gpu_layers=gpu_layers, **rest)

    monkeypatch.setattr(resources, "Model", model)
    options = Options(model=str(files.target), draft=str(files.draft), draft_max=2)
    with Runtime.open(options) as runtime:
        assert "does not fit" in runtime.info.notices[0]
    (_, first), (_, second), (name, draft_layers) = asked
    assert first == 3, "two layers and the output"
    assert second < first
    assert name == "draft.gguf"
    assert draft_layers in {0, 2}


_LIMITED = """
import resource, sys
from localspec import Options, Runtime
from localspec.core.files.paths import DEMO_DIR
from localspec.llama import context as context_module
from localspec.llama import devices, library
from localspec.llama.heads import ggml as bindings

library.start()
size = next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmSize")) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + int(sys.argv[2]), -1))
with Runtime.open(Options(model=sys.argv[1], draft_max=2, threads=1)) as runtime:
    print(runtime.info.context, *runtime.info.notices, sep="|")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS and /proc")
def test_memory_that_is_really_refused(shapes: dict[str, Path], tmp_path: Path) -> None:
    def run(room: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", _LIMITED, str(shapes["small"]), str(room)]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
        )

    with ThreadPoolExecutor() as at_once:
        enough, some, little = at_once.map(run, (8 * GB, int(1.5 * GB), 600_000_000))
    assert enough.stdout.strip() == "8192", enough.stderr
    assert some.stdout.startswith("4096|"), some.stderr
    assert "refused" in some.stdout
    assert "OutOfMemoryError" in little.stderr
    assert "GB free on the host" in little.stderr
