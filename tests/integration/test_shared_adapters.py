"""Adapters of equal content, under several names, and such that change while replies use them: what
one name is unloaded or exchanged for is no other's and no running reply's, nobody waits for it, and
no context ever computes with a pointer that was freed.
"""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gguf_tools
import head_files
import httpx2
import pytest
from conftest import Files
from gguf_tools import MATRICES
from head_pairs import Pair
from replies import ENDLESS, StopAfter, last
from served import served
from waiting import until

from localspec import Options, ReplyRequest, Runtime, Sampling
from localspec.core.adapter_file import AdapterFile
from localspec.core.adapter_list import Adapter, AdapterUse, read
from localspec.core.errors import ModelFileError, UsageError
from localspec.core.interrupt import Interrupt
from localspec.generation.preparation import Preparation
from localspec.generation.reply_stream import ReplyStream
from localspec.llama import adapters as llama_adapters
from localspec.llama.adapters import Adapters
from localspec.llama.context import Context
from localspec.llama.library import c_api
from localspec.llama.model import Model
from localspec.loading import loader
from localspec.models.gguf.shards import fingerprint
from localspec.prefix_cache.cache import PrefixCache
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


def asked(*uses: tuple[Path, float], usual: bool = False, tokens: int = 16) -> ReplyRequest:
    return ReplyRequest(
        prompt="The rain in the hills",
        sampling=Sampling(temperature=0.9, logit_bias=ENDLESS),
        seed=1,
        max_tokens=tokens,
        adapters=None if usual else tuple(AdapterUse(str(path), scale) for path, scale in uses),
    )


def said(runtime: Runtime, *uses: tuple[Path, float], usual: bool = False) -> tuple[int, ...]:
    """The tokens of a reply whose prompt is read anew."""
    runtime.forget()
    return runtime.answer(asked(*uses, usual=usual)).tokens


class Held(StopAfter):
    """A policy that holds its reply while the thread that decodes has nothing else to do, and
    hardly lets it go on otherwise, until it is interrupted.
    """

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime.pair.control.policy, 1)
        self._scheduler = runtime._scheduler
        self.begun = False

    def reached(self) -> None:
        self.begun = True
        end = time.monotonic() + 60
        while self._scheduler._messages.empty() and len(self._scheduler.replies.running) == 1:
            assert time.monotonic() < end, "nothing was asked of the thread"
            time.sleep(0.001)
        time.sleep(0.01)


@contextlib.contextmanager
def held(runtime: Runtime, *uses: tuple[Path, float]) -> Iterator[ReplyStream]:
    """A reply that runs from before the block to its end, and is then interrupted."""
    interrupt, policy = Interrupt(), Held(runtime)
    stream = runtime.submit(asked(*uses, tokens=400), interrupt, policy=policy)
    until(lambda: policy.begun)
    yield stream
    assert policy in [one.policy for one in runtime._scheduler._jobs if not one.over]
    interrupt.set()


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
    model.adapters.add(AdapterFile.read(copy), "copy")
    later = Context(model, n_ctx=64, threads=1)
    model.adapters.remove("copy")
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


def test_unloading_a_copy_waits_for_no_reply_of_the_other_and_empties_no_sequence(
    files: Files, one: Path, copy: Path, pointers: Pointers
) -> None:
    with Runtime.open(replace(options(files), parallel=2)) as runtime:
        runtime.load_adapter(one)
        runtime.load_adapter(copy)
        wanted = said(runtime, (one, 1.0))
        with held(runtime, (one, 0.5)) as stream:
            runtime.unload_adapter(copy)
            runtime.load_adapter(one)  # has not changed
            again = runtime.answer(asked((one, 1.0)))
        assert last(stream).finish_reason == "interrupt"
        assert again.tokens == wanted
        assert again.stats.cached_tokens > 0
        assert not pointers.freed


def test_an_adapter_in_use_is_exchanged_at_once_and_replies_have_what_they_began_with(
    files: Files, one: Path, copy: Path, pointers: Pointers
) -> None:
    gguf_tools.write_lora(copy, MATRICES, seed=2)
    with Runtime.open(replace(options(files), parallel=2)) as runtime:
        runtime.load_adapter(one)
        runtime.load_adapter(copy)
        before, after = said(runtime, (one, 1.0)), said(runtime, (copy, 1.0))
        assert before != after
        runtime.unload_adapter(copy)
        assert len(pointers.freed) == 1
        with held(runtime, (one, 1.0)) as stream:
            gguf_tools.write_lora(one, MATRICES, seed=2)
            runtime.load_adapter(one)
            assert runtime.answer(asked((one, 1.0))).tokens == after
            assert len(pointers.freed) == 1
        tokens = last(stream).tokens
        assert tokens[:16] == before[: len(tokens)]
        until(lambda: len(pointers.freed) == 2)
        assert runtime.answer(asked((one, 1.0))).tokens == after


@pytest.mark.parametrize("exchanged", [False, True])
def test_a_reply_that_waits_has_the_adapter_that_was_loaded_when_it_was_asked_for(
    files: Files, one: Path, pointers: Pointers, *, exchanged: bool
) -> None:
    with Runtime.open(options(files)) as runtime:
        runtime.load_adapter(one)
        wanted = said(runtime, (one, 1.0))
        with held(runtime, (one, 0.5)):
            waiting = runtime.submit(asked((one, 1.0)))
            until(lambda: len(runtime._scheduler._ready))
            if exchanged:
                gguf_tools.write_lora(one, MATRICES, seed=2)
                runtime.load_adapter(one)
            else:
                runtime.unload_adapter(one)
        assert last(waiting).tokens == wanted
        until(lambda: len(pointers.freed) == 1)
        if exchanged:
            assert said(runtime, (one, 1.0)) != wanted


def test_a_request_that_comes_while_its_adapter_is_exchanged_has_the_one_before(
    files: Files, one: Path, pointers: Pointers, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams: list[ReplyStream] = []
    with Runtime.open(replace(options(files), parallel=2)) as runtime:
        runtime.load_adapter(one)
        wanted = said(runtime, (one, 1.0))
        read = Adapters._read

        def slowly(adapters: Adapters, file: AdapterFile) -> Any:
            streams.append(runtime.submit(asked((one, 1.0))))
            until(lambda: not runtime._scheduler._messages.empty())  # its prompt is made
            return read(adapters, file)

        monkeypatch.setattr(Adapters, "_read", slowly)
        gguf_tools.write_lora(one, MATRICES, seed=2)
        runtime.load_adapter(one)
        assert last(streams[0]).tokens == wanted
        until(lambda: len(pointers.freed) == 1)
        assert said(runtime, (one, 1.0)) != wanted


@pytest.mark.parametrize("step", ["prompt", "prefetch"])
def test_a_request_has_the_adapter_from_when_it_was_asked_not_when_its_prompt_was_made(
    files: Files, one: Path, pointers: Pointers, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Its template or a saved state may take a while."""
    begun, may = threading.Event(), threading.Event()
    owner = {"prompt": Preparation, "prefetch": PrefixCache}[step]
    real = getattr(owner, step)

    def slowly(*given: Any) -> Any:
        begun.set()
        assert may.wait(60)
        return real(*given)

    with Runtime.open(replace(options(files), parallel=2)) as runtime:
        runtime.load_adapter(one)
        wanted = said(runtime, (one, 1.0))
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, slowly)
            stream = runtime.submit(asked((one, 1.0)))
            until(begun.is_set)
            runtime.unload_adapter(one)
        may.set()
        assert last(stream).tokens == wanted
        until(lambda: len(pointers.freed) == 1)


def test_adapters_that_are_kept_for_replies_do_not_become_ever_more(
    files: Files, one: Path, pointers: Pointers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_adapters, "MOST", 1)
    with Runtime.open(options(files)) as runtime:
        runtime.load_adapter(one)
        with held(runtime, (one, 1.0)):
            gguf_tools.write_lora(one, MATRICES, seed=2)
            runtime.load_adapter(one)
            gguf_tools.write_lora(one, MATRICES, seed=3)
            with pytest.raises(UsageError, match="2 adapters are in memory"):
                runtime.load_adapter(one)
        until(lambda: len(pointers.freed) == 1)
        runtime.load_adapter(one)
        assert len(pointers.freed) == 2


def test_a_file_that_has_changed_is_another_adapter_by_another_name(
    files: Files, one: Path, pointers: Pointers
) -> None:
    with Runtime.open(options(files)) as runtime:
        runtime.load_adapter(one, "old")
        wanted = said(runtime, (Path("old"), 1.0))
        gguf_tools.write_lora(one, MATRICES, seed=2)
        runtime.load_adapter(one, "new")
        assert said(runtime, (Path("new"), 1.0)) != wanted
        assert said(runtime, (Path("old"), 1.0)) == wanted
        runtime.unload_adapter("old")
        until(lambda: len(pointers.freed) == 1)
        with pytest.raises(UsageError, match="the adapter old is not loaded"):
            said(runtime, (Path("old"), 1.0))


def test_a_large_file_that_differs_in_one_place_is_another_adapter(
    files: Files, one: Path, copy: Path, pointers: Pointers
) -> None:
    """Between the samples of `fingerprint`, which tell the files of models apart."""
    gguf_tools.write_lora(one, MATRICES, seed=1, rank=4000, strength=0.1)
    raw, sampled = bytearray(one.read_bytes()), fingerprint(one)
    copy.write_bytes(raw)
    begin = (1 << 20) + ((len(raw) - (1 << 20) - 4096) * 5 // 63 + 4096 + 3) // 4 * 4
    raw[begin : begin + 100_000] = 25_000 * struct.pack("<f", 2.0)
    with Runtime.open(options(files)) as runtime:
        runtime.load_adapter(one)
        runtime.load_adapter(copy)
        before = said(runtime, (one, 1.0))
        assert said(runtime, (copy, 1.0)) == before
        one.write_bytes(raw)
        assert fingerprint(one) == sampled
        runtime.load_adapter(one)
        assert said(runtime, (one, 1.0)) != before
        assert said(runtime, (copy, 1.0)) == before


def test_the_thread_that_computes_looks_at_no_byte_of_an_adapter_but_llama_cpp_does(
    files: Files, one: Path, pointers: Pointers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashing it would hold up all replies."""
    threads, plain = set[int](), Path.open

    def noted(path: Path, *given: Any, **more: Any) -> Any:
        if path == one:
            threads.add(threading.get_ident())
        return plain(path, *given, **more)

    with Runtime.open(options(files)) as runtime:
        monkeypatch.setattr(Path, "open", noted)
        runtime.load_adapter(one)
        assert threads == {threading.get_ident()}
        gguf_tools.write_lora(one, MATRICES, seed=2)
        runtime.load_adapter(one)
        assert threads == {threading.get_ident()}


@pytest.mark.parametrize("owner", [loader, c_api])
def test_a_file_that_is_exchanged_after_it_was_looked_at_is_refused(
    files: Files, one: Path, copy: Path, pointers: Pointers, owner: Any
) -> None:
    """llama.cpp would compute with what nobody looked at, under the name of what was hashed."""
    gguf_tools.write_lora(copy, MATRICES, seed=2)
    name = "require_fitting" if owner is loader else "llama_adapter_lora_init"
    look = getattr(owner, name)

    def exchanged(*given: Any) -> Any:
        found = look(*given)
        copy.replace(one)
        return found

    with Runtime.open(options(files)) as runtime:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, exchanged)
            with pytest.raises(ModelFileError, match=r"one\.gguf changed while it was loaded"):
                runtime.load_adapter(one)
        assert len(pointers.freed) == (owner is c_api)
        runtime.load_adapter(one)
        assert said(runtime, (one, 1.0))


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
