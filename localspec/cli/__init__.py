"""The command line. Data goes to stdout, everything else to stderr.

Exit codes: 0 ok, 1 failed, 2 usage, 3 model not found or not there offline, 4 access, 5 does not
fit in memory, 6 draft incompatible and one required, 7 file damaged or of another kind, 129 its
terminal was closed, 130 interrupted, 143 ended by SIGTERM. A crash of llama.cpp is 1, and so is
stdout that cannot be written; if the reader of a pipe closes it early, the exit code is 0.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import click

from localspec import __version__
from localspec.cli import streams
from localspec.cli.interrupt import exit_code, watch
from localspec.cli.output import ReaderGoneError, say, say_block, tell
from localspec.core.errors import LocalspecError
from localspec.core.files import defects
from localspec.core.processes import activity, garbage

COMMANDS = {
    "demo": "Show what drafting does on this machine, side by side.",
    "chat": "Chat with a model in the terminal.",
    "chats": "List, search, export and remove chats.",
    "run": "Answer one prompt; the reply is streamed to stdout.",
    "embed": "Turn lines of text into vectors, or score them for a query.",
    "serve": "Serve a model over HTTP, for OpenAI clients.",
    "pull": "Download a model and its draft from the Hugging Face Hub.",
    "models": "List the models of the catalogue and of the cache.",
    "show": "Show the files and properties of a model or pair.",
    "rm": "Delete the files of a model or pair.",
    "verify": "Check on this machine that drafting does not change the output.",
    "bench": "Measure the speed-up of drafting on this machine.",
    "worker": "Lend this machine's devices to others on the network.",
    "make-draft": "Make a draft model from a model: fewer bits or fewer layers.",
    "tune": "Measure the cost of passes of each width on this machine.",
    "build-llama": "Build llama.cpp for this machine, beside an installation by pip.",
    "doctor": "Check the installation and suggest a fix for each problem.",
    "completion": "Complete names and flags in bash, zsh or fish.",
}


class _Lazy(click.Group):
    """Imports a command's module only when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of the table, which is the order a newcomer needs them in."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"localspec.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the table without importing the commands."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as click does; a typo is answered with the closest names."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            ctx.fail(f"No such command {name!r}.{_instead(name)}")
        found, command, rest = super().resolve_command(ctx, args)
        if command is not None and any(arg.startswith("-") for arg in rest):
            from localspec.cli import foreign

            rest = foreign.ours(command, rest)
            if not ctx.resilient_parsing:  # as while a shell completes
                foreign.advise(command, rest)
        return found, command, rest


def _instead(name: str) -> str:
    """What a command that is not here may be meant as."""
    import difflib

    from localspec.cli import foreign

    if (there := foreign.COMMANDS.get(name)) is not None:
        return f" {there}"
    close = difflib.get_close_matches(name, COMMANDS, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


_BEGIN = (
    "Where to begin: localspec demo shows what drafting does here, localspec chat opens the chat, "
    "and F4 there downloads a model that suits this machine."
)


@click.command(cls=_Lazy, epilog=_BEGIN, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="localspec")
def cli() -> None:
    """Run local language models faster with speculative decoding. The output is unchanged."""


def main(argv: list[str] | None = None) -> None:
    """Run a command and exit with its code."""
    _open_closed_streams()
    streams.wait()
    watch()
    garbage.collect_rarely()
    sys.exit(exit_code(call(argv, program=True)))


def _open_closed_streams() -> None:
    """Open the null device in place of each standard stream that the caller closed.

    Opened in this order they get descriptors 0, 1 and 2, which no other file must have.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            opened = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115
            setattr(sys, name, opened)
            setattr(sys, f"__{name}__", opened)  # what waits in its place does not hold it open


def call(argv: list[str] | None = None, *, program: bool = False) -> int:
    """Run a command and return its exit code; every error becomes one line on stderr.

    With ``program``, commands that use llama.cpp run in a child process;
    see `localspec.cli.containment`.
    """
    try:
        result: Any = cli.main(args=argv, prog_name="localspec", standalone_mode=False, obj=program)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        with _closed_or_not():
            say_block(error.format_message())
        return error.exit_code
    except click.ClickException as error:
        if isinstance(error, click.BadParameter):
            from localspec.cli.flags import name_source

            name_source(error)
        context = getattr(error, "ctx", None)
        place = f"; see `{context.command_path} --help`" if context is not None else ""
        return _fail(error.format_message().replace("\n", " ").rstrip(".") + place, error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except (BrokenPipeError, ReaderGoneError, SystemExit) as error:
        # Where a pipe is closed while click writes help, it makes an exit of that.
        if isinstance(error, SystemExit) and not _reader_gone():
            raise
        _drop(sys.stdout)
        return 0
    except Exception as error:  # noqa: BLE001 - a defect of ours too: its details go to a file
        told = _unwritten() or defects.told(error)
        return _fail(str(told), told.exit_code)
    return result if isinstance(result, int) else 0


def _reader_gone() -> bool:
    """Whether stdout is a pipe that its reader closed."""
    import select

    ends = select.poll()
    ends.register(sys.stdout.fileno(), 0)
    return bool(ends.poll(0))


def _unwritten() -> LocalspecError | None:
    """Why stdout did not take all that was written to it; None where it did."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop(sys.stdout)
        return LocalspecError(f"stdout cannot be written: {error.strerror or error}")
    return None


def _drop(stream: TextIO) -> None:
    """The interpreter flushes a stream once more at exit; that must not complain, too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fail(message: str, code: int) -> int:
    from localspec.core.files.private import without_secrets

    newline = activity.within_line() and sys.stderr.isatty()
    with _closed_or_not():
        if newline:
            say()
        tell(without_secrets(message))
    return code


@contextlib.contextmanager
def _closed_or_not() -> Iterator[None]:
    """Write to stderr, which may be closed; the exit code still counts."""
    try:
        yield
    except OSError:
        _drop(sys.stderr)
