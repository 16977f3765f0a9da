"""Tools of a command line: servers, and a folder, that the user names by flags."""

from __future__ import annotations

import asyncio
import dataclasses
import shlex
import threading
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from localspec.chats.calls import SavedCall, reply_messages
from localspec.cli.flags import chosen_preset, several
from localspec.cli.output import tell
from localspec.config import allow_tools
from localspec.config import settings as config_settings
from localspec.core.errors import Interrupted, UsageError
from localspec.core.interrupt import Cancelled, never
from localspec.core.reply_request import ReplyRequest
from localspec.core.safe_text import safe_line
from localspec.core.settings_schema import TOOLS

if TYPE_CHECKING:
    from localspec.tools.toolbox import RequestTools, Toolbox
    from localspec.tools.values import OfferedTool
    from localspec.tools.written_calls import WrittenCalls

T = TypeVar("T")
_LOOK_SECONDS = 0.05
_BRIEF = 120
"""Characters of a call and of its result in a line on stderr."""


tool_flags = several(
    click.option(
        "--folder",
        metavar="PATH",
        help="Let the model list, read and search files below this folder.",
    ),
    click.option(
        "--allow-tool",
        "allowed",
        multiple=True,
        metavar="NAME",
        help="Let the model call this tool of mcp.json: server/tool, or server/*. Repeatable.",
    ),
)


def require_alone(names: Sequence[str], folder: str | None, others: Sequence[object]) -> None:
    """Refuse tools beside flags that they do not go with, of which none may be given.

    Raises:
        UsageError: one is.
    """
    if (names or folder is not None) and any(other not in (None, False) for other in others):
        raise UsageError(
            "--allow-tool and --folder go with a conversation with a model of this machine: leave "
            "out --url, --connect, --raw, --parallel, --logprobs, --schema and its like"
        )


@dataclass(slots=True)
class Acting:
    """The tools that were allowed, and what the model has called so far."""

    context: int = 0
    """Tokens of the context; bounds results."""
    cancelled: Cancelled = never
    toolbox: Toolbox | None = None
    tools: RequestTools | None = None
    """None where nothing may be called."""
    made: list[SavedCall] = field(default_factory=list)
    """All calls of this answer."""
    rounds: int = 0
    _loop: asyncio.AbstractEventLoop | None = None
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        """Another question is answered."""
        self.made.clear()
        self.rounds = 0

    def request(self, request: ReplyRequest) -> ReplyRequest:
        """The request, with the tools that it may call."""
        tools = self.tools
        if tools is None or request.grammar is not None:
            return request
        return dataclasses.replace(request, tools=tools.text, grammar=tools.grammar, markers=True)

    def reader(self, request: ReplyRequest) -> WrittenCalls | None:
        """What reads the calls of a reply; None where it can make none."""
        if self.tools is None or request.tools is None:
            return None
        from localspec.tools.written_calls import WrittenCalls

        return WrittenCalls(self.tools)

    def run(self, written: WrittenCalls) -> Sequence[SavedCall]:
        """Run the calls of a reply side by side, and tell of each."""
        from localspec.tools.permission import refusal, result_size

        box = self.toolbox
        assert box is not None
        self.rounds += 1
        found = list(written.calls)
        wanted: dict[int, OfferedTool] = {}
        for at, call in enumerate(found):
            tool = next((t for t in self._offered if t.name == call.name), None)
            why = refusal(call, at, [*self.made, *found[:at]])
            if why := why or ("there is no such tool" if tool is None else ""):
                found[at] = dataclasses.replace(call, state="failed", result=f"Error: {why}")
            elif tool is not None:
                wanted[at] = tool
        most = result_size(self.context, len(wanted))
        ended: dict[int, SavedCall] = {}

        async def one(at: int, tool: OfferedTool) -> None:
            ended[at] = await _called(box, found[at], tool, most)

        with suppress(Interrupted):
            self._wait(_together(one(at, tool) for at, tool in wanted.items()))
        for at in wanted:
            found[at] = ended.get(at) or dataclasses.replace(found[at], state="stopped")
        for call in found:
            line = f"{call.place} {call.arguments}"[:_BRIEF]
            tell(f"{safe_line(line)}: {safe_line(call.said[:_BRIEF])}")
        self.made += found
        return found

    @property
    def _offered(self) -> Sequence[OfferedTool]:
        return () if self.tools is None else self.tools.tools

    def goes_on(self, written: WrittenCalls) -> bool:
        """Whether the calls of a reply are to be run; says why where they were too many in a row,
        and lists them with those that were made.
        """
        from localspec.tools.permission import MOST_ROUNDS

        if not written.act or self.cancelled():
            return False
        if self.rounds < MOST_ROUNDS:
            return True
        tell(f"{self.rounds} replies with calls in a row are the most: the last calls were not run")
        self.made += written.calls
        return False

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        while True:
            try:
                return future.result(_LOOK_SECONDS)
            except TimeoutError:
                if future.done():  # since the wait ended, or with a TimeoutError of its own
                    return future.result()
                if self.cancelled():
                    future.cancel()
                    raise Interrupted("stopped while a tool ran") from None

    def open(self, names: Sequence[str], folder: str | None) -> None:
        """Start the servers of the tools that are allowed, and open the folder.

        Raises:
            UsageError: a name means no tool, or mcp.json is refused.
            LocalspecError: the folder cannot be read.
        """
        from localspec.tools import servers_file
        from localspec.tools.folder import Folder
        from localspec.tools.permission import matches
        from localspec.tools.toolbox import RequestTools, Toolbox

        wanted = {name.partition("/")[0] for name in names}
        specs = [spec for spec in servers_file.servers() if spec.name in wanted]
        missing = wanted - {spec.name for spec in specs}
        if missing:
            raise UsageError(f"there is no server {min(missing)!r} in {servers_file.path()}")
        opened = None if folder is None else Folder(Path(folder))
        self._loop = loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, daemon=True, name="tools")
        self._thread.start()
        self.toolbox = box = Toolbox(specs, opened)
        self._wait(box.open())
        for server in box.servers:
            if server.state.phase != "ready":
                raise UsageError(f"the server {server.spec.name}: {server.state.error}")
        allowed = [
            tool
            for tool in box.offered
            if not tool.server or any(matches(name, tool) for name in names)
        ]
        for name in names:
            if not any(matches(name, tool) for tool in allowed):
                raise UsageError(f"{name} is no tool that its server offers")
        only, place = _only()
        if only is not None:
            allowed = [t for t in allowed if not t.server or any(matches(one, t) for one in only)]
            for name in names:
                if not any(matches(name, tool) for tool in allowed):
                    raise UsageError(
                        f"{name} is left out by the setting tools{place}; name it there"
                    )
        self.tools = RequestTools.of(allowed)

    def close(self) -> None:
        """End the servers."""
        if self.toolbox is not None and self._loop is not None:
            self.cancelled = lambda: False
            self._wait(self.toolbox.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            if self._thread is not None:
                self._thread.join()
            self._loop.close()


def _only() -> tuple[tuple[str, ...] | None, str]:
    """The tools of servers that the preset, else the settings, offer, None for all; and where that
    is set.

    Raises:
        UsageError: one of them is no name of a tool.
    """
    preset = chosen_preset()
    if preset is not None and TOOLS.name in preset.values:
        return allow_tools.offered(preset.values), f" of preset {preset.name}"
    return allow_tools.offered(config_settings.settings()), " of config.toml"


def _tell_of_preset() -> None:
    """Say that a preset's tools are not called without flags."""
    preset = chosen_preset()
    named = None if preset is None else allow_tools.offered(preset.values)
    if preset is not None and named:
        flags = " ".join(f"--allow-tool {shlex.quote(name)}" for name in named)
        tell(f"the tools of preset {preset.name} are not called here without {flags}")


async def _together(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*calls)


async def _called(box: Toolbox, call: SavedCall, tool: OfferedTool, most: int) -> SavedCall:
    result = await box.run(tool, call.arguments, most)
    return dataclasses.replace(
        call,
        state="failed" if result.failed else "done",
        result=result.text,
        seconds=round(result.seconds, 3),
        allowed="flag",
    )


@contextmanager
def acting(names: tuple[str, ...], folder: str | None, cancelled: Cancelled) -> Iterator[Acting]:
    """The tools of a command; without flags nothing is started and nothing imported.

    Raises:
        UsageError, LocalspecError: see `Acting.open`.
    """
    found = Acting(cancelled=cancelled)
    if not names:
        _tell_of_preset()
    if not names and folder is None:
        yield found
        return
    try:
        found.open(allow_tools.checked(names), folder)
        yield found
    finally:
        found.close()


def after_calls(
    request: ReplyRequest, written: WrittenCalls, calls: Sequence[SavedCall]
) -> ReplyRequest:
    """The request of the reply that follows the results."""
    told = reply_messages(written.text, calls, written.at)
    return dataclasses.replace(request, messages=(*request.messages, *told))
