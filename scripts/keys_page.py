"""Write docs/keys.md: every key and command, from the tables that the interface itself uses.

python scripts/keys_page.py            write it
python scripts/keys_page.py --check    only say whether it is true
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tui.input import keymap
from tui.session import commands

PAGE = Path(__file__).resolve().parent.parent / "docs" / "keys.md"
_HEAD = """\
# Keys and commands of the chat

Written by `scripts/keys_page.py`; a test keeps it true.

## Keys

Every key with a name can be bound to another one in `config.toml` (`localspec doctor` says where
that is):

```toml
[keys]
"chat.compare" = "f10"
"composer.newline" = "ctrl+j,shift+enter"
```

| Key | Does | Name |
|---|---|---|
"""
_COMMANDS = """
## Commands

A line that is one word of letters after a slash is a command; Tab completes it. A space before the
slash sends it to the model. `@path` in a message attaches a text file; Tab completes the path; a
name with spaces stands in quotes: `@"my notes.txt"`. In `chat --plain` there are `/help`, `/new`,
`/system`, `/temp`, `/seed` and `/quit`.

| Command | Does |
|---|---|
"""


def page() -> str:
    """The whole page."""
    keys = [f"| {keys} | {does} | `{name}` |" for name, keys, does in keymap.rows({})]
    keys += [f"| {keys} | {does} | |" for keys, does in keymap.FIXED]
    typed = [
        f"| `{spec.usage.replace('|', chr(92) + '|')}` | {spec.help} |"
        for spec in commands.SPECS.values()
    ]
    return _HEAD + "\n".join(keys) + "\n" + _COMMANDS + "\n".join(typed) + "\n"


def main() -> None:
    """Write the page or check it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        sys.exit("docs/keys.md is out of date; run scripts/keys_page.py")


if __name__ == "__main__":
    main()
