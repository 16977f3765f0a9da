"""``localspec chats``: the saved chats."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import complete
from localspec.cli.output import confirm, decode, say, stdin, tell, write, write_json, write_line
from localspec.core.errors import ChatsError, ChatsFileError, UsageError
from localspec.core.safe_text import safe_line

if TYPE_CHECKING:
    from localspec.chats.store import ChatStore
    from localspec.chats.values import Chat, ChatInfo, Listed


def _store() -> ChatStore:
    from localspec.chats.store import ChatStore

    return ChatStore()


_REMOVED = click.option("--removed", is_flag=True, help="List removed chats instead.")
_JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON array instead of a table."
)


@click.group("chats", invoke_without_command=True)
@_REMOVED
@_JSON
@click.pass_context
def command(context: click.Context, *, removed: bool, as_json: bool) -> None:
    """List, search, show, export, import, rename or remove chats.

    Without a subcommand, the chats are listed. A chat is named by its id or a unique beginning of
    it; `last` is the chat used last, for `restore` the one removed last.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_chats, removed=removed, as_json=as_json)
    elif removed or as_json:
        given = "--removed" if removed else "--json"
        raise UsageError(f"give {given} after the subcommand: {context.invoked_subcommand} {given}")


@command.command("list")
@_REMOVED
@_JSON
def list_chats(*, removed: bool, as_json: bool) -> None:
    """List all chats, the most recent first."""
    from localspec.chats.values import date_of

    with _store() as store:
        found = store.listed(removed=removed)
        gone = [] if found or removed else store.listed(removed=True)
    if as_json:
        write_json([_described(listed) for listed in found])
        return
    if not found:
        there = "" if removed else " yet; start one: localspec chat"
        if gone:
            there = f"; {_count(len(gone))} can be restored: localspec chats --removed"
        say(f"no chats{there}")
    for listed in found:
        info = listed.info
        title = safe_line(info.title)
        write_line(f"{info.id}  {date_of(info.updated):<16}  {listed.messages:>4}  {title}")


@command.command(short_help="Find messages.")
@click.argument("query")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    metavar="N",
    help="Most messages to list.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array instead of lines.")
def search(query: str, limit: int, *, as_json: bool) -> int:
    """Find messages with all words of QUERY; the last word may be incomplete.

    "Words in quotes" must follow each other. The exit code is 1 if nothing is found.
    """
    with _store() as store:
        hits = store.search(query, limit)
    if as_json:
        write_json(
            [
                {"chat": h.info.id, "title": h.info.title, "role": h.role, "excerpt": h.excerpt}
                for h in hits
            ]
        )
    else:
        for hit in hits:
            write(f"{hit.info.id}  {safe_line(hit.info.title)}\n    {hit.role}: {hit.excerpt}\n")
        if not hits:
            say("nothing found")
    return 0 if hits else 1


@command.command(short_help="Print a chat as Markdown.")
@click.argument("chat", default="last", shell_complete=complete.chats)
def show(chat: str) -> None:
    """Print CHAT as Markdown: the branch viewed last."""
    from localspec.chats.transfer import to_markdown

    write(to_markdown(_load(chat)))


@command.command(short_help="Write chats as JSON or Markdown.")
@click.argument("chats", nargs=-1, shell_complete=complete.chats)
@click.option("-a", "--all", "everything", is_flag=True, help="Export all chats.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this new file.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "json"]),
    help="Output format; default: by the ending of the file, json on stdout.",
)
def export(
    chats: tuple[str, ...], output: Path | None, form: str | None, *, everything: bool
) -> None:
    """Write CHATS as JSON (all branches, can be imported) or Markdown (to read).

    The output goes to stdout, or to a new file with -o.
    """
    from localspec.chats import transfer

    if bool(chats) == everything:
        raise UsageError("name the chats to export, or pass --all")
    with _store() as store:
        infos = [x.info for x in store.listed()] if everything else [_find(store, c) for c in chats]
        found = [store.load(info.id) for info in infos]
    if form is None:
        form = "json" if output is None else transfer.form_of(output)
    if form == "json":
        text = transfer.to_json(found)
    else:
        text = "\n".join(transfer.to_markdown(chat) for chat in found)
    if output is None:
        write(text)
    else:
        transfer.write(output, text)
        say(f"{_count(len(found))} in {output}")


@command.command("import", short_help="Add the chats of a JSON file.")
@click.argument("file")
def import_chats(file: str) -> None:
    """Add the chats of FILE, written by `export` as JSON; - reads stdin.

    They get new ids; existing chats are not changed.
    """
    from localspec.chats.transfer import from_json, read, read_file

    try:
        raw = read(stdin()) if file == "-" else read_file(Path(file))
    except OSError as error:
        raise ChatsError(f"cannot read {file}: {error.strerror}") from None
    except ChatsFileError as error:
        raise ChatsFileError(f"{file}: {error}") from None
    try:
        chats = from_json(decode(raw, file), tell)
    except ChatsFileError as error:
        raise ChatsFileError(f"{file}: {error}") from None
    with _store() as store:
        store.put_chats(chats)
    for chat in chats:
        write_line(f"{chat.info.id}  {safe_line(chat.info.title)}")
    say(f"{_count(len(chats))} imported")


@command.command()
@click.argument("chat", shell_complete=complete.chats)
@click.argument("title")
def rename(chat: str, title: str) -> None:
    """Give CHAT another TITLE."""
    title = safe_line(" ".join(title.split()))
    if not title:
        raise UsageError("a title needs at least one letter")
    with _store() as store:
        store.rename(_find(store, chat).id, title)


@command.command()
@click.argument("chats", nargs=-1, required=True, shell_complete=complete.chats)
@click.option("--for-good", is_flag=True, help="Erase for good; this cannot be undone.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def rm(chats: tuple[str, ...], *, for_good: bool, yes: bool) -> int:
    """Delete CHATS (recoverable for 30 days with `restore`)."""
    with _store() as store:
        removed = None if for_good else False
        infos = dict.fromkeys(_find(store, chat, removed=removed) for chat in chats)
        if for_good and not yes:
            if not sys.stdin.isatty():
                raise UsageError("refusing to erase without confirmation; pass --yes")
            titles = ", ".join(f"'{info.title}'" for info in infos)
            if not confirm(f"erase {titles}?"):
                say("nothing was erased")
                return 1
        for info in infos:
            if for_good:
                store.erase(info.id)
                say(f"erased for good: {info.id}  {info.title}")
            else:
                store.remove(info.id)
                say(f"removed; undo: localspec chats restore {info.id}")
    return 0


@command.command()
@click.argument("chats", nargs=-1, required=True, shell_complete=complete.removed_chats)
def restore(chats: tuple[str, ...]) -> None:
    """Restore removed CHATS; `list --removed` shows them."""
    with _store() as store:
        for info in [_find(store, chat, removed=True) for chat in chats]:
            store.restore(info.id)


def _find(store: ChatStore, name: str, *, removed: bool | None = False) -> ChatInfo:
    """The chat of that name; ``removed`` as in `ChatStore.find`."""
    if name == "last":
        return store.removed_last() if removed else store.last()
    return store.find(name, removed=removed)


def _load(name: str) -> Chat:
    with _store() as store:
        return store.load(_find(store, name).id)


def to_resume(name: str | None, *, last: bool) -> Chat:
    """The chat of `chat -c` or `chat --resume`.

    Raises:
        UsageError: both were given.
        ChatsError: there is no such chat.
    """
    if name is not None and last:
        raise UsageError("--continue and --resume exclude each other")
    return _load(name or "last")


def _described(listed: Listed) -> dict[str, Any]:
    data = dataclasses.asdict(listed.info)
    del data["leaf"]
    return {**data, "messages": listed.messages}


def _count(n: int) -> str:
    return "1 chat" if n == 1 else f"{n} chats"
