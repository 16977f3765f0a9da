"""Work of the processor while a device computes a pass: after llama_decode, before the rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import Files

from localspec.core.target import Work
from localspec.core.values import Logits, no_draft
from localspec.llama.context import Context
from localspec.llama.library import c_api
from localspec.llama.model import Model
from localspec.llama.target import LlamaTarget

PENDING = [Work(0, 5, no_draft("test"))]


@pytest.fixture
def context(files: Files) -> Iterator[Context]:
    model = Model(files.target)
    made = Context(model, n_ctx=256, n_batch=64, threads=1)
    yield made
    made.close()
    model.close()


@pytest.fixture
def target(context: Context) -> LlamaTarget:
    made = LlamaTarget(context)
    made.read(0, [3, 4])
    return made


def scored(target: LlamaTarget) -> Logits:
    """The rows of a pass over the pending token, which is kept."""
    (scores,) = target.score(PENDING)
    target.keep(0, ())
    return scores.logits


@pytest.fixture
def calls(context: Context, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of llama.cpp. Rows are waited for longer than they are submitted, on a device."""
    made: list[str] = []
    decode, get_logits = c_api.llama_decode, c_api.llama_get_logits

    def submit(*arguments: Any) -> Any:
        made.append("submit")
        return decode(*arguments)

    def wait(*arguments: Any) -> Any:
        made.append("wait")
        time.sleep(2 * context._submitting)
        return get_logits(*arguments)

    monkeypatch.setattr(c_api, "llama_decode", submit)
    monkeypatch.setattr(c_api, "llama_get_logits", wait)
    monkeypatch.setattr(Context, "on_device", True)
    return made


def test_a_device_computes_while_the_work_is_done(target: LlamaTarget, calls: list[str]) -> None:
    scored(target)
    target.meanwhile(lambda: calls.append("work"))
    calls.clear()
    scored(target)
    assert calls == ["submit", "work", "wait"]
    calls.clear()
    scored(target)
    assert calls == ["submit", "wait"]
    target.audit(0)


def test_rows_are_those_of_passes_without_work(target: LlamaTarget, calls: list[str]) -> None:
    rows = []
    for has_work in (False, True):
        target.truncate(0, 2)
        for _ in range(3):
            if has_work:
                target.meanwhile(lambda: calls.append("work"))
            last = scored(target)
        rows.append(last.copy())
    assert np.array_equal(*rows)
    assert calls.count("work") == 3


def test_a_pass_without_rows_does_not_put_the_work_off(
    target: LlamaTarget, calls: list[str]
) -> None:
    scored(target)
    target.meanwhile(lambda: calls.append("work"))
    calls.clear()
    target.read(0, [6, 7])
    assert calls == ["submit", "work"]


def test_the_processor_does_the_work_before_its_pass(target: LlamaTarget) -> None:
    scored(target)
    done = []
    target.meanwhile(lambda: done.append("now"))
    assert done == ["now"]


def test_a_device_that_answers_when_it_has_computed_is_a_processor(
    target: LlamaTarget, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some layers of such a pass are computed by the processor, or the backend waits by itself."""
    monkeypatch.setattr(Context, "on_device", True)
    decode = c_api.llama_decode

    def slow(*arguments: Any) -> Any:
        time.sleep(0.3)
        return decode(*arguments)

    monkeypatch.setattr(c_api, "llama_decode", slow)
    scored(target)
    assert not context.overlaps
