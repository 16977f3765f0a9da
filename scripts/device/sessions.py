"""Sessions of a user: interrupts, resuming from disk, `localspec doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from device import pairs
from device.machine import software
from device.pairs import ALL, PARTLY, Case, Placement
from device.rows import Row, finding, judged, ok, skipped
from localspec import GREEDY, Finished, Message, Reply, Runtime
from localspec.bench.lab import Lab
from localspec.core.errors import LocalspecError
from localspec.core.events import Reading, Round
from localspec.core.target import Work
from localspec.core.values import no_draft
from localspec.prefix_cache.files import KvStore
from localspec.prefix_cache.states import State, token_ids

_GROUP = "Sessions"
_PROMPT_S = 0.3
"""Seconds in which a prompt that is being read must stop."""
_QUESTION = [Message("user", "What is localspec?")]


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:
    """Interrupts, resuming and the doctor."""
    model = pairs.trained(folder)["draft model"]
    checks = [
        ("an interrupt in a reply, and the next reply", _in_a_reply),
        ("an interrupt while a prompt of 4k tokens is read", _in_a_prompt),
    ]
    for what, check in checks:
        try:
            yield check(what, model)
        except LocalspecError as error:
            yield finding(_GROUP, what, f"{type(error).__name__}: {error}")
    for placement in (ALL,) if quick else (ALL, PARTLY):
        what = f"resume from disk: {placement.name}"
        try:
            yield _resumed(what, model, placement, folder)
        except (LocalspecError, OSError) as error:
            yield finding(_GROUP, what, f"{type(error).__name__}: {error}")
    yield from _doctor()
    yield skipped(_GROUP, "sleep and resume, kill -9, ten minutes on battery", "by hand alone")


def _in_a_reply(what: str, case: Case) -> Row:
    with Runtime.open(case.options(ALL)) as runtime:
        whole = _answer(runtime)
        pressed, stopped = 0.0, None
        for event in runtime.reply(_QUESTION, sampling=GREEDY, max_tokens=200):
            if isinstance(event, Round) and not pressed:
                pressed = time.perf_counter()
                runtime.interrupt()
            if isinstance(event, Finished):
                stopped = event.reply
        seconds = time.perf_counter() - pressed
        again = _answer(runtime)
    assert stopped is not None
    text = f"stopped after {1e3 * seconds:.0f} ms with {len(stopped.tokens)} tokens kept"
    passed = stopped.finish_reason == "interrupt" and again.tokens == whole.tokens
    return judged(_GROUP, what, text, passed=passed)


def _in_a_prompt(what: str, case: Case) -> Row:
    long = [Message("user", "Repeat after me: one two three four five. " * 330)]
    with Runtime.open(replace(case.options(ALL), context=4608)) as runtime:
        whole = _answer(runtime)
        length, pressed, stopped = len(runtime.encode(long)), [0.0], None

        def press() -> None:
            pressed[0] = time.perf_counter()
            runtime.interrupt()

        timer = threading.Timer(0.05, press)
        began = time.perf_counter()
        for event in runtime.reply(long, sampling=GREEDY, max_tokens=8):
            if isinstance(event, Reading) and not timer.is_alive() and not pressed[0]:
                timer.start()
            if isinstance(event, Finished):
                stopped = event.reply
        ended = time.perf_counter()
        timer.join()
        again = _answer(runtime)
    assert stopped is not None
    if stopped.finish_reason != "interrupt":
        return skipped(
            _GROUP, what, f"{length} tokens were read in {ended - began:.2f} s, too soon"
        )
    seconds = ended - pressed[0]
    text = f"{length} tokens; stopped after {1e3 * seconds:.0f} ms, wanted: {1e3 * _PROMPT_S:.0f}"
    if software():  # its speed is that of no device
        text += "; a software device, not judged by time"
    passed = again.tokens == whole.tokens and (seconds <= _PROMPT_S or software())
    return judged(_GROUP, what, text, passed=passed)


def _resumed(what: str, case: Case, placement: Placement, folder: Path) -> Row:
    """A KV cache written by one runtime and read by another gives the same logits."""
    text = [Message("user", "What is localspec? " * 20)]
    first, second = [], []
    identities = []
    for logits in (first, second):
        with Runtime.open(case.options(placement)) as runtime:
            tokens = runtime.encode(text)
            pairing = Lab(runtime).borrow()
            target, shelf = pairing.target, KvStore(pairing.identity, folder / "states")
            identities.append(pairing.identity)
            if logits is first:
                target.read(0, tokens[:-1])
                state = target.state(0)
                held = tokens[:-1]
                shelf.put(State("", token_ids(held), state, rate=1.0), 1.0)
            else:
                ((saved,), _) = shelf.saved()
                target.restore(0, shelf.load(saved).state)
            (scores,) = target.score([Work(0, tokens[-1], no_draft("check"))])
            logits.append(scores.logits.copy())
    apart = float(np.abs(first[0] - second[0]).max())
    figures = f"{len(tokens)} tokens; logits differ by up to {apart:.2g}"
    passed = identities[0] == identities[1] and apart == 0.0
    return judged(_GROUP, what, figures, passed=passed)


def _answer(runtime: Runtime) -> Reply:
    *_, last = runtime.reply(_QUESTION, sampling=GREEDY, max_tokens=24)
    assert isinstance(last, Finished)
    return last.reply


def _doctor() -> Iterator[Row]:
    """Findings of `localspec doctor` other than ticks, and its speed."""
    command = [sys.executable, "-P", "-m", "localspec", "doctor", "--offline", "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        found = json.loads(done.stdout)["findings"]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        yield finding(_GROUP, "doctor", f"gave no answer: {type(error).__name__}")
        return
    for entry in found:
        what = f"doctor: {entry['topic']}"
        if entry["status"] == "broken" or entry["topic"] in {"gpu", "speed"}:
            # Drafting need not pay on a program as device, nor with passes of a fraction of a
            # millisecond; then doctor has a note.
            says_nothing = software() or (entry.get("details") or {}).get("conclusive") is False
            bad = {"broken"} if says_nothing else {"broken", "note"}
            yield judged(_GROUP, what, entry["text"], passed=entry["status"] not in bad)
    yield ok(_GROUP, "doctor answers", f"exit code {done.returncode}, {len(found)} findings")
