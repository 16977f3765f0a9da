"""Threads of heads that the processor computes next to a target that devices have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf_tools
import head_files
import pytest

from localspec import Options, Runtime
from localspec.llama import devices
from localspec.llama.context import Context
from localspec.llama.model import Model
from localspec.llama.threads import choose_threads
from localspec.loading import resources


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of files whose threads were chosen, by measurements as usual."""
    found: list[str] = []

    def choose(context: Context, seconds: Callable[[], float] | None = None) -> int:
        found.append(context.model.path.name)
        return choose_threads(context, seconds)

    monkeypatch.setattr(resources, "choose_threads", choose)
    return found


def write_heads(folder: Path) -> dict[str, Path]:
    return {
        "eagle3": head_files.write_eagle(folder / "eagle3.gguf"),
        "dflash": head_files.write_dflash(folder / "dflash.gguf"),
    }


@pytest.mark.parametrize("on_device", [True, False], ids=["target on a device", "all on the host"])
@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_they_are_chosen_where_the_target_has_those_of_a_look_up(
    kind: str,
    on_device: bool,
    tmp_path: Path,
    chosen: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = gguf_tools.write_llama(tmp_path / "dense.gguf", layers=4, seed=3, context=1024)
    head = write_heads(tmp_path)[kind]
    layers = property(lambda model: 99 if on_device and model.path == target else 0)
    monkeypatch.setattr(Model, "gpu_layers", layers)
    options = Options(str(target), draft=str(head), drafter=(kind,), draft_max=3)
    with Runtime.open(options) as runtime:
        assert runtime.info.drafters == (kind,)
        assert (head.name in chosen) is on_device
        assert (target.name in chosen) is not on_device


def test_threads_that_the_user_named_stay(
    tmp_path: Path, chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = gguf_tools.write_llama(tmp_path / "dense.gguf", layers=4, seed=3, context=1024)
    head = write_heads(tmp_path)["eagle3"]
    monkeypatch.setattr(
        Model, "gpu_layers", property(lambda model: 99 if model.path == target else 0)
    )
    options = Options(str(target), draft=str(head), drafter=("eagle3",), draft_max=3, threads=1)
    with Runtime.open(options):
        assert not chosen


def test_medusa_heads_on_the_host_have_all_cores_next_to_a_target_on_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = gguf_tools.write_llama(tmp_path / "dense.gguf", layers=4, seed=3, context=1024)
    options = Options(str(target), draft="none", drafter=("off",))
    monkeypatch.setattr(resources, "physical_cores", lambda: 7)
    with Runtime.open(options) as runtime:
        parts = runtime.pair.parts
        (context,) = [part for part in parts.loaded if isinstance(part, Context)]
        assert parts.medusa_threads(context) == context.threads <= devices.physical_cores()
        monkeypatch.setattr(context.model, "gpu_layers", 99)
        assert parts.medusa_threads(context) == 7
