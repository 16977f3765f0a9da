"""One thread for large bodies: a caller waits for the step that runs, and one of each other."""

from __future__ import annotations

import asyncio
import threading

import pytest
from waiting import PATIENCE, until_so

from localspec.serve.http import bodies
from localspec.serve.http.bodies import LARGE
from localspec.serve.http.json_body import parse
from localspec.serve.http.settings import ApiKeys
from localspec.serve.http.turns import Turns


@pytest.fixture
def held():
    """A thread that has begun something of a caller called first, and an event to end it."""
    turns, begun, go_on = Turns("turns of a test"), threading.Event(), threading.Event()

    def step():
        begun.set()
        assert go_on.wait(PATIENCE)

    turns.put("first", step)
    assert begun.wait(PATIENCE)
    yield turns, go_on
    go_on.set()


def test_callers_have_their_turn_one_after_the_other(held):
    turns, go_on = held
    done = []
    steps = [turns.put("a", lambda i=i: done.append(f"a{i}")) for i in range(4)]
    steps += [turns.put("b", lambda i=i: done.append(f"b{i}")) for i in range(2)]
    steps.append(turns.put("a", lambda: done.append("body that was read"), first=True))
    go_on.set()
    for step in steps:
        step.result(PATIENCE)
    assert done == ["body that was read", "b0", "a0", "b1", "a1", "a2", "a3"]


def test_an_error_is_raised_to_who_waits_and_who_has_left_costs_nothing(held):
    turns, go_on = held
    done = []
    left = turns.put("a", lambda: done.append("left"))
    failing = turns.put("a", lambda: 1 // 0)
    last = turns.put("a", lambda: "done")
    assert left.cancel()
    go_on.set()
    with pytest.raises(ZeroDivisionError):
        failing.result(PATIENCE)
    assert last.result(PATIENCE) == "done"
    assert done == []


async def test_a_large_body_does_not_wait_for_all_of_another_client(make_world, monkeypatch):
    keys = {name: f"{name}-key-00000001" for name in ("alice", "bob")}
    world = await make_world(keys=ApiKeys(tuple(keys.values())))
    begun, go_on, read = threading.Event(), threading.Event(), []

    def noted(raw):
        begun.set()
        assert go_on.wait(PATIENCE)
        given = parse(raw)
        read.append(given["user"][:5])
        return given

    class Counted(Turns):
        steps = 0

        def put(self, *asked, **how):
            self.steps += 1
            return super().put(*asked, **how)

    turns = Counted("turns of a test")
    monkeypatch.setattr(bodies, "parse", noted)
    monkeypatch.setattr(bodies, "_TURNS", turns)

    async def ask(name):
        body = {"prompt": name, "user": name + " " * LARGE, "max_tokens": 2}
        headers = {"Authorization": f"Bearer {keys[name]}"}
        return await world.client.post("/v1/completions", json=body, headers=headers)

    asked = [asyncio.create_task(ask("alice"))]
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    asked += [asyncio.create_task(ask("alice")) for _ in range(4)]
    asked.append(asyncio.create_task(ask("bob")))
    await until_so(lambda: turns.steps == 6)
    go_on.set()
    for answer in asyncio.as_completed(asked):
        assert (await answer).status_code == 200
    assert read.index("bob  ") <= 2
