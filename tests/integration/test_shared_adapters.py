"""Adapters of equal content, under several names: what one name is unloaded or exchanged for is no
other's, and no context ever computes with a pointer that was freed.
"""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf_tools
import head_files
import httpx2
import pytest
from conftest import Files
from gguf_tools import MATRICES
from head_pairs import Pair
from replies import ENDLESS
from served import served

from localspec import Options, ReplyRequest, Runtime, Sampling
from localspec.core.adapter_list import Adapter, AdapterUse, read
from localspec.core.errors import UsageError
from localspec.llama.adapters import Adapters
from localspec.llama.context import Context
from localspec.llama.library import c_api
from localspec.llama.model import Model
from localspec.serve.http.settings import ServeSettings

Uses = tuple[AdapterUse, ...] | None


@dataclass
class Pointers:
    """What llama.cpp has of adapters, by what it was told."""

    held: dict[int, set[int]] = field(default_factory=dict)
    """By context."""
    freed: list[int] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    """Freed while a context computed with them."""


@pytest.fixture
def pointers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pointers]:
    known = Pointers()
    set_adapters, free_context = c_api.llama_set_adapters_lora, c_api.llama_free
    free_adapter = c_api.llama_adapter_lora_free

    def address(pointer: Any) -> int:
        return ctypes.cast(pointer, ctypes.c_void_p).value or 0

    def use(context: int, array: Any, n: int, scales: Any) -> None:
        known.held[context] = {address(one) for one in array}
        set_adapters(context, array, n, scales)

    def close(context: int) -> None:
        known.held.pop(context, None)
        free_context(context)

    def free(pointer: Any) -> None:
        found = address(pointer)
        known.freed.append(found)
        if any(found in held for held in known.held.values()):
            known.wrong.append(found)  # and it is not freed: that may end the process
        else:
            free_adapter(pointer)

    monkeypatch.setattr(c_api, "llama_set_adapters_lora", use)
    monkeypatch.setattr(c_api, "llama_free", close)
    monkeypatch.setattr(c_api, "llama_adapter_lora_free", free)
    yield known
    assert not known.wrong


@pytest.fixture
def one(tmp_path: Path) -> Path:
    path = tmp_path / "one.gguf"
    gguf_tools.write_lora(path, MATRICES, seed=1)
    return path


@pytest.fixture
def copy(one: Path) -> Path:
    """A file of equal content."""
    return Path(shutil.copy(one, one.with_name("copy.gguf")))


def options(files: Files, *listed: str) -> Options:
    return Options(
        model=str(files.target), draft=str(files.draft), draft_max=3, context=512, lora=read(listed)
    )


def said(runtime: Runtime, *uses: tuple[Path, float], usual: bool = False) -> tuple[int, ...]:
    """The tokens of a reply whose prompt is read anew."""
    runtime.forget()
    asked = ReplyRequest(
        prompt="The rain in the hills",
        sampling=Sampling(temperature=0.9, logit_bias=ENDLESS),
        seed=1,
        max_tokens=16,
        adapters=None if usual else tuple(AdapterUse(str(path), scale) for path, scale in uses),
    )
    return runtime.answer(asked).tokens


def test_unloading_a_copy_of_a_file_of_the_start_takes_nothing_from_usual_replies(
    files: Files, one: Path, copy: Path, pointers: Pointers
) -> None:
    """The copy's pointer was computed with in its place, and freed."""
    with Runtime.open(options(files, f"{one}:0.5")) as runtime:
        usual, bare = said(runtime, usual=True), said(runtime)
        assert usual != bare
        runtime.load_adapter(copy)
        assert said(runtime) == bare
        assert said(runtime, usual=True) == usual
        assert said(runtime, (copy, 0.5)) == usual
        runtime.unload_adapter(copy)
        assert not pointers.wrong
        assert said(runtime, usual=True) == usual
        assert said(runtime) == bare
        assert said(runtime, (one, 0.5)) == usual
        with pytest.raises(UsageError, match=r"copy\.gguf is not loaded"):
            said(runtime, (copy, 0.5))


def test_exchanging_a_copy_of_a_file_of_the_start_takes_nothing_from_usual_replies(
    files: Files, one: Path, copy: Path, pointers: Pointers
) -> None:
    with Runtime.open(options(files, f"{one}:0.5")) as runtime:
        usual = said(runtime, usual=True)
        runtime.load_adapter(copy)
        said(runtime)
        assert said(runtime, usual=True) == usual
        gguf_tools.write_lora(copy, MATRICES, seed=2)
        runtime.load_adapter(copy)
        assert not pointers.wrong
        assert said(runtime, usual=True) == usual
        assert said(runtime, (copy, 0.5)) != usual


def test_of_two_names_of_a_later_file_the_last_one_frees_it(
    files: Files, one: Path, copy: Path, pointers: Pointers
) -> None:
    with Runtime.open(options(files)) as runtime:
        runtime.load_adapter(one)
        runtime.load_adapter(copy)
        wanted = said(runtime, (one, 1.0))
        assert said(runtime, (copy, 1.0)) == wanted
        runtime.unload_adapter(one)
        assert not pointers.freed
        assert said(runtime, (copy, 1.0)) == wanted
        runtime.unload_adapter(copy)
        assert len(pointers.freed) == 1
        runtime.load_adapter(copy)
        assert said(runtime, (copy, 1.0)) == wanted


def test_every_context_of_a_model_goes_on_with_what_it_began_with(
    one: Path, copy: Path, tmp_path: Path, pointers: Pointers
) -> None:
    """A layer for drafts that is in the target's file is computed in a context of its own."""
    path = head_files.write_mtp(tmp_path / "mtp.gguf")
    for file in (one, copy):
        gguf_tools.write_lora(file, {"blk.0.attn_q.weight": (64, 64)}, seed=1, arch="glm4moe")
    settings = Pair("mtp", path).options(lora=read([f"{one}:0.5"]))
    with Runtime.open(settings) as runtime:
        assert len([held for held in pointers.held.values() if held]) > 1
        usual = said(runtime, usual=True)
        runtime.load_adapter(copy)
        said(runtime)
        said(runtime, usual=True)
        runtime.unload_adapter(copy)
        assert not pointers.wrong
        assert said(runtime, usual=True) == usual


def test_what_any_context_of_a_model_begins_with_later_is_not_what_may_be_unloaded(
    files: Files, one: Path, copy: Path, pointers: Pointers
) -> None:
    model = Model(files.target, gpu_layers=0, adapters=Adapters((Adapter(one, 0.5),)))
    first = Context(model, n_ctx=64, threads=1)
    model.adapters.add(copy)
    later = Context(model, n_ctx=64, threads=1)
    model.adapters.remove(copy)
    assert [*pointers.held.values()] == [pointers.held[first.handle]] * 2
    for part in (first, later, model):
        part.close()


def test_a_model_that_is_given_a_file_twice_is_refused_and_freed(
    files: Files, one: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed, free = [], c_api.llama_model_free
    monkeypatch.setattr(c_api, "llama_model_free", lambda ptr: (freed.append(ptr), free(ptr)))
    with pytest.raises(UsageError, match=r"copy\.gguf is named twice"):
        Model(files.target, gpu_layers=0, adapters=Adapters((Adapter(one), Adapter(copy))))
    assert len(freed) == 1


@pytest.mark.parametrize("exchanged", [False, True])
def test_a_servers_usual_replies_outlive_a_copy_that_a_request_loaded(
    files: Files, one: Path, tmp_path: Path, *, exchanged: bool
) -> None:
    folder = tmp_path / "adapters"
    folder.mkdir()
    shutil.copy(one, folder / "copy.gguf")
    settings = ServeSettings(port=0, lora_folders=(folder,))
    with (
        served(settings, options(files, f"{one}:0.5")) as server,
        httpx2.Client(base_url=server.url) as client,
    ):

        def post(path: str, body: Any) -> httpx2.Response:
            answer = client.post(path, json=body, timeout=60)
            assert answer.status_code == 200, answer.text
            return answer

        def reply(salt: str, **more: Any) -> str:
            bias = {str(token): bias for token, bias in ENDLESS}
            sampling = {"temperature": 0.9, "seed": 5, "max_tokens": 16, "logit_bias": bias}
            asked = {"prompt": "The rain in the hills", "cache_salt": salt, **sampling, **more}
            text: str = post("/v1/completions", asked).json()["choices"][0]["text"]
            return text

        usual = reply("a")
        load = {"lora_name": "b", "lora_path": "copy.gguf"}
        post("/v1/load_lora_adapter", load)
        assert reply("a", lora=[{"id": 0, "scale": 0}]) != usual
        assert reply("b") == usual
        if exchanged:
            gguf_tools.write_lora(folder / "copy.gguf", MATRICES, seed=2, strength=3.0)
            post("/v1/load_lora_adapter", load | {"load_inplace": True})
        else:
            post("/v1/unload_lora_adapter", {"lora_name": "b"})
        assert reply("c") == usual
        assert reply("d") == usual
        assert not server.notes.defects
