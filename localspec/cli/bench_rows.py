"""The output of ``bench`` while it measures: rows as they are measured, or JSON at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from localspec.cli import bench_report
from localspec.cli.output import in_lines, json_line, write

if TYPE_CHECKING:
    from localspec.bench.history import Past
    from localspec.bench.peers import Compared
    from localspec.bench.speedup import Bench
    from localspec.cli.containment import Unfinished
    from localspec.cli.working import Working
    from localspec.core.events import ModelInfo


class TextRows:
    """Prints a table row by row."""

    def __init__(
        self,
        unfinished: Unfinished,
        working: Working,
        *,
        expected: int,
        details: bool,
        history: bool,
        threads: int,
    ) -> None:
        """``expected`` is the number of rows in all."""
        self._unfinished, self._working = unfinished, working
        self._expected, self._threads = expected, threads
        self._details, self._history = details, history
        self._rows = 0
        self._peers = 0

    def grown(self, so_far: Bench) -> None:
        """Print new rows; more are to come."""
        head = [] if self._rows else [bench_report.HEAD]
        rows = so_far.results[self._rows :]
        if rows:
            self._print([*head, *map(bench_report.row, rows)])
        self._rows += len(rows)
        count = f"incomplete: {self._rows} of {self._expected} rows"
        self._unfinished.hold(in_lines([count, *bench_report.closing(so_far)]))

    def done(self, result: Bench, past: Past | None) -> None:
        """Print the conclusion from all rows."""
        self.grown(result)
        lines = bench_report.closing(result)
        if self._details:
            lines += ["", *bench_report.details(result)]
        if self._history:
            lines += ["", *bench_report.changes(result, past, self._threads)]
        self._unfinished.hold("")
        self._print(lines)

    def compared(self, rows: Sequence[Compared]) -> None:
        """Print new rows of peers."""
        head = [] if self._peers else ["", bench_report.PEER_HEAD]
        self._print([*head, *map(bench_report.peer_row, rows[self._peers :])])
        self._peers = len(rows)
        self._unfinished.hold(
            in_lines(["incomplete: not all rows of peers", *bench_report.PEER_CLOSING])
        )

    def end(self) -> None:
        """Print what follows the last row."""
        self._working.clear()
        self._unfinished.hold("")
        if self._peers:
            write(in_lines(bench_report.PEER_CLOSING))

    def _print(self, lines: Sequence[str]) -> None:
        self._working.clear()
        write(in_lines(lines))


class JsonRows:
    """Prints one JSON object at the end; called as `TextRows` is."""

    def __init__(self, unfinished: Unfinished, working: Working, info: ModelInfo) -> None:
        """``info`` describes the model in the object."""
        self._unfinished, self._working, self._info = unfinished, working, info
        self._result: Bench | None = None
        self._past: Past | None = None
        self._peers: tuple[Compared, ...] = ()

    def grown(self, so_far: Bench) -> None:
        """See `TextRows`."""
        self._result = so_far
        self._unfinished.hold(self._line(complete=False))

    def done(self, result: Bench, past: Past | None) -> None:
        """See `TextRows`."""
        self._past = past
        self.grown(result)

    def compared(self, rows: Sequence[Compared]) -> None:
        """See `TextRows`."""
        self._peers = tuple(rows)
        self._unfinished.hold(self._line(complete=False))

    def end(self) -> None:
        """See `TextRows`."""
        self._working.clear()
        line = self._line(complete=True)
        self._unfinished.hold("")
        write(line)

    def _line(self, *, complete: bool) -> str:
        assert self._result is not None, "a benchmark has at least one step"
        found = bench_report.report(
            self._result, self._info, self._peers, self._past, complete=complete
        )
        return json_line(found)
