"""Checks of the embedded pair (files, speed) and of the fit of the default model."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.config import settings
from localspec.core import settings_schema as schema
from localspec.core.errors import LocalspecError
from localspec.core.files.paths import DEMO_DIR
from localspec.core.processes.neighbours import Neighbours
from localspec.core.units import size_text
from localspec.doctor.findings import FIT, SPEED, Examine, Finding
from localspec.models.memory.report import describe, table

if TYPE_CHECKING:
    from localspec.core.events import Stats
    from localspec.runtime import Runtime

SPEED_CHECK_S = 2.0
"""Seconds of generating; loading comes on top."""
_FILES = ("target.gguf", "draft.gguf")
_SUMS = "SHA256SUMS"
_LINE = re.compile(r"^([0-9a-fA-F]{64}) [ *](\S.*)$")
_ENOUGH = 16
"""Judged tokens from which on it is not by chance that none was accepted."""
_QUICK = 1000.0
"""Tokens a second without drafts from which on Python takes as long as the pair's passes: it is a
hundred times as quick as what people chat with, and drafting it need not pay.
"""
_LOSS = 0.8
"""Part of the plain speed below which drafts have cost time, however much replies vary."""
_REPEATS = 2
"""Further measurements where drafts seem to cost time."""
_WHEN_QUIET = "localspec doctor, when they are not"
_REINSTALL = "install localspec again: the embedded pair is part of it"


def check(examine: Examine, *, library: bool, folders: bool) -> Iterator[Finding]:
    """Hashes, then speed, then fit; without library or folders the last two are not tried."""
    files = files_whole(DEMO_DIR)
    yield files
    if files.status == "broken":
        return
    if not (library and folders):
        reason = "llama.cpp does not load" if not library else "there is no folder for its log"
        yield Finding("speed", "note", f"not tried: {reason}")
        return
    yield next(examine(SPEED))
    yield next(examine(FIT))


def files_whole(folder: Path) -> Finding:
    """Whether the pair's files are there, and are what SHA256SUMS says.

    That file has lines as sha256sum writes them: 64 hexadecimal digits, two blanks, a file's name.
    """
    absent = [name for name in _FILES if not (folder / name).is_file()]
    if absent:
        text = f"the embedded pair lacks {' and '.join(absent)}"
        return Finding("demo", "broken", text, _REINSTALL)
    total = sum((folder / name).stat().st_size for name in _FILES)
    text = f"the embedded pair is here ({size_text(total)})"
    details: dict[str, Any] = {"folder": str(folder), "bytes": total, "hashes": None}
    try:
        lines = (folder / _SUMS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return Finding("demo", "ok", f"{text}; it came without {_SUMS}", details=details)
    except (OSError, UnicodeDecodeError) as error:
        return Finding("demo", "broken", f"cannot read {folder / _SUMS}: {error}", _REINSTALL)
    known = {m[2]: m[1].lower() for m in map(_LINE.match, lines) if m}
    for name in _FILES:
        if name not in known:
            return Finding("demo", "broken", f"{_SUMS} does not name {name}", _REINSTALL)
        with (folder / name).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != known[name]:
            text = (
                f"{folder / name} is damaged: its sha256 is {found[:12]}…, not {known[name][:12]}…"
            )
            return Finding("demo", "broken", text, _REINSTALL)
    return Finding("demo", "ok", f"{text} and whole", details=details | {"hashes": "match"})


def speed() -> Finding:
    """Answers of the embedded pair for two seconds, with and without drafts in turn."""
    from localspec.core.options import Options
    from localspec.loading import own_kernels
    from localspec.runtime import Runtime

    kernels = own_kernels.without_making()
    options = Options(model="demo", require_draft=True, offline=True, kernels=kernels)
    try:
        with Runtime.open(options) as runtime:
            # Not counted: the first replies start threads, and a device compiles its kernels then.
            for draft in (True, False, True):
                _answer(runtime, draft=draft)
            return judged(lambda: _measured(runtime))
    except LocalspecError as error:
        return Finding("speed", "broken", f"the embedded pair fails: {error}", _REINSTALL)


def judged(measure: Callable[[], Finding]) -> Finding:
    """The finding of a measurement; of the last of a few where drafts seem to cost time, which a
    neighbour's work makes seem so too. Nothing is repeated that a repetition would not change.
    """
    found = measure()
    for _ in range(_REPEATS):
        if found.status != "note" or not (found.details or {}).get("slower"):
            break
        found = measure()
    return found


def _measured(runtime: Runtime) -> Finding:
    stats: dict[bool, list[Stats]] = {True: [], False: []}
    others = Neighbours()
    deadline = time.perf_counter() + SPEED_CHECK_S
    while not stats[True] or time.perf_counter() < deadline:
        for draft in (False, True):
            stats[draft].append(_answer(runtime, draft=draft))
    return speed_finding(stats[True], stats[False], runtime.info.threads, busy=others.busy)


def speed_finding(
    drafted: Sequence[Stats], plain: Sequence[Stats], threads: int, *, busy: bool = False
) -> Finding:
    """The finding of replies with and without drafts; a tick only where drafts were accepted and
    cost nothing. ``busy``: other programs used the processor meanwhile.
    """
    rate, plain_rate = _rate(drafted), _rate(plain)
    verified = sum(s.verified for s in drafted)
    accepted = sum(s.accepted for s in drafted)
    acceptance = accepted / verified if verified else 0.0
    text = (
        f"the embedded pair answers with {rate:.0f} tok/s, {plain_rate:.0f} without drafts; "
        f"acceptance {acceptance:.0%}, {threads} thread{'s' * (threads > 1)}"
    )
    details = {
        "tokens_per_second": rate,
        "plain_tokens_per_second": plain_rate,
        "acceptance": acceptance,
        "threads": threads,
        "busy": busy,
    }
    if verified >= _ENOUGH and not accepted:
        text += ": no drafted token was accepted, so this build or this device computes wrongly"
        return Finding("speed", "broken", text, "localspec verify demo", details)
    lost = bool(verified) and _cost_time(drafted, plain)
    if not busy and (lost or not verified) and plain_rate >= _QUICK and rate >= plain_rate / 2:
        text += "; its passes are too short here to tell what drafts do for large models"
        details["conclusive"] = False
        return Finding("speed", "note", text, details=details)
    fix = _WHEN_QUIET if busy else "localspec tune demo"
    if not verified:
        text += ": nothing was drafted"
        if drafted and drafted[-1].speculation.reason:
            text += f", because {drafted[-1].speculation.reason}"
        if busy:
            text += "; other programs are busy, so the speeds say nothing"
        return Finding("speed", "note", text, fix, details)
    if lost:
        details["slower"] = True
        runs = f"other programs are busy, in {1 + _REPEATS} measurements, so the speeds say nothing"
        text += f": {runs}" if busy else f": drafts make it {1 - rate / plain_rate:.0%} slower here"
        return Finding("speed", "note", text, fix, details)
    return Finding("speed", "ok", text, details=details)


def _cost_time(drafted: Sequence[Stats], plain: Sequence[Stats]) -> bool:
    """Whether drafts cost a hundredth or more of the plain speed, and that is no chance: of replies
    made in turn, so many were slower with drafts as are by a sign test of 5 %.
    """
    rate, plain_rate = _rate(drafted), _rate(plain)
    if rate < _LOSS * plain_rate:
        return True
    turns = list(zip(drafted, plain, strict=False))
    slower = sum(d.tokens_per_second < p.tokens_per_second for d, p in turns)
    beyond_chance = slower >= len(turns) / 2 + 0.98 * math.sqrt(len(turns))
    return beyond_chance and rate < 0.99 * plain_rate


def _answer(runtime: Runtime, *, draft: bool) -> Stats:
    from localspec.core.events import Finished, Message
    from localspec.core.logits import GREEDY

    question = [Message("user", "Hello!")]
    *_, last = runtime.reply(question, sampling=GREEDY, max_tokens=64, draft=draft)
    assert isinstance(last, Finished)
    return last.reply.stats


def _rate(stats: Sequence[Stats]) -> float:
    """Tokens per second of the fastest reply: the one that was disturbed least."""
    return max((s.tokens_per_second for s in stats), default=0.0)


def fit() -> Finding:
    """How the model that is used when none is named fits here: the user's own, else demo."""
    from localspec.core.options import Options
    from localspec.loading.sight import projector_memory, projector_of
    from localspec.models.catalog.resolve import resolve
    from localspec.models.memory.fit import fit_files
    from localspec.models.memory.planner import Wishes

    try:
        name = str(settings.value(schema.MODEL))
    except LocalspecError:
        return Finding("fit", "note", "not tried: the settings cannot be used")
    try:
        files = resolve(name, None)
        path = projector_of(files.target, Options())
        beside = 0 if path is None else projector_memory(path)
        found = fit_files(files.target, files.draft, Wishes(), measure=True, beside=beside)
    except LocalspecError as error:
        fix = f"localspec show {name}"
        return Finding("fit", "note", f"{name} cannot be fitted: {error}", fix)
    text = f"{name}: {found.verdict}"
    return Finding("fit", "ok", text, details=describe(found), table=tuple(table(found)))
