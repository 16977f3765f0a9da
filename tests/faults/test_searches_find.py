"""What the searches with whole programs would call a fault: each kind of it is told from what is
right. (The programs themselves are run by the slow tests.)
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

if sys.platform != "linux":
    pytest.skip("pseudo-terminals and /proc", allow_module_level=True)

from replies import STATS

from faults import kill_interface, pipe, rpc
from faults.cases import CASES
from faults.registry import SEARCHES
from localspec.core.events import Finished, Reply
from localspec.engine import protocol
from localspec.engine.messages import FailedEvent, ReplyEvents

WHOLE = "whole 3 "


def reply(text: str) -> bytes:
    end = Finished(Reply(text, (1,), ("plain",), "stop", STATS, seed=1))  # type: ignore[arg-type]
    return protocol.encode(ReplyEvents(3, (end,)))


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (reply(WHOLE), ""),
        (reply("half 3 "), "the whole command was answered with"),
        (protocol.encode(FailedEvent(3, "EngineError", "no", 1)), "the whole command was answered"),
        (protocol.encode(FailedEvent(4, "EngineError", "no", 1)), None),  # another command's
        (b'{"type": "rep', "it answered with no event"),
        (b'{"type": "a defect"}', "it answered with no event"),
    ],
)
def test_pipe_finds_answers_that_are_not_the_reply(line: bytes, what: str | None) -> None:
    found = pipe._answer(line, 3, WHOLE)
    assert found == what if not what else what in (found or "")


LOST = "error: the worker at 127.0.0.1:1 is gone; start it again\n"


@pytest.mark.parametrize(
    ("status", "out", "err", "what"),
    [
        (0, "the reply", "", None),
        (1, "the re", LOST, None),
        (0, "the rely", "", "another text"),
        (1, "some re", LOST, "its part of the reply"),
        (1, "the re", "", "0 sentences"),
        (1, "the re", LOST + LOST, "2 sentences"),
        (139, "the re", LOST, "it ends with 139"),
        (1, "the re", "Traceback (most recent call last)", "it fails"),
    ],
)
def test_workers_finds_ends_that_are_not_as_promised(
    status: int, out: str, err: str, what: str | None
) -> None:
    found = rpc._told_wrongly(status, out, err, "the reply")
    assert found is None if what is None else what in (found or "")


class Screen:
    """A terminal on which a question and its answer were drawn at one time."""

    drawn = ((1.0, "What is it?"), (1.0, "a kingfisher it is"))

    def since(self, mark: int, until: float = 1e9) -> str:
        return "".join(text for at, text in self.drawn[mark:] if at <= until)


CASE = kill_interface.Case(1, "interface", slow=False, starting=False, seconds=1.0)


@pytest.mark.parametrize(
    ("saved", "what"),
    [
        (["What is it?", "a kingfisher it is"], None),
        (["What is it?", "a king"], "a word that was on the screen is lost: 'kingfisher'"),
        ([], "a question that was on the screen is lost"),
    ],
)
def test_interface_finds_what_was_drawn_and_is_not_saved(
    saved: list[str], what: str | None, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    with contextlib.closing(sqlite3.connect(tmp_path / "data" / "chats.db")) as base, base:
        base.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, text TEXT)")
        base.executemany("INSERT INTO messages (text) VALUES (?)", [(text,) for text in saved])
    base.close()
    screen: Any = Screen()
    chat = kill_interface._Chat(screen, tmp_path, replace(CASE), ["a kingfisher it is"])
    chat._asked = [("What is it?", 0)]
    assert chat._lost(until=2.0) == what if what is None else what in (chat._lost(2.0) or "")
    assert chat._lost(until=0.5) is None  # nobody had seen it


SHOWN_BY = {
    "tables": "test_search_faults.py::test_a_verifier_that_lets_the_draft_win_is_found",
    "batches": "test_search_exactness.py::test_batches_finds",
    "chances": "test_search_faults.py::test_draws_from_a_wrong_distribution_are_found",
    "batch_chances": "test_search_exactness.py::test_batch_chances_finds_a_wrong_residual",
    "models": "test_search_faults.py::test_a_lax_verifier_is_found_on_real_models",
    "passes": "test_search_exactness.py::test_passes_that_are_padded_beyond_the_batch_are_found",
    "pipe": "test_searches_find.py::test_pipe_finds_answers_that_are_not_the_reply",
    "kills": "test_kills.py::test_a_file_that_is_written_in_place_is_found_half",
    "interface": "test_searches_find.py::test_interface_finds_what_was_drawn_and_is_not_saved",
    "windows": "test_kills.py::test_windows_that_bring_back_overwrite_or_stop_saving_are_found",
    "soak": "test_kills.py::test_what_grows_in_a_soak_is_told_and_what_is_flat_is_not",
    "workers": "test_searches_find.py::test_workers_finds_ends_that_are_not_as_promised",
    **dict.fromkeys(CASES, "test_fuzz.py::test_what_looks_for_faults_finds_them"),
}
"""The test that puts a defect in the way of each search."""


def test_every_search_is_shown_to_find_what_it_is_for() -> None:
    assert SEARCHES.keys() == SHOWN_BY.keys()
    for shown in SHOWN_BY.values():
        file, name = shown.split("::")
        assert f"def {name}(" in Path(__file__).with_name(file).read_text("utf-8")
