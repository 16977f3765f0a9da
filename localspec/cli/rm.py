"""``localspec rm``: delete the files of a model or pair."""

from __future__ import annotations

import sys

import click

from localspec.cli import complete
from localspec.cli.output import confirm, say, write_line
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.units import size


@click.command("rm")
@click.argument("name", shell_complete=complete.models)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def command(name: str, *, yes: bool) -> int:
    """Remove the files of NAME from the Hugging Face cache.

    Lists the files and asks first. Files that another downloaded pair needs are kept, and so is
    content that other revisions share.
    """
    from localspec.models.hub.remove import plan_removal

    removal = plan_removal(name)
    for path in (*removal.files, *removal.partials):
        say(f"{path}  {size(path.stat().st_size)}")
    for line in removal.staying:
        say(line)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(
                f"refusing to remove without confirmation; pass --yes: rm {name} --yes"
            )
        if not confirm(f"remove these and free {size(removal.freed)}?"):
            say("nothing was removed")
            return 1
        if plan_removal(name) != removal:
            raise LocalspecError(
                f"what is here of {name} has changed since; nothing was removed: start again"
            )
    try:
        done = removal.carry_out()
    except OSError as error:
        raise LocalspecError(f"cannot remove {error.filename}: {error.strerror}") from None
    for line in done.staying:
        say(line)
    write_line(f"freed {size(done.freed)}")
    return 0
