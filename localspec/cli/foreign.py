"""Flags of llama-cli and its relatives, under our names.

Habits are strong: who comes from another program types its flags. Those with the same meaning are
taken as ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

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
}
"""Their flag, and ours with the same meaning."""
_PROMPT = ("-p", "--prompt")
"""Before the prompt, which is an argument here."""


def ours(command: click.Command, args: Sequence[str]) -> list[str]:
    """The arguments of a command with its own flags in place of foreign ones.

    A flag that the command has keeps its meaning, and so does the value of a flag.
    """
    own: dict[str, bool] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            names = (*parameter.opts, *parameter.secondary_opts)
            own |= dict.fromkeys(names, not parameter.is_flag)
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
