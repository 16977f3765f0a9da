"""Flags of llama-cli and its relatives, under our names.

Habits are strong: who comes from another program types its flags. Those with the same meaning are
taken as ours; for others, and for commands, there is a line that names what is meant.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

import click

from localspec.cli.output import tell
from localspec.core.errors import UsageError

NAMES: Mapping[str, str] = {
    "-c": "--ctx",
    "--ctx-size": "--ctx",
    "--n-predict": "--max-tokens",
    "--predict": "--max-tokens",
    "-ngl": "--gpu-layers",
    "--n-gpu-layers": "--gpu-layers",
    "-ngld": "--draft-gpu-layers",
    "--n-gpu-layers-draft": "--draft-gpu-layers",
    "-md": "--draft",
    "--model-draft": "--draft",
    "-hf": "--model",
    "--hf-repo": "--model",
    "-hfd": "--draft",
    "-sys": "--system",
    "--system-prompt": "--system",
    "-np": "--jobs",
    "--served-model-name": "--alias",
    "--max-model-len": "--ctx",
    "--keepalive": "--keep-alive",
}
"""Their flag, and ours with the same meaning."""
_ONE_REPLY = "leave it out: `run` answers once, `chat` goes on"
INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("-cnv", "--conversation", "-no-cnv", "--no-conversation"), _ONE_REPLY),
    "--format": "--json-object holds a reply to JSON, --schema FILE to a schema",
    "--keepalive": "a server keeps its model: `localspec serve --keep-alive SECONDS`",
}
"""Flags that have no like here, and what to do."""
DOUBTS: Mapping[str, tuple[str, str]] = {
    "-t": (r"[3-9]|\d\d+", "is the temperature {}; threads are --threads {}"),
    "-s": (r"\d+", "is the system message {}; a seed is --seed {}"),
    "-c": (r"\d+", "continues the last chat; a context is --ctx {}"),
    "--draft": (r"\d+", "names a model; the length of drafts is --draft-max {}"),
}
"""Flags of ours that mean something else elsewhere: values that look like it, and what to say."""
_MODELS = "`localspec models` lists models"
_REMOVE = "`localspec rm NAME` removes a model"
_LOADED = "A model is loaded while `serve`, `chat` or `run` runs"
COMMANDS: Mapping[str, str] = {
    "list": _MODELS,
    "ls": _MODELS,
    "ps": f"{_LOADED}; a server tells its models at /api/ps",
    "stop": f"{_LOADED}; a server ends with Ctrl-C, or unloads it after --keep-alive SECONDS",
    "remove": _REMOVE,
    "delete": _REMOVE,
    "info": "`localspec show NAME` shows a model",
    "search": "F4 in `localspec chat` searches the Hub; `localspec models` lists the catalogue",
    "login": "Log in with `hf auth login`, or set HF_TOKEN",
    "create": "A MODEL may be any .gguf; [presets.NAME] in config.toml has settings for one",
    "help": "`localspec --help` lists commands",
    "version": "`localspec --version` shows it",
}
"""Commands of other programs, and what is here in their place."""
_PROMPT = ("-p", "--prompt")
"""Before the prompt, which is an argument here."""


def ours(command: click.Command, args: Sequence[str]) -> list[str]:
    """The arguments of a command with its own flags in place of foreign ones.

    A flag that the command has keeps its meaning, and so does the value of a flag.
    """
    own = _own(command)
    takes_prompt = any(p.name == "prompts" for p in command.params)
    found: list[str] = []
    is_value = False
    for place, arg in enumerate(args):
        if arg == "--":
            return [*found, *args[place:]]
        name, equals, value = arg.partition("=")
        if is_value or name in own or not name.startswith("-"):
            is_value = not is_value and not equals and own.get(name, False)
            found.append(arg)
            continue
        if name in _PROMPT and takes_prompt:
            found += [value] if equals else []
            continue
        known = NAMES.get(name)
        if known in own:
            is_value = not equals
            found.append(f"{known}{equals}{value}")
        else:
            found.append(arg)
    return found


def advise(command: click.Command, args: Sequence[str]) -> None:
    """Tell what a flag means here where its value looks as if it were meant otherwise.

    Raises:
        UsageError: a flag of another program that has no like here; says what to do.
    """
    if isinstance(command, click.Group):  # the flags are those of its commands
        return
    own = _own(command)
    is_value = False
    for arg, behind in itertools.pairwise([*args, ""]):
        if arg == "--":
            return
        name = arg.partition("=")[0]
        if not is_value and name not in own and name in INSTEAD:
            raise UsageError(f"there is no {name} here; {INSTEAD[name]}")
        pattern, told = DOUBTS.get(name, ("", ""))
        if not is_value and name in own and pattern and re.fullmatch(pattern, behind):
            tell(f"{name} {told.replace('{}', behind)}")
        is_value = not is_value and name == arg and own.get(name, False)


def _own(command: click.Command) -> dict[str, bool]:
    """The flags of a command, and whether each takes a value."""
    own: dict[str, bool] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            names = (*parameter.opts, *parameter.secondary_opts)
            own |= dict.fromkeys(names, not parameter.is_flag)
    return own
