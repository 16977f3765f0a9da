"""LoRA adapters of a server: by number, by name, by request, and loaded from allowed folders."""

import asyncio
import json
import re
from types import SimpleNamespace

import pytest
from fake_serving import FakeEngine
from waiting import turn, until_so

from localspec.core.adapter_list import AdapterUse, read, read_vectors
from localspec.core.errors import EngineError, ModelFileError, UsageError
from localspec.serve.backend.embeddings import Embeddings
from localspec.serve.backend.metrics import Metrics
from localspec.serve.backend.model_names import ModelNames
from localspec.serve.backend.records import ReplyRecord, RequestRecord
from localspec.serve.http.body_budget import Caller
from localspec.serve.routes import ollama_models

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6}
STYLE, OTHER = "/adapters/style.gguf", "/adapters/other.gguf"
LORA = read([f"{STYLE}:0.5", f"{OTHER}:0"])
CALM = read_vectors("/adapters/calm.gguf")


async def post(world, path, body):
    answer = await world.client.post(path, json=body)
    return answer.status_code, answer.json() if answer.text.startswith(("{", "[")) else answer.text


async def chat(world, **more):
    return await post(world, "/v1/chat/completions", CHAT | more)


async def test_the_adapters_are_listed_as_llama_server_has_them(make_world):
    world = await make_world(lora=LORA)
    listed = (await world.client.get("/lora-adapters")).json()
    assert [(one["id"], one["path"], one["scale"]) for one in listed] == [
        (0, "style.gguf", 0.5),
        (1, "other.gguf", 0.0),
    ]
    assert "/adapters/" not in json.dumps(listed)


async def test_a_request_names_adapters_by_number(make_world):
    world = await make_world(lora=LORA)
    assert (await chat(world))[0] == 200
    assert (await chat(world, lora=[]))[0] == 200  # as llama-server: the usual ones
    assert [request.adapters for request in world.requests] == [None, None]
    assert (await chat(world, lora=[{"id": 1, "scale": 0.25}]))[0] == 200
    assert world.requests[-1].adapters == (AdapterUse(OTHER, 0.25),)


@pytest.mark.parametrize(
    ("lora", "said"),
    [
        ([{"id": 2, "scale": 1}], "there is no adapter 2; ids: 0, 1"),
        ([{"id": 0, "scale": 1}, {"id": 0, "scale": 2}], "the adapter 0 is named twice"),
        ([{"id": -1, "scale": 1}], "lora[0].id must be at least 0"),
        ([{"id": 0, "scale": 101}], "lora[0].scale must be between -100 and 100"),
        ([{"id": 0, "scale": "1"}], "lora[0].scale must be between -100 and 100"),
        ([{"id": 0}], "lora[0].scale is missing"),
        ([{"scale": 1}], "lora[0].id is missing"),
        ([1], "lora[0] must be an object"),
        ({"id": 0, "scale": 1}, "lora must be a list"),
        ([{"id": 0, "scale": 1}] * 17, "lora has 17 items; 16 is the most"),
    ],
)
async def test_what_is_no_adapter_is_refused_by_name(make_world, lora, said):
    world = await make_world(lora=LORA)
    for status, body in (await chat(world, lora=lora), await post(world, "/lora-adapters", lora)):
        assert status == 400
        if isinstance(lora, list):
            assert said in body["error"]["message"]
    assert not world.requests


async def test_a_scale_that_is_no_number_is_no_json(make_world):
    world = await make_world(lora=LORA)
    raw = json.dumps(CHAT | {"lora": [{"id": 0, "scale": float("nan")}]})
    answer = await world.client.post("/v1/chat/completions", content=raw)
    assert answer.status_code == 400
    assert "not valid JSON" in answer.json()["error"]["message"]


async def test_the_usual_scales_are_set_for_requests_that_name_none(make_world):
    world = await make_world(lora=LORA)
    assert await post(world, "/lora-adapters", [{"id": 1, "scale": 2}]) == (200, {"success": True})
    scales = [one["scale"] for one in (await world.client.get("/lora-adapters")).json()]
    assert scales == [0.0, 2.0]
    await chat(world)
    assert world.requests[-1].adapters == (AdapterUse(OTHER, 2.0),)
    await chat(world, lora=[{"id": 0, "scale": 1}])
    assert world.requests[-1].adapters == (AdapterUse(STYLE, 1.0),)
    await post(world, "/lora-adapters", [])
    await chat(world)
    assert world.requests[-1].adapters == ()
    status, body = await post(world, "/lora-adapters", {"id": 0, "scale": 1})
    assert (status, body["error"]["message"][:26]) == (400, "the body must be a list, s")


async def test_the_usual_scales_are_of_the_model_that_each_adapter_is_for(make_world, monkeypatch):
    monkeypatch.setattr("localspec.serve.backend.model_names._downloaded", lambda: (("more", ""),))
    world = await make_world(lora=LORA)
    await post(world, "/lora-adapters", [{"id": 0, "scale": 2}])
    for model in ("more", None, "fake", None):  # None: the one asked for before
        assert (await chat(world, model=model))[0] == 200
    uses = [request.adapters for request in world.requests]
    assert uses == [(), (), (AdapterUse(STYLE, 2.0),), (AdapterUse(STYLE, 2.0),)]


async def test_an_adapter_is_a_model_by_its_name(make_world):
    world = await make_world(lora=LORA)
    listed = (await world.client.get("/v1/models")).json()["data"]
    adapters = [one for one in listed if "parent" in one]
    assert [(one["id"], one["parent"]) for one in adapters] == [
        ("style", "fake"),
        ("other", "fake"),
    ]
    for name, use in (("style", AdapterUse(STYLE, 0.5)), ("other", AdapterUse(OTHER, 1.0))):
        status, answer = await chat(world, model=name)
        assert (status, answer["model"]) == (200, name)
        assert world.requests[-1].adapters == (use,)
    assert (await chat(world, model="fake"))[1]["model"] == "fake"
    assert world.requests[-1].adapters is None
    status, answer = await chat(world, model="style", lora=[{"id": 1, "scale": 1}])
    assert status == 400
    assert "leave out lora" in answer["error"]["message"]
    assert (await chat(world, model="nothing"))[0] == 404


async def test_the_name_of_the_model_is_never_an_adapter(make_world):
    world = await make_world(lora=read(["/a/fake.gguf", "/a/x.gguf", "/b/x.gguf"]))
    names = [one["id"] for one in (await world.client.get("/v1/models")).json()["data"]]
    assert names[0] == "fake"
    assert names.count("fake") == 1
    assert names[-2:] == ["x", "x-2"]
    await chat(world, model="fake")
    assert world.requests[-1].adapters is None


@pytest.mark.parametrize(("mmproj", "others"), [("/a/sees.gguf", None), ("none", "none")])
async def test_other_models_are_loaded_without_what_fits_the_first(
    make_world, monkeypatch, mmproj, others
):
    names = "localspec.serve.backend.model_names"
    monkeypatch.setattr(f"{names}._downloaded", lambda: (("catalogued", ""),))
    monkeypatch.setattr(f"{names}.downloaded_from_hub", lambda name: name)
    world = await make_world(lora=LORA, control_vector=CALM, mmproj=mmproj)
    for model in ("catalogued", "of/the-hub", "fake"):
        assert (await chat(world, model=model))[0] == 200
        options = world.engines[-1].options
        had = (options.model, options.lora, options.control_vector, options.mmproj)
        if model == "fake":
            assert had == (model, LORA, CALM, mmproj)
        else:
            assert had == (model, "", "", others)


@pytest.fixture
async def two(make_world, monkeypatch):
    """A server of the models "fake", which has adapters, and "more"."""
    monkeypatch.setattr("localspec.serve.backend.model_names._downloaded", lambda: (("more", ""),))
    world = await make_world(lora=LORA)
    assert (await chat(world))[0] == 200
    return world


async def waits(world, n, asked):
    """A request that has come as the n-th that runs or waits."""
    task = asyncio.create_task(asked)
    await until_so(lambda: world.service.queue.size == n, pause=turn)
    return task


async def test_a_request_that_names_nothing_has_the_usual_adapters_of_the_model_that_answers(two):
    """It had those of the model that was present when it came, and was refused by another one."""
    await post(two, "/lora-adapters", [{"id": 0, "scale": 2}])
    two.hold, two.hold_at = asyncio.Event(), 0
    asked = [await waits(two, 1, chat(two, model="fake"))]
    asked.append(await waits(two, 2, chat(two, model="more")))
    asked.append(await waits(two, 3, chat(two)))
    two.hold.set()
    answers = [await one for one in asked]
    assert [(status, answer["model"]) for status, answer in answers] == [
        *((200, name) for name in ("fake", "more", "more")),
    ]
    assert [request.adapters for request in two.requests[1:]] == [(AdapterUse(STYLE, 2.0),), (), ()]


async def test_it_has_those_of_a_model_that_comes_back_where_another_one_cannot_be_loaded(two):
    await post(two, "/lora-adapters", [{"id": 0, "scale": 2}])
    two.loading = asyncio.Event()
    failing = asyncio.create_task(chat(two, model="more"))
    await until_so(lambda: two.slot.exchanging, pause=turn)
    asked = await waits(two, 2, chat(two))
    two.load_error = ModelFileError("broken")
    two.loading.set()
    assert (await failing)[0] == 503
    two.load_error = None
    assert (await asked)[0] == 200
    assert two.requests[-1].adapters == (AdapterUse(STYLE, 2.0),)


async def test_the_number_of_an_adapter_says_which_model_is_wanted(two):
    assert (await chat(two, model="more"))[0] == 200
    status, answer = await chat(two, lora=[{"id": 0, "scale": 1}])
    assert (status, answer["model"]) == (200, "fake")
    assert two.requests[-1].adapters == (AdapterUse(STYLE, 1.0),)
    status, answer = await chat(two, model="more", lora=[{"id": 0, "scale": 1}])
    assert status == 400
    assert "the adapter 0 is for fake, not for more" in answer["error"]["message"]


async def test_a_place_is_examined_by_the_model_of_its_reply_with_its_adapters(two, monkeypatch):
    seen = []

    async def examine(engine, request, _tokens, _rival):
        seen.append((engine.options.model, request.adapters))
        raise UsageError("seen")

    monkeypatch.setattr(FakeEngine, "examine", examine, raising=False)
    await post(two, "/lora-adapters", [{"id": 0, "scale": 2}])
    assert (await chat(two, model="more"))[0] == 200
    place = {"request": {"prompt": "a", "seed": 1}, "tokens": [1]}
    for model in (None, "fake", "nothing", "style"):  # None: from an older chat
        named = {} if model is None else {"model": model}
        status, _ = await post(two, "/localspec/examine", place | named)
        assert status == (404 if model == "nothing" else 400)
    assert seen == [
        ("more", ()),
        ("fake", (AdapterUse(STYLE, 2.0),)),
        ("fake", (AdapterUse(STYLE, 0.5),)),
    ]
    assert (await post(two, "/localspec/examine", place | {"model": 1}))[0] == 400


async def test_own_requests_name_adapters_by_number_too_and_never_files(make_world):
    world = await make_world(lora=LORA)
    own = {"prompt": "a", "max_tokens": 2, "adapters": [{"path": STYLE, "scale": 1.0}]}
    assert (await post(world, "/localspec/reply", own))[0] == 400
    own["adapters"][0]["path"] = "1"
    assert (await world.client.post("/localspec/reply", json=own)).status_code == 200
    assert world.requests[-1].adapters == (AdapterUse(OTHER, 1.0),)


LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"


async def test_nothing_is_loaded_for_requests_unless_a_folder_is_allowed(make_world, tmp_path):
    world = await make_world()
    file = tmp_path / "a.gguf"
    file.write_bytes(b"GGUF")
    status, body = await post(world, LOAD, {"lora_name": "a", "lora_path": str(file)})
    assert status == 403
    assert "--lora-folder" in body["error"]["message"]


async def test_only_files_of_the_folders_are_opened(make_world, tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    secret = outside / "secret.gguf"
    secret.write_bytes(b"secret")
    (inside / "link.gguf").symlink_to(secret)
    (inside / "linked").symlink_to(outside)
    (inside / "folder").mkdir()
    (inside / "text.gguf").write_text("no adapter")
    world = await make_world(lora_folders=(inside,))
    for path in (
        *(str(secret), "../out/secret.gguf", "link.gguf", "linked/secret.gguf", "/etc/passwd"),
        *(f"{inside}/../out/secret.gguf", "..", "/", "../out/missing.gguf"),
    ):
        status, body = await post(world, LOAD, {"lora_name": "a", "lora_path": path})
        assert (status, body["error"]["param"]) == (403, "lora_path"), path
        assert str(tmp_path) not in body["error"]["message"]
    for path, wanted, said in (
        ("missing.gguf", 404, "there is no such file"),
        ("folder", 400, "name a GGUF file"),
        ("a\0b", 400, "no path"),
        ("a" * 300, 404, "there is no such file"),
        ("text.gguf", 400, "text.gguf"),
    ):
        status, body = await post(world, LOAD, {"lora_name": "a", "lora_path": path})
        assert status == wanted, body
        assert said in body["error"]["message"]
    for body in ({}, {"lora_name": "", "lora_path": "a"}, {"lora_name": "a"}, {"lora_path": "a"}):
        assert (await post(world, LOAD, body))[0] == 400
    taken = {"lora_name": "fake", "lora_path": "text.gguf"}
    assert "name of a model" in (await post(world, LOAD, taken))[1]["error"]["message"]


async def test_what_is_not_there_or_belongs_to_the_start_is_not_unloaded(make_world):
    world = await make_world(lora=LORA)
    assert (await post(world, UNLOAD, {"lora_name": "nothing"}))[0] == 404
    status, body = await post(world, UNLOAD, {"lora_name": "style"})
    assert status == 400
    assert "one of --lora" in body["error"]["message"]


async def test_a_file_of_the_start_is_known_by_whichever_name(make_world, tmp_path, monkeypatch):
    """Loading it again "in place" loaded another adapter, and the one of the start stayed."""
    monkeypatch.setattr("localspec.serve.backend.adapters._require_adapter", lambda *_: None)
    folder, link = tmp_path / "folder", tmp_path / "style.gguf"
    folder.mkdir()
    (folder / "file.gguf").write_bytes(b"GGUF")
    link.symlink_to(folder / "file.gguf")
    world = await make_world(lora=read([str(link)]), lora_folders=(folder,))
    status, body = await post(world, LOAD, {"lora_name": "b", "lora_path": "file.gguf"})
    assert status == 400
    assert "loaded under another name" in body["error"]["message"]
    again = {"lora_name": "style", "lora_path": "file.gguf", "load_inplace": True}
    assert (await post(world, LOAD, again))[0] == 200
    # The engine decides by the name that it knows.
    assert world.engines[-1].adapters == {str(link): link}


async def test_an_engine_that_starts_again_loads_what_requests_had_loaded(make_world, tmp_path):
    world = await make_world(lora=LORA)
    world.slots.adapters.add(world.slots.first, "later", tmp_path / "later.gguf")
    await chat(world)
    assert world.engines[-1].adapters == {"later": tmp_path / "later.gguf"}
    world.adapter_error = UsageError("later.gguf is for qwen2 models")
    world.engines[-1].die()
    await chat(world)
    assert len(world.engines) == 2
    assert any("later.gguf is not loaded again" in notice for notice in world.notices)
    assert not world.slots.adapters.of(world.slots.first)
    world.slots.adapters.add(world.slots.first, "later", tmp_path / "later.gguf")
    world.adapter_error = EngineError("the engine stopped")
    world.engines[-1].die()
    assert (await chat(world))[0] == 503


async def test_an_adapter_is_loaded_whole_whoever_leaves_and_one_at_a_time(
    make_world, tmp_path, monkeypatch
):
    monkeypatch.setattr("localspec.serve.backend.adapters._require_adapter", lambda *_: None)
    world = await make_world(lora_folders=(tmp_path,))
    await world.slots.load()
    gate, begun = asyncio.Event(), []

    async def adapter(_, path):
        begun.append(path.name)
        await gate.wait()  # no running reply uses it any more

    monkeypatch.setattr(world.engines[0], "adapter", adapter)
    asked = []
    for name in ("a", "left", "b"):
        (tmp_path / name).write_bytes(b"GGUF")
        body = {"lora_name": name, "lora_path": name}
        asked.append(asyncio.create_task(world.client.post(LOAD, json=body)))
        await until_so(lambda: begun, pause=turn)
    await asyncio.sleep(0.05)
    for task in asked[:2]:
        task.cancel()
    await asyncio.gather(*asked[:2], return_exceptions=True)
    await asyncio.sleep(0.05)
    assert begun == ["a"]  # its client has left, and the other one waits all the same
    gate.set()
    assert (await asked[2]).status_code == 200
    assert begun == ["a", "b"]  # nothing that had not begun is kept for clients that left
    assert [one.name for one in world.service.adapters.listed()] == ["a", "b"]


@pytest.fixture
def make_loaded(make_world, tmp_path, monkeypatch):
    """Servers of several models, of which "fake" has the adapter "x", which a request loaded."""

    async def make(**settings):
        names = "localspec.serve.backend"
        monkeypatch.setattr(f"{names}.adapters._require_adapter", lambda *_: None)
        others = (("other", ""), ("third", ""))
        monkeypatch.setattr(f"{names}.model_names._downloaded", lambda: others)
        world = await make_world(lora_folders=(tmp_path,), **settings)
        (tmp_path / "x").write_bytes(b"GGUF")
        assert (await post(world, LOAD, {"lora_name": "x", "lora_path": "x"}))[0] == 200
        return world

    return make


@pytest.mark.parametrize("at", [1, 2])
async def test_a_request_that_names_an_adapter_is_never_answered_without_it(
    make_loaded, monkeypatch, at
):
    """It was looked up twice: unloaded between, its model answered alone."""
    world = await make_loaded()
    find, looks = ModelNames._other_models, []

    async def other_models(names):
        looks.append(names)
        if len(looks) == at:
            await post(world, UNLOAD, {"lora_name": "x"})
        return await find(names)

    monkeypatch.setattr(ModelNames, "_other_models", other_models)
    status, answer = await chat(world, model="x")
    assert status == 404 or answer["model"] == "x"


async def test_an_adapter_whose_name_ends_in_the_tag_of_ollama_is_called_by_it(
    make_loaded, tmp_path
):
    world = await make_loaded()
    (tmp_path / "y").write_bytes(b"GGUF")
    assert (await post(world, LOAD, {"lora_name": "y:latest", "lora_path": "y"}))[0] == 200
    status, answer = await chat(world, model="y:latest")
    assert (status, answer["model"]) == (200, "y:latest")
    assert (await chat(world, model="x:latest"))[1]["model"] == "x"
    tags = (await world.client.get("/api/tags")).json()["models"]
    assert {"x:latest", "y:latest"} <= {one["name"] for one in tags}
    body = {"lora_name": "fake:latest", "lora_path": "y"}
    assert "name of a model" in (await post(world, LOAD, body))[1]["error"]["message"]


async def test_adapters_of_the_start_may_have_that_tag_too(make_world):
    world = await make_world(lora=read(["/a/x:latest.gguf", "/a/fake:latest.gguf"]))
    names = [one["id"] for one in (await world.client.get("/v1/models")).json()["data"]]
    assert names.count("x:latest") == 1
    assert "fake:latest" not in names  # which means the model
    assert (await world.client.get("/api/tags")).status_code == 200
    assert (await chat(world, model="x:latest"))[1]["model"] == "x:latest"


async def test_models_are_listed_for_ollama_while_an_adapter_is_unloaded(make_loaded, monkeypatch):
    """Its name was looked up again after the list was made, and there was no list at all."""
    world = await make_loaded()
    find = ollama_models.facts_of

    async def facts_of(options):
        if world.service.adapters.named("x") is not None:
            await post(world, UNLOAD, {"lora_name": "x"})
        return await find(options)

    monkeypatch.setattr(ollama_models, "facts_of", facts_of)
    assert (await world.client.get("/api/tags")).status_code == 200


async def test_no_adapter_gets_the_name_of_the_embedding_model_or_the_reranker(
    make_loaded, tmp_path
):
    world = await make_loaded()
    embedding, reranker = (SimpleNamespace(model=name, info=None) for name in ("e", "r"))
    world.service.embeddings = Embeddings(embedding, reranker)
    (tmp_path / "y").write_bytes(b"GGUF")
    for name in ("e", "r", "e:latest"):
        status, body = await post(world, LOAD, {"lora_name": name, "lora_path": "y"})
        assert status == 400
        assert "name of a model" in body["error"]["message"]


async def test_an_adapter_that_cannot_be_loaded_again_is_gone(make_loaded):
    """It stayed in the lists, and requests for it were refused."""
    world = await make_loaded()
    world.adapter_error = UsageError("x is damaged")
    world.engines[-1].die()
    assert (await chat(world))[0] == 200
    assert any("the adapter x is not loaded again" in notice for notice in world.notices)
    assert (await world.client.get("/lora-adapters")).json() == []
    assert (await chat(world, model="x"))[0] == 404
    assert (await post(world, UNLOAD, {"lora_name": "x"}))[0] == 404
    world.adapter_error = None
    assert (await post(world, LOAD, {"lora_name": "x", "lora_path": "x"}))[0] == 200
    assert (await chat(world, model="x"))[0] == 200


async def adapter_rows(world):
    page = (await world.client.get("/metrics")).text
    return re.findall(r'adapter_verified_tokens_total\{adapter="(.*)"\} (\d+)', page)


async def test_acceptance_is_counted_by_each_adapter_that_requests_name(make_world):
    """Combinations had rows: clients filled them all, and one could look like a name."""
    world = await make_world(lora=LORA)
    await chat(world)
    await post(world, "/lora-adapters", [{"id": 0, "scale": 0.5}])
    await chat(world)  # it has an adapter, and names none
    assert await adapter_rows(world) == []
    for ids in ([0], [1], [0, 1]):
        await chat(world, lora=[{"id": n, "scale": 0.5} for n in ids])
    assert await adapter_rows(world) == [("other", "12"), ("style", "12")]


async def test_the_adapters_that_were_used_last_are_counted():
    metrics = Metrics()
    for n in [*range(80), 20]:
        record = RequestRecord(Caller(), "/", adapters=(str(n),))
        record.replies.append(ReplyRecord())
        metrics.finished(record)
    assert [*metrics.adapted] == [*(str(n) for n in range(16, 80) if n != 20), "20"]


async def test_an_adapter_is_unloaded_whichever_model_is_loaded(make_loaded):
    world = await make_loaded()
    assert (await chat(world, model="other"))[0] == 200
    assert (await post(world, UNLOAD, {"lora_name": "x"}))[0] == 200
    assert len(world.engines) == 2  # nothing is loaded for it
    assert (await chat(world, model="x"))[0] == 404
    assert (await chat(world, model="fake"))[0] == 200
    assert not world.engines[-1].adapters


@pytest.mark.parametrize("most", [1, 2])
async def test_engines_have_the_adapters_of_their_model_in_whichever_slot(
    make_loaded, tmp_path, most
):
    world = await make_loaded(models=most)
    for model in ("x", "other", "third", "fake", "other", "x"):
        status, answer = await chat(world, model=model)
        assert (status, answer["model"]) == (200, model)
    for engine in world.engines:
        fake = engine.options.model == "fake"
        assert [*engine.adapters.values()] == ([tmp_path / "x"] if fake else [])
    assert (await post(world, UNLOAD, {"lora_name": "x"}))[0] == 200
    assert not any(engine.adapters for engine in world.engines if engine.alive)


async def changed(world, path):
    """The adapter "x" is unloaded, or loaded again; names that the engine had and has for it."""
    before = {*world.engines[-1].adapters}
    again = {"lora_path": "x", "load_inplace": True} if path == LOAD else {}
    status, said = await post(world, path, {"lora_name": "x"} | again)
    assert status == 200, said
    return before


def used(request):
    return [use.path for use in request.adapters]


@pytest.mark.parametrize("path", [LOAD, UNLOAD])
async def test_choices_that_wait_for_the_first_one_have_its_adapter_whatever_becomes_of_it(
    make_loaded, path
):
    """An unloaded one was not loaded any more for them; one that was exchanged became another."""
    world = await make_loaded()
    world.hold, world.hold_at = asyncio.Event(), 0
    asked = asyncio.create_task(chat(world, model="x", n=3))
    await until_so(lambda: world.requests, pause=turn)
    (old,) = await changed(world, path)
    engine = world.engines[-1]
    assert old in engine.adapters
    new = await changed(world, LOAD) - {old} if path == LOAD else set()
    world.hold.set()
    status, answer = await asked
    assert status == 200, answer
    assert [used(request) for request in world.requests] == [[old]] * 3
    await until_so(lambda: old not in engine.adapters, pause=turn)
    assert len(engine.adapters) == len(new)
    assert dict(world.slots.adapters.of(world.slots.first)) == engine.adapters
    status, _ = await chat(world, model="x")
    assert status == (200 if path == LOAD else 404)


@pytest.mark.parametrize("path", [LOAD, UNLOAD])
async def test_a_request_that_waits_for_its_model_has_the_adapter_that_it_was_accepted_with(
    make_loaded, path
):
    """The model was exchanged meanwhile; all that it needs is loaded again with it."""
    world = await make_loaded()
    (old,) = world.engines[-1].adapters
    assert (await chat(world, model="other"))[0] == 200
    world.loading = asyncio.Event()
    asked = asyncio.create_task(chat(world, model="x"))
    await until_so(lambda: world.slot.exchanging, pause=turn)
    changing = asyncio.create_task(changed(world, path))
    if path == UNLOAD:
        await changing
    world.loading.set()
    status, answer = await asked
    assert status == 200, answer
    assert used(world.requests[-1]) == [old]
    await changing
    engine = world.engines[-1]
    await until_so(lambda: old not in engine.adapters, pause=turn)
    assert len(engine.adapters) == (path == LOAD)


@pytest.mark.parametrize("waits_for", ["model", "first choice"])
async def test_what_was_kept_for_clients_that_leave_is_unloaded(make_loaded, waits_for):
    world = await make_loaded()
    if waits_for == "model":
        assert (await chat(world, model="other"))[0] == 200
        world.loading = asyncio.Event()
    else:
        world.hold, world.hold_at = asyncio.Event(), 0
    known = len(world.requests)
    asked = asyncio.create_task(chat(world, model="x", n=2))
    await until_so(lambda: world.slot.exchanging or len(world.requests) > known, pause=turn)
    assert (await post(world, UNLOAD, {"lora_name": "x"}))[0] == 200
    assert world.slots.adapters.of(world.slots.first)
    asked.cancel()
    await asyncio.wait({asked})
    await until_so(lambda: not world.slots.adapters.of(world.slots.first), pause=turn)
    (world.loading or world.hold).set()
    assert (await chat(world, model="fake"))[0] == 200
    await until_so(lambda: not world.engines[-1].adapters, pause=turn)


async def test_an_adapter_that_is_kept_in_vain_for_an_engine_that_dies_is_not_loaded_again(
    make_loaded,
):
    world = await make_loaded()
    world.hold, world.hold_at = asyncio.Event(), 0
    asked = asyncio.create_task(chat(world, model="x", n=2))
    await until_so(lambda: world.requests, pause=turn)
    assert (await post(world, UNLOAD, {"lora_name": "x"}))[0] == 200
    world.engines[-1].die()
    assert (await asked)[0] == 503
    world.hold.set()
    assert (await chat(world, model="fake"))[0] == 200
    await until_so(lambda: not world.engines[-1].adapters, pause=turn)
    assert not world.slots.adapters.of(world.slots.first)
    assert not any("was not unloaded" in notice for notice in world.notices)


@pytest.mark.parametrize("choices", [1, 2])
async def test_no_model_is_loaded_to_unload_an_adapter(make_loaded, choices):
    """Another one waits for the place of its own: the unload waited behind that, and had its own
    loaded again for nothing, also in the background, where further choices keep the adapter.
    """
    world = await make_loaded()
    world.hold, world.hold_at = asyncio.Event(), 0
    asked = asyncio.create_task(chat(world, model="x", n=choices))
    await until_so(lambda: world.requests, pause=turn)
    other = asyncio.create_task(chat(world, model="other"))
    await until_so(lambda: world.service.queue.size == 2, pause=turn)
    unloading = asyncio.create_task(post(world, UNLOAD, {"lora_name": "x"}))
    await until_so(unloading.done, pause=turn)  # it waits for no reply
    assert (await unloading)[0] == 200
    world.hold.set()
    for answer in (asked, other):
        assert (await answer)[0] == 200
    await until_so(lambda: not world.service.adapters._held._unloading, pause=turn)
    assert [engine.options.model for engine in world.engines] == ["fake", "other"]
    assert not world.slots.adapters.of(world.slots.first)


async def test_what_is_unloaded_while_a_new_engine_loads_its_adapters_is_not_loaded_after_that(
    make_loaded, tmp_path, monkeypatch
):
    world = await make_loaded()
    (tmp_path / "y").write_bytes(b"GGUF")
    assert (await post(world, LOAD, {"lora_name": "y", "lora_path": "y"}))[0] == 200
    assert (await chat(world, model="other"))[0] == 200
    begun, gate, load = [], asyncio.Event(), FakeEngine.adapter

    async def adapter(engine, name, path):
        begun.append(path)
        if path == tmp_path / "x":
            await gate.wait()
        await load(engine, name, path)

    monkeypatch.setattr(FakeEngine, "adapter", adapter)
    asked = asyncio.create_task(chat(world, model="fake"))
    await until_so(lambda: begun, pause=turn)
    unloading = asyncio.create_task(post(world, UNLOAD, {"lora_name": "y"}))
    try:
        await until_so(unloading.done, pause=turn)
    finally:
        gate.set()
    assert (await asked)[0] == 200
    assert [*world.engines[-1].adapters.values()] == [tmp_path / "x"]


async def test_an_adapter_is_unloaded_with_an_engine_that_ends_meanwhile(make_loaded):
    world = await make_loaded()
    world.adapter_error = EngineError("the engine was closed")
    assert (await post(world, UNLOAD, {"lora_name": "x"}))[0] == 200
    assert (await chat(world, model="x"))[0] == 404
    assert not world.slots.adapters.of(world.slots.first)


async def test_what_cannot_be_unloaded_for_nobody_in_particular_is_told(make_loaded):
    world = await make_loaded()
    world.hold, world.hold_at = asyncio.Event(), 0
    asked = asyncio.create_task(chat(world, model="x", n=2))
    await until_so(lambda: world.requests, pause=turn)
    assert (await post(world, UNLOAD, {"lora_name": "x"}))[0] == 200
    world.adapter_error = UsageError("no")
    world.hold.set()
    assert (await asked)[0] == 200
    await until_so(lambda: "an adapter was not unloaded: no" in world.notices, pause=turn)
