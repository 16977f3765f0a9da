"""The comparison of several requests at a time: rows, resuming, and the memory of a request."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from benches import batching as bench_batching
from benches.batching import Asked, Figure, Job, about_memory, clients, main

JOB = Job("t.gguf", "d.gguf", "", False, False, 2, 3, 16, 256, 1, 3)


def figure(job: Job) -> Figure:
    memory = 100_000_000 + 5_000_000 * job.clients
    return Figure(job, 40.0 * job.clients, 0.5, 0.9, 1.0, memory, memory - 90_000_000)


def test_every_client_asks_one_question_after_another() -> None:
    seen: list[int] = []

    def ask(seed: int, prompt: str) -> Asked:
        seen.append(seed)
        assert prompt == bench_batching.PROMPTS[seed]
        return Asked(4, 0.1, 2)

    found, seconds = clients(ask, JOB)
    assert sorted(seen) == [0, 1, 2, 3, 4, 5]
    assert len(found) == 6
    assert seconds > 0


def test_an_error_of_a_client_is_raised() -> None:
    def ask(seed: int, prompt: str) -> Asked:
        raise ValueError(f"{seed} {prompt}")

    with pytest.raises(ValueError, match=r"\d"):
        clients(ask, JOB)


def test_what_was_measured_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[Job] = []
    monkeypatch.setattr(bench_batching, "measured", lambda job: measured.append(job) or figure(job))
    files = [tmp_path / name for name in ("target", "draft")]
    for file in files:
        file.touch()
    arguments = ["bench", "--target", str(files[0]), "--draft", str(files[1]), "--requests", "1,4"]
    arguments += ["--out", str(tmp_path / "out.jsonl"), "--against", "/bin/llama-server"]
    monkeypatch.setattr(sys, "argv", arguments)
    main()
    first = capsys.readouterr().out
    assert len(measured) == 8  # two programs, plain and drafting, one and four clients
    assert "localspec plain: 5.0 MB for each further request, 5.0 MB planned" in first
    main()
    assert len(measured) == 8
    assert capsys.readouterr().out == first


def test_a_figure_survives_its_file() -> None:
    facts = json.loads(json.dumps(asdict(figure(JOB))))
    assert Figure(**facts | {"job": Job(**facts["job"])}) == figure(JOB)
    assert not list(about_memory([figure(JOB)]))
    assert len(list(about_memory([figure(replace(JOB, clients=n)) for n in (1, 2, 4)]))) == 1
