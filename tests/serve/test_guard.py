"""Who may use the server, and what strangers learn."""

import collections
import re

import pytest

from localspec.core.errors import UsageError
from localspec.serve.app import all_routes, hint
from localspec.serve.http.settings import ApiKeys

KEY, OTHER = "correct-horse-battery", "another-key-of-ours"
CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("localhost", 200),
        ("LOCALHOST:9", 200),
        ("[::1]:8080", 200),
        ("192.168.1.7", 200),
        ("evil.example", 403),
        ("evil.example:8080", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("evil.example@127.0.0.1.x", 403),
        ("[", 403),
        ("localhost.", 200),
        ("127.0.0.1:", 200),
        ("evil.com\\@127.0.0.1", 403),
        ("user@localhost", 403),
        ("[::1]evil.com", 403),
        ("127.0.0.1%.evil.com", 403),
        ("[fe80::1%.evil.com]", 403),
        ("127.0.0.1:evil.com", 403),
        ("127.0.0.1:99999", 403),
        ("localhost/evil.com", 403),
        ("localhost evil.com", 403),
        ("[localhost]", 403),
        ("::1", 403),
        ("", 400),
    ],
)
async def test_a_host_header_must_name_this_machine(world, host, status):
    answer = await world.client.get("/v1/models", headers={"host": host})
    assert answer.status_code == status


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/livez", "/readyz"])
async def test_probes_need_neither_a_name_of_ours_nor_a_key(make_world, path):
    world = await make_world(keys=ApiKeys((KEY,)))
    await world.slots.load()
    answer = await world.client.get(path, headers={"host": "service.namespace.svc:8080"})
    assert answer.json() == {"status": "ok"}
    page = await world.client.get(path, headers={"origin": "https://evil.example"})
    assert page.status_code == 403


async def test_a_key_may_come_in_the_header_of_azure(make_world):
    world = await make_world(keys=ApiKeys((KEY,)))
    for key, status in ((KEY, 200), (OTHER, 401)):
        assert (
            await world.client.get("/v1/models", headers={"api-key": key})
        ).status_code == status


@pytest.mark.parametrize(
    ("given", "echoed"),
    [("trace-1/a", True), ("", False), ("a b", False), ("x" * 129, False), ("\xe9", False)],
)
@pytest.mark.parametrize("path", ["/v1/models", "/nothing", "/v1/chat/completions"])
async def test_each_answer_has_the_id_of_its_request(world, given, echoed, path):
    answer = await world.client.get(path, headers={b"x-request-id": given.encode("latin-1")})
    name = answer.headers["x-request-id"]
    assert (name == given) == echoed
    assert echoed or re.fullmatch("req_[0-9a-f]{24}", name)


async def test_ids_of_requests_are_those_of_anthropic_at_its_path(world):
    for headers in ({}, {"host": "evil.example"}):
        answer = await world.client.post("/v1/messages", json={}, headers=headers)
        assert answer.headers["request-id"] == answer.headers["x-request-id"]


async def test_a_star_allows_pages_of_any_origin(make_world):
    world = await make_world(origins=("*",))
    for origin in ("https://page.example", "null"):
        answer = await world.client.get("/v1/models", headers={"origin": origin})
        assert answer.headers["access-control-allow-origin"] == origin


async def test_a_page_that_may_read_answers_may_read_the_id_too(make_world):
    world = await make_world(origins=("https://page.example",))
    answer = await world.client.get("/v1/models", headers={"origin": "https://page.example"})
    assert "x-request-id" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", CHAT, "POST"),
        ("DELETE", "/v1/models", "GET, HEAD"),
        ("POST", "/health", "GET, HEAD"),
        ("PUT", "/v1/messages", "POST"),
    ],
)
async def test_a_method_that_is_not_possible_is_answered_with_those_that_are(
    world, method, path, allowed
):
    answer = await world.client.request(method, path)
    assert answer.status_code == 405
    assert sorted(answer.headers["allow"].split(", ")) == allowed.split(", ")


async def test_every_path_names_all_methods_that_are_possible_there(world):
    possible = collections.defaultdict(set)
    for route in all_routes(world.service):
        possible[route.path] |= route.methods
    assert len(possible["/lora-adapters"]) == 3
    for path, methods in possible.items():
        answer = await world.client.request("PATCH", path.replace("{name:path}", "m"))
        assert (path, answer.status_code) == (path, 405)
        assert (path, answer.headers["allow"]) == (path, ", ".join(sorted(methods)))


async def test_further_names_can_be_allowed(make_world):
    world = await make_world(hosts=("box.example",))
    for host, status in (("box.example:80", 200), ("other.example", 403)):
        assert (await world.client.get("/v1/models", headers={"host": host})).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8080", 200),
        ("http://127.0.0.1:3000", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
async def test_web_pages_of_other_origins_are_refused(world, origin, status):
    answer = await world.client.post(CHAT, json=HI, headers={"origin": origin})
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers
    assert bool(world.requests) == (status == 200)


async def test_an_allowed_origin_may_read_answers_and_errors(make_world):
    world = await make_world(origins=("https://page.example",))
    origin = {"origin": "https://page.example"}
    asked = await world.client.options(
        CHAT,
        headers=origin
        | {
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization",
        },
    )
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-headers"] == "authorization"
    for body in (HI, {}):
        answer = await world.client.post(CHAT, json=body, headers=origin)
        assert answer.headers["access-control-allow-origin"] == "https://page.example"
        assert "access-control-allow-credentials" not in answer.headers
    other = await world.client.options(
        CHAT, headers={"origin": "https://b", "access-control-request-method": "POST"}
    )
    assert other.status_code == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": f"Bearer {KEY}"}, 200),
        ({"authorization": f"bearer  {KEY} "}, 200),
        ({"x-api-key": OTHER}, 200),
        ({"authorization": f"Bearer {KEY}x"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": f"Basic {KEY}"}, 401),
        ({"x-api-key": KEY[:-1]}, 401),
        ({"authorization": "Bearer \u00fc".encode()}, 401),
    ],
)
async def test_only_holders_of_a_key_are_served(make_world, headers, status):
    world = await make_world(keys=ApiKeys((KEY, OTHER)))
    for path in ("/v1/models", "/metrics", "/props"):
        assert (await world.client.get(path, headers=headers)).status_code == status
    answer = await world.client.post(CHAT, json=HI, headers=headers)
    assert answer.status_code == status
    assert (await world.client.get("/health")).status_code in {200, 503}


async def test_no_key_reaches_a_log_or_an_answer(make_world):
    world = await make_world(keys=ApiKeys((KEY,)))
    texts = [repr(world.settings), repr(world.settings.keys)]
    for key in (KEY, "wrong-key-0123456789"):
        for body in (HI, {"messages": 5}, HI | {"model": "x"}):
            answer = await world.client.post(
                CHAT, json=body, headers={"authorization": f"Bearer {key}"}
            )
            texts.append(answer.text)
    texts += world.lines + world.notices
    assert any("key 1" in line for line in world.lines)
    for text in texts:
        assert KEY not in text
        assert "wrong-key" not in text


async def test_each_key_has_a_cache_of_its_own(make_world):
    world = await make_world(keys=ApiKeys((KEY, OTHER)))
    for key, salt in ((KEY, None), (KEY, None), (OTHER, None), (KEY, "a")):
        body = HI | ({"cache_salt": salt} if salt else {})
        await world.client.post(CHAT, json=body, headers={"x-api-key": key})
    owners = [request.owner for request in world.requests]
    assert owners[0] == owners[1] != ""
    assert len(set(owners)) == 3
    assert all(KEY not in owner for owner in owners)
    assert all(request.draft_memory for request in world.requests)


async def test_a_request_may_leave_no_trace_in_drafts(make_world):
    world = await make_world()
    for on in (True, False):
        await world.client.post(CHAT, json=HI | {"localspec": {"draft_memory": on}})
    assert [request.draft_memory for request in world.requests] == [True, False]


@pytest.mark.parametrize(
    "key", ["", "short", "with space here", "with\nnewline-in-it", "schl\u00fcssel-lang"]
)
def test_a_key_that_is_guessed_or_cannot_be_sent_is_refused(key):
    with pytest.raises(UsageError, match="API key"):
        ApiKeys((key,))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", CHAT, 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/health", 405),
        ("GET", "/v1/models/nothing", 404),
        ("GET", "/v1/models/../../etc/passwd", 404),
        ("GET", "/%2e%2e/%00", 404),
    ],
)
async def test_where_nothing_is_the_error_has_openais_shape(world, method, path, status):
    answer = await world.client.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


async def test_a_fault_of_ours_is_a_plain_500(world, monkeypatch):
    async def broken(*_, **__):
        raise KeyError("/home/me/secret")

    monkeypatch.setattr(world.service, "answer", broken)
    answer = await world.client.post(CHAT, json=HI)
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert isinstance(world.defects[0], KeyError)


def test_a_path_that_clients_have_wrong_says_which_is_right():
    assert "/v1/completions" in hint("/completion")
    assert "before /v1" in hint("/v1/v1/models")
    assert not hint("/elsewhere")
