"""Ollama's paths about models, with a Hub on loopback: lists, descriptions, downloads, removals."""

import asyncio
import json
import threading

import pytest
from hub_server import DRAFT, DRAFT_FILE, TARGET, TARGET_FILE
from odd_server import OddServer
from waiting import until_so

from localspec.core.embedded import EmbeddingInfo
from localspec.core.options import Options
from localspec.engine.embedding_process import EmbeddingProcess
from localspec.models.catalog import hf_cache
from localspec.serve.backend.downloads import AT_ONCE
from localspec.serve.backend.embeddings import Embeddings
from localspec.serve.backend.service import Service
from localspec.serve.http.errors import ApiError

pytest_plugins = ["hub_fixtures"]
PULL, DELETE, TAGS = "/api/pull", "/api/delete", "/api/tags"


def lines(text):
    return [json.loads(one) for one in text.splitlines()]


async def names(world):
    """The models that are listed, without the embedded pairs."""
    listed = [model["name"] for model in (await world.client.get(TAGS)).json()["models"]]
    return [name for name in listed if not name.startswith("demo")]


@pytest.mark.usefixtures("pair")
async def test_a_pull_tells_its_progress_and_the_model_can_be_named_afterwards(world):
    answer = await world.client.post(PULL, json={"model": "tiny:latest"})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    first, *between, last = lines(answer.text)
    assert (first, last) == ({"status": "pulling manifest"}, {"status": "success"})
    whole = [m for m in between if m.get("total") and m["completed"] == m["total"]]
    assert len({m["digest"] for m in whole}) == 2  # target and draft
    assert all(m["digest"].startswith("sha256:") for m in whole)
    assert await names(world) == ["fake:latest", "tiny:latest"]
    said = await world.client.post("/api/chat", json={"model": "tiny:latest", "messages": []})
    assert said.status_code == 200
    assert (world.engines[-1].options.model, world.engines[-1].options.offline) == ("tiny", True)


@pytest.mark.usefixtures("pair")
async def test_a_model_of_the_hub_is_pulled_and_used_by_its_name_there(world):
    name = f"hf.co/{TARGET}:{TARGET_FILE}"
    before = await world.client.post("/api/show", json={"model": name})
    assert before.status_code == 404
    answer = await world.client.post(PULL, json={"model": name, "stream": False})
    assert answer.json() == {"status": "success"}
    shown = (await world.client.post("/api/show", json={"model": name})).json()
    assert shown["details"]["family"] == "llama"
    await world.client.post("/api/generate", json={"model": name})
    assert world.engines[-1].options.model == f"{TARGET}:{TARGET_FILE}"


@pytest.mark.usefixtures("pair")
async def test_a_description_has_the_header_and_what_the_model_can(world):
    await world.client.post(PULL, json={"name": "tiny", "stream": False})
    shown = (await world.client.post("/api/show", json={"model": "tiny"})).json()
    assert shown["model_info"]["general.architecture"] == "llama"
    assert shown["model_info"]["llama.block_count"] == 2
    assert shown["model_info"]["tokenizer.ggml.tokens"] is None
    assert shown["capabilities"][0] == "completion"
    (model,) = [
        m for m in (await world.client.get(TAGS)).json()["models"] if m["name"] == "tiny:latest"
    ]
    assert model["size"] > 100_000
    assert len(model["digest"]) == 64
    assert model["details"]["parameter_size"].endswith("M")


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("name", "status"),
    [
        *(("/etc/passwd", 404), ("../x.gguf", 404), ("nobody/nothing", 404), ("word", 404)),
        *((f"{'a' * 300}/b", 404), (f"hf.co/{'a/' * 50_000}", 404), ("", 400)),
    ],
)
async def test_a_pull_names_no_file_and_says_where_there_is_nothing(world, name, status):
    answer = await world.client.post(PULL, json={"model": name})
    assert answer.status_code == status or lines(answer.text)[-1].keys() == {"error"}
    assert "error" in lines(answer.text)[-1]


@pytest.mark.usefixtures("pair")
async def test_a_file_of_this_machine_is_no_name_even_where_it_looks_like_one(
    world, tmp_path, monkeypatch
):
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "repo").write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)
    for path in (PULL, "/api/show"):
        answer = await world.client.post(path, json={"model": "user/repo"})
        assert answer.status_code == 404


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize("settings", [{"pulls": False}, {"switch": False}])
async def test_a_server_that_may_not_downloads_nothing(make_world, settings):
    world = await make_world(**settings)
    answer = await world.client.post(PULL, json={"model": "tiny"})
    assert answer.status_code == 403
    assert "downloads no models" in answer.json()["error"]


@pytest.mark.usefixtures("pair")
async def test_models_are_removed_only_where_that_is_allowed_and_none_is_loaded(make_world):
    world = await make_world(deletes=True)
    await world.client.post(PULL, json={"model": "tiny", "stream": False})
    cautious = await make_world()
    refused = await cautious.client.request("DELETE", DELETE, json={"model": "tiny"})
    assert refused.status_code == 403
    assert "--allow-delete" in refused.json()["error"]
    await world.client.post("/api/generate", json={"model": "tiny"})
    assert (await world.client.request("DELETE", DELETE, json={"model": "tiny"})).status_code == 409
    await world.client.post("/api/generate", json={"model": "fake"})
    assert (await world.client.request("DELETE", DELETE, json={"model": "tiny"})).status_code == 200
    assert await names(world) == ["fake:latest"]
    again = await world.client.request("DELETE", DELETE, json={"model": "tiny"})
    assert again.status_code == 404


async def removal(world, name):
    return (await world.client.request("DELETE", DELETE, json={"model": name})).status_code


def here():
    """Whether both files of the pair are in the cache."""
    return all(hf_cache.find_file(*one) for one in ((TARGET, TARGET_FILE), (DRAFT, DRAFT_FILE)))


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize(
    ("loaded", "removed"),
    [
        *((f"{TARGET}:Q4_K_M", f"{TARGET}{tag}") for tag in (":q4_k_m", "", "@main:Q4_K_M")),
        (f"{TARGET}:Q4_K_M", f"hf.co/{TARGET}:Q4_K_M"),
        (f"{TARGET}:Q4_K_M", "tiny"),
        *(("tiny", name) for name in (f"{TARGET}:Q4_K_M", f"{DRAFT}:Q8_0", DRAFT)),
    ],
)
async def test_no_name_removes_a_file_of_a_loaded_model(make_world, loaded, removed):
    world = await make_world(deletes=True)
    await world.client.post(PULL, json={"model": "tiny", "stream": False})
    await world.client.post("/api/generate", json={"model": loaded})
    assert await removal(world, removed) == 409
    assert here()
    await world.client.post("/api/generate", json={"model": "fake"})
    assert await removal(world, removed) == 200


@pytest.mark.usefixtures("pair")
async def test_the_model_that_is_being_loaded_is_not_removed(make_world):
    world = await make_world(deletes=True)
    await world.client.post(PULL, json={"model": "tiny", "stream": False})
    world.loading = asyncio.Event()
    asked = asyncio.create_task(world.client.post("/api/generate", json={"model": "tiny"}))
    await until_so(lambda: world.slots.loading)
    status = await removal(world, "tiny")
    world.loading.set()
    assert (await asked).status_code == 200
    assert status == 409
    assert here()


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize("kind", ["embedding", "reranker"])
async def test_the_models_of_texts_are_not_removed(make_world, kind):
    world = await make_world(deletes=True)
    await world.client.post(PULL, json={"model": "tiny", "stream": False})
    embeddings = Embeddings(**{kind: EmbeddingProcess(f"{TARGET}:Q4_K_M")})
    service = Service(world.settings, world.slots, world, embeddings)
    for name in (f"{TARGET}:Q4_K_M", "tiny"):
        with pytest.raises(ApiError, match="in use"):
            await service.downloads.delete(name)
    assert here()


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize("backend", ["cpu", "cuda"])
async def test_the_models_of_texts_are_among_those_that_run_while_they_are_loaded(
    make_world, backend
):
    world = await make_world()
    await world.client.post(PULL, json={"model": "tiny", "stream": False})
    name = f"{TARGET}:Q4_K_M"
    embedding, reranker = EmbeddingProcess(name), EmbeddingProcess("not-loaded")
    texts = Embeddings(embedding, reranker)
    world.service.embeddings = texts
    await world.slots.load()
    running = (await world.client.get("/api/ps")).json()["models"]
    assert [one["name"] for one in running] == ["fake:latest"]
    embedding.info = EmbeddingInfo(name, 8, 256, ranks=False, backend=backend)
    found = (await world.client.get("/api/ps")).json()["models"][-1]
    size = hf_cache.find_file(TARGET, TARGET_FILE).stat().st_size
    assert (found["name"], found["size"]) == (name, size)
    assert found["size_vram"] == (0 if backend == "cpu" else size)
    assert found["context_length"] == 256
    assert found["expires_at"].startswith("23")  # as long as the server runs


@pytest.mark.usefixtures("pair")
async def test_what_was_named_by_a_link_to_the_cache_is_not_removed(make_world, tmp_path):
    world = await make_world(deletes=True)
    await world.client.post(PULL, json={"model": "tiny", "stream": False})
    link = tmp_path / "link.gguf"
    link.symlink_to(hf_cache.find_file(TARGET, TARGET_FILE))
    world.slot.options = Options(model=str(link))
    await world.slots.load()
    assert await removal(world, "tiny") == 409
    assert here()


@pytest.mark.usefixtures("pair")
async def test_a_model_of_a_damaged_repository_is_removed(make_world):
    """A branch whose commit is not here: the answer was 200, and everything was still there."""
    world = await make_world(deletes=True)
    await world.client.post(PULL, json={"model": "tiny", "stream": False})
    file = hf_cache.find_file(TARGET, TARGET_FILE)
    hf_cache.write_ref(TARGET, "main", "0" * 40)
    blob = file.resolve()
    assert (await world.client.request("DELETE", DELETE, json={"model": "tiny"})).status_code == 200
    assert not blob.exists()
    assert hf_cache.find_file(TARGET, TARGET_FILE) is None


@pytest.mark.usefixtures("pair")
async def test_a_client_that_leaves_stops_its_download(world, hub):
    downloads = world.service.downloads
    pulling = downloads.pull("tiny")
    assert await anext(pulling) == {"status": "pulling manifest"}
    await pulling.aclose()
    assert downloads._running == 0
    await until_so(lambda: not asking())
    asked = len(hub.log)
    await asyncio.sleep(0)
    assert len(hub.log) == asked


def asking():
    return [thread for thread in threading.enumerate() if thread.name == "asking the Hub"]


@pytest.mark.usefixtures("hf_home")
async def test_a_client_that_leaves_frees_its_place_though_the_hub_is_silent(world, monkeypatch):
    monkeypatch.setattr("localspec.models.hub.client.READ_TIMEOUT", 600.0)
    monkeypatch.setenv("NO_PROXY", "*")
    downloads = world.service.downloads
    with OddServer() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        for number in range(1, AT_ONCE + 2):
            pulling = downloads.pull(f"org/{'A' * number}-GGUF")
            assert await anext(pulling) == {"status": "pulling manifest"}
            await until_so(lambda: hub.asked == number)  # noqa: B023
            leaving = asyncio.create_task(pulling.aclose())
            await until_so(leaving.done)
            assert downloads._running == 0
    await until_so(lambda: not asking())


@pytest.mark.usefixtures("pair")
async def test_a_download_that_ends_with_a_defect_makes_room_for_the_next(world, monkeypatch):
    from localspec.serve.backend.downloads import _Pull

    def fails(_):
        raise RuntimeError("a defect")

    monkeypatch.setattr(_Pull, "run", fails)
    downloads = world.service.downloads
    for _ in range(3):
        with pytest.raises(RuntimeError, match="a defect"):
            async with asyncio.timeout(60):
                await anext(downloads.pull("tiny"))
    assert downloads._running == 0


async def test_a_model_that_was_named_by_its_file_is_listed_without_its_folder(world, files):
    world.slot.options = Options(model=str(files.target))
    listed = (await world.client.get(TAGS)).json()["models"][0]
    assert listed["name"] == "target:latest"
    assert str(files.folder) not in json.dumps(listed)
