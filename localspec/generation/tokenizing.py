"""Tokens of texts and conversations without a reply, and texts of tokens."""

from __future__ import annotations

from localspec.core.reply_request import ReplyRequest
from localspec.core.tokenized import Tokenized
from localspec.errors import UsageError
from localspec.generation.prompt import PromptBuilder
from localspec.generation.runnable import RunnableModel

MOST_CHARACTERS = 1 << 20
"""Of a text whose tokens are asked for without a reply."""


class Tokenizing:
    """Splits texts as the prompts of requests are split."""

    def __init__(self, model: RunnableModel, prompts: PromptBuilder) -> None:
        self._model = model
        self._prompts = prompts

    def tokenized(self, request: ReplyRequest, *, special: bool, bos: bool) -> Tokenized:
        """The prompt of a request, which may be longer than the context: its messages through the
        chat template, its raw prompt, or its tokens.

        For a raw prompt, ``special`` recognises control tokens in it and ``bos`` puts the token of
        the beginning before it, where the model wants one.

        Raises:
            UsageError: tokens that the vocabulary lacks, a template that refuses, or a text of more
                than `MOST_CHARACTERS`.
        """
        if request.characters > MOST_CHARACTERS:
            raise UsageError(
                f"the text has {request.characters} characters, and {MOST_CHARACTERS} is the most "
                "whose tokens are counted; send it in parts"
            )
        model = self._model
        if request.prompt_tokens is not None:
            tokens = list(request.prompt_tokens)
            wrong = next((t for t in tokens if not 0 <= t < model.n_vocab), None)
            if wrong is not None:
                raise UsageError(
                    f"there is no token {wrong}; the vocabulary has {model.n_vocab} tokens"
                )
            raw = b"".join(self._piece(token) for token in tokens)
            text = raw.decode("utf-8", "replace")
        elif request.prompt is not None:
            text = request.prompt
            tokens = model.tokenize(text, special=special, bos=bos and model.adds_bos)
        else:
            text, tokens = self._prompts.whole(request)
        pieces = tuple(self._piece(token).decode("utf-8", "surrogateescape") for token in tokens)
        return Tokenized(text, tuple(tokens), pieces)

    def _piece(self, token: int) -> bytes:
        return self._model.piece(token) or self._model.marker(token).encode()


__all__ = ["MOST_CHARACTERS", "Tokenizing"]
