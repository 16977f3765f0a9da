"""``localspec run --parallel FILE``: many prompts, several at a time, JSON lines out."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from localspec.cli.containment import Unfinished
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import bar, json_line, say, say_over, tell, write_json
from localspec.cli.prompt_file import Around, PromptLine
from localspec.cli.run_report import Partial, ScoredOutput, report
from localspec.cli.supervisor import HELD_BYTES
from localspec.core.errors import LocalspecError
from localspec.core.events import Finished, Notice, Reply, Token
from localspec.core.reply_request import ReplyRequest
from localspec.core.units import duration

if TYPE_CHECKING:
    from localspec.runtime import Runtime

JOBS = 4
"""Requests at a time, unless the user says how many."""
_LOOK_SECONDS = 0.2
_BAR = 24


class ParallelRun:
    """Answers the lines of a file on one runtime."""

    def __init__(
        self,
        runtime: Runtime,
        lines: Sequence[PromptLine],
        base: ReplyRequest,
        around: Around,
        *,
        ctrl_c: CtrlC,
    ) -> None:
        """``base`` and ``around`` are what every request has in common, before its line changes
        it.
        """
        self._runtime = runtime
        self._lines = lines
        self._base = base
        self._around = around
        self._ctrl_c = ctrl_c
        self._lock = threading.Lock()
        self._tokens = 0
        self._done = 0
        self._stopped = False
        self._unfinished = Unfinished()
        self._unwritten: dict[int, str] = {}
        """Lines that are not written yet, by their index: whole ones that wait for an earlier one,
        and what has arrived of others.
        """
        self._notices: list[str] = []
        self._told = 0
        """Notices that were shown."""
        self._began = time.perf_counter()

    def run(self) -> int:
        """Write one JSON object for each line, in their order; returns the exit code: 0, 1 if a
        line failed or ended before its grammar was complete, 130 if interrupted. What was answered
        before an interruption is written. Where the command breaks off, so is what has arrived.
        """
        failed = left_out = 0
        for notice in self._runtime.info.notices:
            tell(notice)
        # One more than run at a time, so that the next prompt is ready when a reply ends.
        with self._unfinished, ThreadPoolExecutor(self._runtime.info.parallel + 1) as pool:
            answers = [pool.submit(self._answer, *line) for line in enumerate(self._lines)]
            try:
                for index, answer in enumerate(answers):
                    self._wait(answer, pool)
                    try:
                        found = answer.result()
                    except CancelledError:
                        left_out += 1
                        continue
                    failed += "error" in found or not found.get("valid", True)
                    say_over("")
                    write_json({"index": index, **found})
                    self._keep(index, "")
            except BaseException:  # nobody reads the others, and leaving the pool waits for them
                self._stop(pool)
                raise
        self._show()
        say_over("")
        self._sum_up(failed, left_out)
        if self._ctrl_c.pressed:
            return 130
        return 1 if failed else 0

    def _answer(self, index: int, line: PromptLine) -> dict[str, Any]:
        """The object that is written for a line, without its index."""
        if self._stopped or self._ctrl_c.pressed:
            raise CancelledError
        info, partial = self._runtime.info, None
        keep = functools.partial(self._keep, index)
        try:
            request = line.request(self._base, self._around)
            scored = ScoredOutput(request)
            partial = Partial(info, request.seed, keep, index={"index": index})
            found = report(self._reply(request, scored, partial), info) | scored.fields()
        except LocalspecError as error:
            arrived = {} if partial is None else partial.found()
            found = {"error": str(error), "exit_code": error.exit_code, **arrived}
        finally:
            with self._lock:
                self._done += 1
        keep(json_line({"index": index, **found}))
        return found

    def _keep(self, index: int, line: str) -> None:
        """Hold what there is of a line; nothing once it is written."""
        with self._lock:
            if line:
                self._unwritten[index] = line
            else:
                del self._unwritten[index]
            self._unfinished.hold(_fitting(text for _, text in sorted(self._unwritten.items())))

    def _reply(self, request: ReplyRequest, scored: ScoredOutput, partial: Partial) -> Reply:
        stream = self._runtime.submit(request)
        if self._stopped or self._ctrl_c.pressed:  # perhaps after all others were told
            stream.interrupt()
        for event in stream:
            scored.take(event)
            partial.take(event)
            if isinstance(event, Token):
                with self._lock:
                    self._tokens += 1
            elif isinstance(event, Notice):
                with self._lock:
                    if event.text not in self._notices:
                        self._notices.append(event.text)
            elif isinstance(event, Finished):
                return event.reply
        raise AssertionError("a reply ends with Finished")

    def _wait(self, answer: Future[dict[str, Any]], pool: ThreadPoolExecutor) -> None:
        """Until the answer is there, or is not wanted any more."""
        # `wait` does not count an answer as done that was cancelled before it began.
        while not (wait([answer], timeout=_LOOK_SECONDS).done or answer.done()):
            self._show()
            if self._ctrl_c.pressed and not self._stopped:
                self._stop(pool)

    def _stop(self, pool: ThreadPoolExecutor) -> None:
        """Leave out what has not begun, and interrupt what has."""
        self._stopped = True
        pool.shutdown(wait=False, cancel_futures=True)
        self._runtime.interrupt()

    def _show(self) -> None:
        with self._lock:
            done, tokens, notices = self._done, self._tokens, self._notices[self._told :]
        for notice in notices:
            say_over("")
            tell(notice)
        self._told += len(notices)
        total, spent = len(self._lines), time.perf_counter() - self._began
        filled = _BAR * done // total
        left = f", {duration(spent / done * (total - done))} left" if done else ""
        line = f"{bar(filled, _BAR)} {done} of {total} · {tokens / spent:.0f} tok/s{left}"
        say_over(line)

    def _sum_up(self, failed: int, left_out: int) -> None:
        spent = time.perf_counter() - self._began
        answered = len(self._lines) - failed - left_out
        parts = [f"{answered} answered", f"{self._tokens} tokens in {spent:.1f} s"]
        parts.append(f"{self._tokens / spent:.0f} tok/s")
        if failed:
            parts.append(f"{failed} failed")
        if left_out:
            parts.append(f"{left_out} left out")
        say(" · ".join(parts), dim=True)


def _fitting(lines: Iterable[str]) -> str:
    """The lines that can be held together, the first ones first."""
    kept, room = [], HELD_BYTES
    for line in lines:
        size = len(line) * (1 if line.isascii() else 4)  # bytes at most, without encoding it
        if size <= room:
            kept.append(line)
            room -= size
    return "".join(kept)
