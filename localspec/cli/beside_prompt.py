"""What may be meant beside a prompt on the command line: stdin below it, or another command."""

from __future__ import annotations

import shlex

from localspec.cli.output import is_unread, read_stdin, tell

_STDIN = "-"


class BesideThePrompt:
    """The arguments of a command for one prompt.

    A pipe may be there without being meant, never end, or belong to a loop of a script that reads
    it. So stdin is read only for ``-``; where it has bytes that nobody reads, a line says so.
    """

    def __init__(self, arguments: tuple[str, ...]) -> None:
        """``arguments`` are a prompt, or a prompt and -: the text of stdin then follows it."""
        self._below = len(arguments) == 2 and arguments[1] == _STDIN != arguments[0]
        self.prompts = arguments[:1] if self._below else arguments
        self._told = self._below or self.prompts in {(), (_STDIN,)}

    def joined(self, prompt: str) -> str:
        """The prompt, with what is below it.

        Raises:
            UsageError: stdin is not UTF-8, or larger than any context.
        """
        return f"{prompt}\n\n{read_stdin()}" if self._below else prompt

    def tell_of_model(self) -> None:
        """Say so where the whole prompt names a model."""
        from localspec.models.catalog.catalog import catalog

        (*_, name) = self.prompts or (_STDIN,)
        if name in catalog() or name.endswith(".gguf"):
            quoted = shlex.quote(name)
            tell(
                f"the prompt is the name of a model: `localspec chat {quoted}` chats with it, and "
                f"`localspec run -m {quoted} PROMPT` asks it"
            )

    def tell_of_stdin(self) -> None:
        """Say once that stdin is not read, where it has something. What a pipe brings may come
        later, so this is asked before a reply and behind it.
        """
        if not self._told and is_unread():
            self._told = True
            tell("stdin is not read, since there is a prompt; - behind it puts stdin below it")
