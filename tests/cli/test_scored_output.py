"""Scores and counts of a prediction in what ``run --json`` prints."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from localspec.cli.run_report import ScoredOutput, read_prediction, require_json
from localspec.core.emitted import Origin, PromptScored, TokenLogprob, TokenLogprobs
from localspec.core.errors import UsageError
from localspec.core.events import Token
from localspec.core.reply_request import ReplyRequest

PLACE = TokenLogprobs(
    TokenLogprob(3, "\udcf0\udc9f", -1.5),
    (TokenLogprob(4, "a", -0.5), TokenLogprob(5, "b", -math.inf)),
)


def test_scores_are_json_with_the_bytes_of_parts_of_a_character() -> None:
    scored = ScoredOutput(ReplyRequest(prompt="x", logprobs=2, prompt_logprobs=0))
    scored.take(PromptScored(0, (9, 3), (None, PLACE)))
    scored.take(Token(3, "", Origin.PLAIN, None, PLACE))
    place = {
        "token": 3,
        "text": "\ufffd",
        "bytes": [0xF0, 0x9F],
        "logprob": -1.5,
        "top": [
            {"token": 4, "text": "a", "bytes": [97], "logprob": -0.5},
            {"token": 5, "text": "b", "bytes": [98], "logprob": -9999.0},
        ],
    }
    assert scored.fields() == {"logprobs": [place], "prompt_logprobs": [None, place]}


def test_nothing_is_added_where_nothing_was_asked_for() -> None:
    assert ScoredOutput(ReplyRequest(prompt="x")).fields() == {}


def test_logprobs_without_json_are_refused() -> None:
    with pytest.raises(UsageError, match="--json"):
        require_json(0, None, as_json=False)
    with pytest.raises(UsageError, match="--url"):
        require_json(0, "http://127.0.0.1", as_json=True)
    require_json(None, None, as_json=False)


def test_a_prediction_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_bytes(b"x = 1\n")
    assert read_prediction(str(file), None) == "x = 1\n"
    assert read_prediction(None, None) is None
    with pytest.raises(UsageError, match="--url"):
        read_prediction(str(file), "http://127.0.0.1")
    with pytest.raises(UsageError, match="cannot be read"):
        read_prediction(str(tmp_path), None)
    file.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="UTF-8"):
        read_prediction(str(file), None)
