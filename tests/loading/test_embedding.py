"""Vectors and scores are llama.cpp's own, in this process and in one beside a chat model."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
from asyncio.subprocess import Process
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf_tools
import httpx2
import llama_cpp
import numpy as np
import openai
import pytest
from click.testing import CliRunner
from conftest import Files
from served import Notes, Served, served
from waiting import until_so

from localspec.cli import output
from localspec.cli.embed import command
from localspec.core.errors import (
    ContextError,
    EngineError,
    ModelNotFoundError,
    QueueFullError,
    UnsupportedModelError,
    UsageError,
)
from localspec.core.options import Options
from localspec.engine import embedding_process
from localspec.engine.embedding_process import EmbeddingProcess
from localspec.engine.spawn import started
from localspec.llama import own_kernels
from localspec.loading import embedder as embedders
from localspec.loading.embedder import Embedder
from localspec.models.memory.machine import Gpu, Memory
from localspec.serve.backend.embeddings import Embeddings
from localspec.serve.http.settings import ServeSettings
from localspec.serve.routes.models import _of_texts
from localspec.serve.serving import Serving

TEXTS = ["hello there.", "a", "what is a panda?", "ab " * 20, "zz top, 42!"] * 8
"""More than a pass takes."""
QUERY, DOCUMENTS = "what is a panda?", ["hi", "it is a bear", "a giant panda, a bear"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("embedding")
    return {
        "bert": gguf_tools.write_embedder(folder / "bert.gguf"),
        "bert by its first token": gguf_tools.write_embedder(folder / "cls.gguf", pooling=2),
        "decoder": gguf_tools.write_llama(folder / "decoder.gguf", pooling=3, context=256),
        "reranker": gguf_tools.write_embedder(folder / "reranker.gguf", pooling=4),
    }


def by_llama(model: Path, texts: list[str], *, normalize: bool) -> np.ndarray:
    """The vectors of llama-cpp-python's own class, one text a pass."""
    with own_kernels.loading(own=False):  # the tests' process has them switched on
        llama = llama_cpp.Llama(
            str(model), embedding=True, n_ctx=256, n_batch=256, n_ubatch=256, verbose=False
        )
    try:
        return np.array([llama.embed(text, normalize=normalize) for text in texts], np.float32)
    finally:
        llama.close()


@pytest.mark.parametrize("kind", ["bert", "bert by its first token", "decoder"])
@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_are_those_of_llama_cpp_python(
    models: dict[str, Path], kind: str, normalize: bool
) -> None:
    wanted = by_llama(models[kind], TEXTS[:5], normalize=normalize)
    with Embedder(str(models[kind]), threads=1) as embedder:
        alone = [embedder.embed([text], normalize=normalize).vectors[0] for text in TEXTS[:5]]
        together = embedder.embed(TEXTS, normalize=normalize)
    assert np.array(alone) == pytest.approx(wanted, abs=1e-5)
    assert together.vectors.shape == (len(TEXTS), embedder.info.dimensions)
    # ggml's GELU looks its input up in 16 bits, so the last bits of a sum show in a batch.
    assert together.vectors == pytest.approx(np.tile(wanted, (8, 1)), abs=1e-3)


def test_scores_are_those_of_llama_cpp_for_query_and_document(models: dict[str, Path]) -> None:
    with Embedder(str(models["reranker"]), threads=1) as embedder:
        found = embedder.rank(QUERY, DOCUMENTS)
        tokens = [embedder._model.pair_tokens(QUERY, one) for one in DOCUMENTS]
    assert found.counts == tuple(map(len, tokens))
    with own_kernels.loading(own=False):
        llama = llama_cpp.Llama(
            str(models["reranker"]),
            embedding=True,
            n_ctx=128,
            n_batch=128,
            n_ubatch=128,
            verbose=False,
        )
    asked = llama.tokenize(QUERY.encode(), add_bos=False)
    for document, one, score in zip(DOCUMENTS, tokens, found.vectors[:, 0], strict=True):
        read = llama.tokenize(document.encode(), add_bos=False)
        inner = [token for token in one if token not in {2, 3}]
        assert inner == [t for t in (*asked, *read) if t not in {2, 3}]
        assert one[0] == 2
        assert one.count(3) >= 1
        llama._ctx.kv_cache_clear()
        llama._batch.reset()
        llama._batch.add_sequence(one, 0, True)
        llama._ctx.decode(llama._batch)
        alone = llama_cpp.llama_get_embeddings_seq(llama._ctx.ctx, 0)[0]
        assert score == pytest.approx(alone, abs=1e-5)
    llama.close()


def test_bad_texts_are_refused_with_their_number(models: dict[str, Path]) -> None:
    with Embedder(str(models["bert"]), threads=1) as embedder:
        for texts, said in (([], "no text"), (["a", ""], "text 1 is empty"), ([[9999]], "9999")):
            with pytest.raises(UsageError, match=said):
                embedder.embed(texts)
        long = "a " * 500
        with pytest.raises(ContextError, match=r"text 1 has .* reads at most 128"):
            embedder.embed(["a", long])
        assert embedder.embed(["a", long], truncate=True).counts[1] == 128
        with pytest.raises(UsageError, match="no reranker"):
            embedder.rank("a", ["b"])
    with Embedder(str(models["reranker"]), threads=1) as embedder:
        with pytest.raises(UsageError, match="is a reranker"):
            embedder.embed(["a"])
        with pytest.raises(ContextError, match="document 0"):
            embedder.rank("a", [long])


def test_what_is_cut_keeps_the_tokens_that_texts_end_with(tmp_path: Path) -> None:
    long, most = "a b " * 100, 128
    with Embedder(str(gguf_tools.write_embedder(tmp_path / "l.gguf", pooling=3))) as embedder:
        tokens = embedder._model.tokens(long)
        fit = [*tokens[: most - 1], tokens[-1]]
        expected = embedder.embed([fit]).vectors
        for given in (long, tokens):
            found = embedder.embed([given], truncate=True)
            assert found.vectors == pytest.approx(expected, abs=1e-5)
            assert found.counts == (most,)
    template = "[CLS]{query}[SEP]{document}[SEP]ok[SEP]"
    for rerank, kept in ((None, 0), (template, 4)):
        path = gguf_tools.write_embedder(tmp_path / f"{kept}.gguf", pooling=4, rerank=rerank)
        with Embedder(str(path)) as embedder:
            for query in (QUERY, long):  # the document is cut, or there is no room for it at all
                tokens = embedder._model.pair_tokens(query, long)
                fit = [*tokens[: most - kept], *tokens[len(tokens) - kept :]]
                (score,) = embedder.rank(query, [long], truncate=True).vectors
                assert score == pytest.approx(embedder._model.rows([fit])[0], abs=1e-5)


def test_what_a_query_holds_is_no_place_for_the_document(tmp_path: Path) -> None:
    """Or a short request became a text as long as its square."""
    template = "[CLS]{query}[SEP]{document}[SEP]{query}"
    path = gguf_tools.write_embedder(tmp_path / "places.gguf", pooling=4, rerank=template)
    read: list[str] = []
    with Embedder(str(path)) as embedder:
        model = embedder._model._model
        tokenize = model.tokenize

        def recorded(text: str, **how: bool) -> list[int]:
            read.append(text)
            return tokenize(text, **how)

        model.tokenize = recorded  # type: ignore[method-assign]
        embedder.rank("{document}" * 20, ["{query}" * 20, "b"], truncate=True)
    asked = "{document}" * 20
    assert read[0] == f"[CLS]{asked}[SEP]{'{query}' * 20}[SEP]{asked}"
    assert max(map(len, read)) == len(read[0])


def test_a_chat_model_is_refused_with_what_to_choose(files: Files) -> None:
    with pytest.raises(UnsupportedModelError, match=r"no embedding model.*nomic-embed-text"):
        Embedder(str(files.target))


# -- in a process of its own -----------------------------------------------------------------------


async def test_a_process_that_dies_is_started_again_and_nothing_else_ends(
    models: dict[str, Path],
) -> None:
    process = EmbeddingProcess(str(models["bert"]), threads=1)
    first = await process.embed(TEXTS)
    several = await asyncio.gather(*(process.embed([text]) for text in TEXTS[:5]))
    assert np.concatenate([one.vectors for one in several]) == pytest.approx(
        first.vectors[:5], abs=1e-3
    )
    assert process._process is not None
    process._process.send_signal(signal.SIGSTOP)
    waiting = asyncio.create_task(process.embed(["a"]))
    await until_so(lambda: process._asked is not None)
    process._process.kill()
    with pytest.raises(EngineError, match="stopped"):
        await waiting
    assert (await process.embed(TEXTS)).vectors == pytest.approx(first.vectors, abs=1e-6)
    with pytest.raises(ContextError):
        await process.embed(["a " * 500])
    await process.close()


BEGIN = """
import json, pathlib, sys, time

folder = pathlib.Path(sys.argv[1])
print('{"info": {"name": "m", "dimensions": 1, "longest": 9, "ranks": false}}')
sys.stdout.flush()
"""
RECORDER = f"""{BEGIN}
for line in sys.stdin:
    with open(folder / "asked", "a") as file:
        file.write("".join(text[0] for text in json.loads(line)["texts"]))
    while not (folder / "go").exists():
        time.sleep(0.01)
    print('{{"shape": [1, 1], "vectors": "AACAPw==", "counts": [1]}}')
    sys.stdout.flush()
"""
"""Answers once there is a file, and notes what it was asked."""


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddingProcess:
    """A process that notes what it was asked in ``tmp_path``."""
    (tmp_path / "recorder.py").write_text(RECORDER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return EmbeddingProcess(str(tmp_path), module="recorder")


async def test_requests_that_were_given_up_are_not_computed(
    tmp_path: Path, recording: EmbeddingProcess
) -> None:
    process, asked = recording, tmp_path / "asked"
    first = asyncio.create_task(process.embed(["1"]))
    await until_so(lambda: asked.exists() and asked.read_text())
    given_up = [first, *(asyncio.create_task(process.embed([text])) for text in "234")]
    await until_so(lambda: process.waiting == 4)
    for task in given_up:
        task.cancel()
    await asyncio.gather(*given_up, return_exceptions=True)
    for text in "56":  # one after the other, behind the one that is computed still
        task = asyncio.create_task(process.embed([text]))
        await until_so(lambda: process.waiting == 1)
        task.cancel()
        await asyncio.wait([task])
    last = asyncio.create_task(process.embed(["7"]))
    await until_so(lambda: process.waiting == 1)
    (tmp_path / "go").touch()
    assert (await last).vectors == 1
    assert asked.read_text() == "17"
    await process.close()


async def test_callers_have_the_model_in_turn_by_parts_of_their_texts(
    tmp_path: Path, recording: EmbeddingProcess
) -> None:
    process, asked = recording, tmp_path / "asked"
    texts = ["a", "b", "c", ["d"] * 64 + ["e"] * 64]
    begun = [asyncio.create_task(process.embed(one, caller="alice")) for one in texts]
    await until_so(lambda: asked.exists() and asked.read_text())
    given_up = asyncio.create_task(process.embed(["x"], caller="bob"))
    begun += [asyncio.create_task(process.embed([text], caller="bob")) for text in "yz"]
    begun.append(asyncio.create_task(process.rank("q", ["1"], caller="carol")))
    await until_so(lambda: process.waiting == 8)
    given_up.cancel()
    (tmp_path / "go").touch()
    await asyncio.gather(*begun)
    assert asked.read_text() == "ay1bzc" + "d" * 64 + "e" * 64
    await process.close()


async def test_one_caller_that_asks_for_all_that_may_wait_leaves_places_to_others(
    tmp_path: Path, recording: EmbeddingProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_process, "MOST_WAITING", 4)
    process = recording
    begun = [asyncio.create_task(process.embed(["a"], caller="alice")) for _ in range(4)]
    await until_so(lambda: process.waiting == 4)
    with pytest.raises(QueueFullError, match="4 requests"):
        await process.embed(["a"], caller="alice")
    begun.append(asyncio.create_task(process.embed(["b"], caller="bob")))
    await until_so(lambda: process.waiting == 5)
    for caller in ("bob", "carol"):
        with pytest.raises(QueueFullError, match="5 requests"):
            await process.embed(["b"], caller=caller)
    (tmp_path / "go").touch()
    await asyncio.gather(*begun)
    assert process.waiting == 0
    await process.close()


async def test_of_many_texts_no_more_are_computed_once_their_client_has_left(
    tmp_path: Path, recording: EmbeddingProcess
) -> None:
    process, asked = recording, tmp_path / "asked"
    many = asyncio.create_task(process.embed([*("a" * 64), *("b" * 64), *("c" * 64)]))
    await until_so(lambda: asked.exists() and asked.read_text())
    short = asyncio.create_task(process.embed(["d"]))
    await until_so(lambda: process.waiting == 2)
    many.cancel()
    (tmp_path / "go").touch()
    assert (await short).vectors == 1
    assert asked.read_text() == "a" * 64 + "d"
    whole = await process.embed(["e", "f" * 20_000, "g", *("h" * 65)])
    assert asked.read_text().partition("d")[2] == "efg" + "h" * 65
    assert (whole.vectors.shape, whole.counts) == ((4, 1), (1, 1, 1, 1))
    await process.close()


async def test_of_many_documents_no_more_are_ranked_once_their_client_has_left(
    tmp_path: Path, recording: EmbeddingProcess
) -> None:
    """The query is computed with each: 64 short documents beside a long one took 21 s."""
    process, asked = recording, tmp_path / "asked"
    many = asyncio.create_task(process.rank("q" * 8000, "abcdefgh"))
    await until_so(lambda: asked.exists() and asked.read_text())
    short = asyncio.create_task(process.rank("q", ["z"]))
    await until_so(lambda: process.waiting == 2)
    many.cancel()
    (tmp_path / "go").touch()
    await short
    assert asked.read_text() == "abz"
    await process.close()


async def test_texts_that_are_sent_in_parts_have_their_vectors_and_numbers(
    models: dict[str, Path],
) -> None:
    process = EmbeddingProcess(str(models["bert"]), threads=1)
    texts = [f"{text} {i}" for i in range(30) for text in TEXTS[:5]]
    found = await process.embed(texts)
    last = await process.embed(texts[-7:])
    assert found.vectors[-7:] == pytest.approx(last.vectors, abs=1e-3)
    assert len(found.counts) == len(texts)
    with pytest.raises(ContextError, match="text 150 has"):
        await process.embed([*texts, "a " * 500])
    await process.close()


def network_sockets(pid: int) -> set[Path]:
    """The sockets of a network that a process has open; none where Linux does not tell."""
    tables = [Path("/proc/net", name) for name in ("tcp", "tcp6", "udp", "udp6")]
    rows = [line for at in tables if at.exists() for line in at.read_text().splitlines()]
    fds = Path(f"/proc/{pid}/fd")
    there = {fd.readlink() for fd in fds.iterdir()} if fds.exists() else set()
    return there & {Path(f"socket:[{row.split()[9]}]") for row in rows}


def holding(folder: Path, text: bytes) -> list[Path]:
    """The files below a folder that have a text."""
    return [file for file in folder.rglob("*") if file.is_file() and text in file.read_bytes()]


async def test_nothing_of_a_request_is_kept_and_no_door_is_open_but_a_pipe(
    models: dict[str, Path], tmp_path: Path
) -> None:
    process = EmbeddingProcess(str(models["bert"]), threads=1)
    first = await process.embed(["a secret panda"])
    await process.embed(TEXTS)
    again = await process.embed(["a secret panda"])
    assert (again.vectors == first.vectors).all()
    assert again.counts == first.counts
    assert process._process is not None
    assert network_sockets(process._process.pid) == set()
    await process.close()
    assert holding(tmp_path, b"secret") == []


async def test_an_answer_that_is_none_fails_the_request_and_not_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "garbler.py").write_text(f"{BEGIN}\nsys.stdin.readline()\nprint('no JSON')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = EmbeddingProcess(str(tmp_path), module="garbler")
    asked = [process.embed([text]) for text in "ab"]
    for error in await asyncio.gather(*asked, return_exceptions=True):
        assert isinstance(error, EngineError)
        assert "stopped (exit status 0)" in str(error)
    await process.close()


@pytest.mark.parametrize("closed", [False, True])
async def test_a_model_that_ends_in_the_instant_it_is_ready_fails_who_waits_and_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, closed: bool
) -> None:
    """Its first line and the end of its output are read together, as in a loop that was busy."""
    (tmp_path / "recorder.py").write_text(RECORDER)
    (tmp_path / "fading.py").write_text(f"{BEGIN}\nsys.exit(3)\n")
    (tmp_path / "go").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process, start, ended = EmbeddingProcess(str(tmp_path), module="fading"), started, False
    seen = asyncio.Event()

    async def at_once(*given: Any, **named: Any) -> Process:
        nonlocal ended
        found = await start(*given, **named)
        if not ended:
            ended = True
            assert found.stdout is not None
            output = await found.stdout.read()
            found.stdout = asyncio.StreamReader()
            found.stdout.feed_data(output)
            found.stdout.feed_eof()
            await seen.wait()
        return found

    monkeypatch.setattr(embedding_process, "started", at_once)
    waiting = [asyncio.create_task(process.embed(["a"], caller=caller)) for caller in "ab"]
    await until_so(lambda: ended and process.waiting == 2)
    process._module = "recorder"
    closing = asyncio.create_task(process.close()) if closed else None
    await asyncio.sleep(0)
    seen.set()
    done, hung = await asyncio.wait(waiting, timeout=60)
    assert not hung
    found = await asyncio.gather(*done, return_exceptions=True)
    errors = [str(error) for error in found if isinstance(error, EngineError)]
    if closing is not None:
        await closing
        assert errors == ["the embedding model was closed"] * 2
    else:
        assert "stopped (exit status 3)" in errors[0]
        assert len(errors) == 1  # the other one has it started again
        await process.close()


async def test_a_server_tells_once_that_its_model_is_not_on_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = RECORDER.replace("false}", 'false, "notice": "on the processor"}')
    (tmp_path / "teller.py").write_text(code)
    (tmp_path / "go").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    notes = Notes()
    process = EmbeddingProcess(str(tmp_path), module="teller")
    texts = Embeddings(process, reporter=notes)
    for _ in range(2):  # the first of them starts it, as where a server is lazy
        await texts.embed(None, ["a"])
    await texts.start()
    await texts.close()
    assert notes.notices == ["on the processor"]


async def test_a_model_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    process = EmbeddingProcess(str(tmp_path / "none.gguf"))
    with pytest.raises(ModelNotFoundError):
        await process.start()
    await process.close()


SLOW = """
import pathlib, sys, time

folder = pathlib.Path(sys.argv[1])
with open(folder / "starts", "a") as file:
    file.write("x")
if (folder / "fail").exists():
    sys.exit(3)
while not (folder / "go").exists():
    time.sleep(0.01)
"""
"""Begins once there is a file, or fails, and counts how often it was started."""


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddingProcess:
    """A process whose model is loaded once there is ``go`` in ``tmp_path``."""
    (tmp_path / "slow_to_load.py").write_text(SLOW + RECORDER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(embedding_process, "_PAUSE_S", 1000.0)
    return EmbeddingProcess(str(tmp_path), module="slow_to_load")


async def test_clients_that_give_up_sooner_than_loading_takes_have_the_model_loaded(
    tmp_path: Path, slow: EmbeddingProcess
) -> None:
    starts = tmp_path / "starts"
    for _ in range(3):
        asked = asyncio.create_task(slow.embed(["a"]))
        await until_so(lambda: starts.exists() and starts.read_text())
        asked.cancel()
        await asyncio.wait([asked])
    (tmp_path / "go").touch()
    assert (await slow.embed(["b"])).vectors == 1
    assert starts.read_text() == "x"
    await slow.close()


async def test_a_model_that_could_not_be_loaded_is_tried_again_after_a_pause(
    tmp_path: Path, slow: EmbeddingProcess
) -> None:
    (tmp_path / "fail").touch()
    for _ in range(3):
        with pytest.raises(EngineError, match="exit status 3"):
            await slow.embed(["a"])
    assert (tmp_path / "starts").read_text() == "x"
    (tmp_path / "fail").unlink()
    (tmp_path / "go").touch()
    slow._again_at = 0.0
    assert (await slow.embed(["a"])).vectors == 1
    await slow.close()


async def test_a_model_that_is_being_loaded_ends_with_the_server(
    tmp_path: Path, slow: EmbeddingProcess
) -> None:
    asked = asyncio.create_task(slow.embed(["a"]))
    await until_so((tmp_path / "starts").exists)
    await slow.close()
    with pytest.raises(EngineError, match="closed"):
        await asked
    assert slow._process is not None
    assert slow._process.returncode is not None


class Refused(Notes):
    """The front of a server that is not to come up."""

    def ready(self, service: object, address: str) -> None:
        raise AssertionError(f"{service} serves at {address}")


@pytest.mark.parametrize(
    ("flag", "model", "said"),
    [
        ("embedding", "reranker", "is a reranker: --embedding takes none, --reranker does"),
        ("reranker", "bert", "is an embedding model: --reranker takes none, --embedding does"),
    ],
)
async def test_a_lazy_server_refuses_a_model_of_texts_of_the_other_kind(
    models: dict[str, Path], flag: str, model: str, said: str
) -> None:
    settings = ServeSettings(port=0, load_first=False, **{flag: str(models[model])})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=said):
        await Serving(settings, Options(model="demo"), Refused()).run()


async def test_a_lazy_server_begins_without_the_models_of_texts(
    models: dict[str, Path], tmp_path: Path
) -> None:
    for names in (("none.gguf", "none.gguf"), ("bert", "reranker")):
        paths = [models.get(name, tmp_path / name) for name in names]
        embedding, reranker = (EmbeddingProcess(str(path)) for path in paths)
        await Embeddings(embedding, reranker).check()
        assert embedding.info is None


# -- over HTTP -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(files: Files, models: dict[str, Path]) -> Iterator[Served]:
    settings = ServeSettings(
        port=0, embedding=str(models["bert"]), reranker=str(models["reranker"])
    )
    with served(settings, Options(model=str(files.target), threads=1, parallel=1)) as found:
        yield found


def test_openais_client_gets_vectors(server: Served, models: dict[str, Path]) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    found = client.embeddings.create(model="bert", input=TEXTS[:5])  # which asks for base64
    wanted = by_llama(models["bert"], TEXTS[:5], normalize=True)
    assert np.array([one.embedding for one in found.data]) == pytest.approx(wanted, abs=1e-3)
    assert found.usage.prompt_tokens == found.usage.total_tokens > 5
    fewer = client.embeddings.create(model="bert", input="a", dimensions=8, encoding_format="float")
    vector = np.array(fewer.data[0].embedding)
    assert len(vector) == 8
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
    chat = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": "Hi"}],
        max_tokens=2,
    )
    assert chat.usage is not None


def post(server: Served, path: str, body: dict[str, object]) -> httpx2.Response:
    return httpx2.post(server.url + path, json=body, timeout=5)


def test_base64_has_the_same_numbers_and_tokens_the_same_vector(server: Served) -> None:
    plain = post(server, "/embeddings", {"input": ["ab"]}).json()
    coded = post(server, "/v1/embeddings", {"input": "ab", "encoding_format": "base64"}).json()
    raw = np.frombuffer(base64.b64decode(coded["data"][0]["embedding"]), "<f4")
    assert raw == pytest.approx(plain["data"][0]["embedding"], abs=1e-7)
    native = post(server, "/embedding", {"content": "ab"}).json()
    assert native == [{"index": 0, "embedding": [plain["data"][0]["embedding"]]}]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    a = len(words)
    ids = [2, a, a + 40 + 1, 3]  # [CLS] ▁a b [SEP]
    given = post(server, "/v1/embeddings", {"input": [ids, ids]}).json()
    for one in given["data"]:
        assert one["embedding"] == pytest.approx(plain["data"][0]["embedding"], abs=1e-3)
    assert given["usage"]["prompt_tokens"] == 8


def test_documents_come_in_the_order_of_their_scores(server: Served) -> None:
    body = {"query": QUERY, "documents": [*DOCUMENTS[:2], {"text": DOCUMENTS[2]}]}
    found = post(server, "/v1/rerank", body).json()
    scores = [one["relevance_score"] for one in found["results"]]
    assert scores == sorted(scores, reverse=True)
    assert sorted(one["index"] for one in found["results"]) == [0, 1, 2]
    assert found["model"] == "reranker"
    best = post(server, "/rerank", body | {"top_n": 1, "return_documents": True}).json()["results"]
    assert len(best) == 1
    assert best[0]["document"]["text"] == DOCUMENTS[best[0]["index"]]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/embeddings", {"input": []}, "not empty"),
        ("/v1/embeddings", {"input": ["a", ""]}, "empty text, number 1"),
        ("/v1/embeddings", {"input": [1, "a"]}, "input must be"),
        ("/v1/embeddings", {"input": [-1]}, "not a token id"),
        ("/v1/embeddings", {"input": [99999]}, "outside of this model's vocabulary"),
        ("/v1/embeddings", {"input": "a " * 500}, "reads at most 128"),
        ("/v1/embeddings", {"input": "a", "dimensions": 64}, "at most 32"),
        ("/v1/embeddings", {"input": "a", "dimensions": 0}, "dimensions"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ("/v1/embeddings", {"input": "a", "model": "target"}, "gives no embeddings here"),
        ("/v1/embeddings", {"input": "a", "model": "reranker"}, "gives no embeddings here"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "model": "bert"}, "ranks no documents"),
        ("/v1/rerank", {"query": "a", "documents": []}, "documents"),
        ("/v1/rerank", {"query": "", "documents": ["a"]}, "query"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": 0}, "top_n"),
    ],
)
def test_bad_input_is_400_in_one_line(
    server: Served, path: str, body: dict[str, object], said: str
) -> None:
    answer = post(server, path, body)
    assert answer.status_code == 400, answer.text
    assert said in answer.json()["error"]["message"]
    assert str(Path.cwd()) not in answer.text
    assert ".gguf" not in answer.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *((path, {"input": "a"}) for path in ("/v1/embeddings", "/api/embed")),
        ("/embedding", {"content": "a"}),
        ("/api/embeddings", {"prompt": "a"}),
        ("/v1/rerank", {"query": "a", "documents": ["a"]}),
    ],
)
def test_a_name_that_nothing_here_has_is_404(
    server: Served, path: str, body: dict[str, object]
) -> None:
    answer = post(server, path, body | {"model": "text-embedding-3-large"})
    assert answer.status_code == 404
    error = answer.json()["error"]
    message = error if "/api/" in path else error["message"]
    own = "reranker" if "rerank" in path else "bert"
    assert f"there is no model 'text-embedding-3-large' here; ask {own!r}" in message
    assert "/api/" in path or error["code"] == "model_not_found"


def test_ollama_lists_and_describes_the_model_whose_vectors_it_gives(server: Served) -> None:
    listed = httpx2.get(f"{server.url}/api/tags").json()["models"]
    (entry,) = [one for one in listed if one["name"] == "bert:latest"]
    assert entry["size"] > 10_000
    for name in ("bert", "bert:latest"):
        shown = post(server, "/api/show", {"model": name}).json()
        assert shown["capabilities"] == ["embedding"]
        assert shown["model_info"]["general.architecture"] == "bert"
    assert post(server, "/api/show", {"model": "reranker"}).status_code == 404


def test_ollamas_paths_have_the_same_vectors(server: Served) -> None:
    plain = post(server, "/embeddings", {"input": ["ab", "b"]}).json()["data"]
    for name in ("bert:latest", "bert", None):
        body = {"input": ["ab", "b"], **({"model": name} if name else {})}
        found = post(server, "/api/embed", body).json()
        assert found["prompt_eval_count"] > 0
        for ours, theirs in zip(found["embeddings"], plain, strict=True):
            assert ours == pytest.approx(theirs["embedding"], abs=1e-7)
    old = post(server, "/api/embeddings", {"prompt": "ab"}).json()["embedding"]
    assert old == pytest.approx(plain[0]["embedding"], abs=1e-7)
    cut = post(server, "/api/embed", {"input": "a " * 500})
    assert cut.status_code == 200
    refused = post(server, "/api/embed", {"input": "a " * 500, "truncate": False})
    assert refused.status_code == 400
    assert "reads at most 128" in refused.json()["error"]
    assert (
        "gives no embeddings here"
        in post(server, "/api/embed", {"input": "a", "model": "target"}).json()["error"]
    )


# -- in the shell ----------------------------------------------------------------------------------


def test_lines_in_json_out(models: dict[str, Path]) -> None:
    text = "hello there.\n\na\n"
    done = CliRunner().invoke(command, [str(models["bert"])], input=text, standalone_mode=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["index"], one["text"]) for one in found] == [(0, "hello there."), (2, "a")]
    wanted = by_llama(models["bert"], ["hello there.", "a"], normalize=True)
    assert np.array([one["embedding"] for one in found]) == pytest.approx(wanted, abs=1e-3)
    ranked = CliRunner().invoke(
        command, [str(models["reranker"]), "--query", QUERY], input="hi\n", standalone_mode=False
    )
    assert set(json.loads(ranked.stdout)) == {"index", "text", "tokens", "score"}


def test_a_line_of_stdin_that_no_context_holds_is_refused_before_its_end(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "LARGEST_TEXT", 20)
    for length, refused in ((19, False), (21, True)):
        line = "a" * length + "\n"
        done = CliRunner().invoke(
            command, [str(models["bert"]), "--truncate"], input=line, standalone_mode=False
        )
        assert isinstance(done.exception, UsageError) == refused
        assert ("a line of stdin is larger" in str(done.exception)) == refused


def test_both_are_listed_as_models_that_write_no_text(server: Served) -> None:
    listed = httpx2.get(f"{server.url}/v1/models").json()["data"]
    tasks = {one["id"]: one["localspec"].get("task") for one in listed}
    assert {"embedding", "rerank"} <= {*tasks.values()}
    for name, task in tasks.items():
        if task is not None:
            for called in (name, f"{name}:latest"):
                assert httpx2.get(f"{server.url}/v1/models/{called}").json()["id"] == name
                asked = {"model": called, "prompt": "Hi", "max_tokens": 2}
                refused = post(server, "/v1/completions", asked)
                assert refused.status_code == 400
                assert "writes no text; ask it at /v1/" in refused.json()["error"]["message"]
            for path, more in (("/tokenize", {"content": "Hi"}), ("/api/generate", {})):
                refused = post(server, path, {"model": name} | more)
                assert refused.status_code == 400
                assert "writes no text; ask it at /v1/" in refused.text


async def test_a_list_says_whether_each_is_loaded(models: dict[str, Path]) -> None:
    process = EmbeddingProcess(str(models["bert"]))
    service = SimpleNamespace(embeddings=Embeddings(process), started=0.0)
    loaded = [_of_texts(service)[0]["localspec"]["loaded"]]
    await process.start()
    loaded.append(_of_texts(service)[0]["localspec"]["loaded"])
    await process.close()
    loaded.append(_of_texts(service)[0]["localspec"]["loaded"])
    assert loaded == [False, True, False]


def test_requests_for_vectors_and_scores_are_counted(server: Served) -> None:
    def counts() -> dict[str, float]:
        page = httpx2.get(f"{server.url}/metrics").text
        rows = [line.rpartition(" ") for line in page.splitlines() if "localspec:text_" in line]
        return {name: float(value) for name, _, value in rows if not name.startswith("#")}

    before = counts()
    assert post(server, "/v1/embeddings", {"input": ["ab", "c"]}).status_code == 200
    assert post(server, "/api/embed", {"input": "ab"}).status_code == 200
    ranked = {"query": "a", "documents": ["b", "c", "d"]}
    assert post(server, "/v1/rerank", ranked).status_code == 200
    assert post(server, "/v1/embeddings", {"input": "a", "model": "none"}).status_code == 404
    more = {name: value - before[name] for name, value in counts().items()}
    assert more['localspec:text_requests_total{task="embedding"}'] == 3
    assert more['localspec:text_requests_failed_total{task="embedding"}'] == 1
    assert more['localspec:text_inputs_total{task="embedding"}'] == 3
    assert more['localspec:text_inputs_total{task="rerank"}'] == 3
    assert more['localspec:text_requests_total{task="rerank"}'] == 1
    assert more['localspec:text_tokens_total{task="rerank"}'] > 0


@pytest.mark.parametrize(("free", "layers"), [(1 << 30, None), (300 << 20, 0), (0, 0)])
def test_a_model_goes_to_the_processor_where_a_card_has_no_room(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, free: int, layers: int | None
) -> None:
    # 256 MiB of a card of NVIDIA's are left to CUDA's kernels, and as many to the computing.
    card = Gpu("CUDA0", "", free, 24 << 30)
    monkeypatch.setattr(
        embedders, "read_memory", lambda: Memory((card,), host_free=8 << 30, host_total=16 << 30)
    )
    asked: list[int | None] = []
    model = embedders.EmbeddingModel

    def recorded(path: Path, *, gpu_layers: int | None, threads: int | None) -> object:
        asked.append(gpu_layers)
        return model(path, gpu_layers=gpu_layers, threads=threads)

    monkeypatch.setattr(embedders, "EmbeddingModel", recorded)
    notices = []
    for given in (None, 5):
        with Embedder(str(models["bert"]), gpu_layers=given, threads=1) as embedder:
            notices.append(embedder.info.notice)
    assert asked == [layers, 5]
    assert ["is computed on the processor" in notice for notice in notices] == [layers == 0, False]
