"""Tokens of texts and conversations without a reply, and texts of tokens."""

from __future__ import annotations

from localspec.core.errors import Interrupted, UsageError
from localspec.core.interrupt import Cancelled, never
from localspec.core.media_rows import UNKNOWN, is_row
from localspec.core.reply_request import ReplyRequest, Tokenized
from localspec.generation.infill import InfillPrompts
from localspec.generation.prompt import PromptBuilder
from localspec.generation.runnable import RunnableModel

MOST_BYTES = 1 << 19
"""Of a text whose tokens are asked for without a reply, in UTF-8: each may be a token, and all of
them travel in one message."""


def tokenized(
    request: ReplyRequest,
    model: RunnableModel,
    prompts: PromptBuilder,
    infills: InfillPrompts,
    cancelled: Cancelled = never,
    *,
    special: bool,
    bos: bool,
) -> Tokenized:
    """The prompt of a request, which may be longer than the context: its messages through the
    chat template, its raw prompt, its tokens, or those of its text with a gap.

    For a raw prompt, ``special`` recognises control tokens in it and ``bos`` puts the token of
    the beginning before it, where the model wants one.

    Raises:
        UsageError: tokens that the vocabulary lacks, a template that refuses, or a text of more
            than `MOST_BYTES`.
        Interrupted: ``cancelled`` returned true, before the work or in a template that may take
            long.
    """
    if cancelled():
        raise Interrupted("nobody waits for these tokens any more")
    _require_few(request.characters)  # before any work
    if request.prompt_tokens is not None:
        tokens = list(request.prompt_tokens)
        wrong = next((t for t in tokens if not 0 <= t < model.n_vocab), None)
        if wrong is not None:
            raise UsageError(
                f"there is no token {wrong}; the vocabulary has {model.n_vocab} tokens"
            )
        text = None
    elif request.prompt is not None:
        text = request.prompt
        _require_few(_size(text))
        tokens = model.tokenize(text, special=special, bos=bos and model.adds_bos)
    elif request.infill is not None:
        tokens = infills.prompt(request.infill, request.max_tokens, request.owner).tokens
        text = None
    else:
        text, tokens = prompts.whole(request, cancelled)
        _require_few(_size(text))
    tokens = [UNKNOWN if is_row(token) else token for token in tokens]
    raw = [b"" if t == UNKNOWN else model.piece(t) or model.marker(t).encode() for t in tokens]
    _require_few(sum(map(len, raw)))
    if text is None:
        text = b"".join(raw).decode("utf-8", "replace")
    pieces = tuple(piece.decode("utf-8", "surrogateescape") for piece in raw)
    return Tokenized(text, tuple(tokens), pieces)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _require_few(size: int) -> None:
    """Refuse a text of so many bytes, or characters, where it is too large.

    Raises:
        UsageError: it is.
    """
    if size > MOST_BYTES:
        raise UsageError(
            f"the text has {size} bytes or more, and {MOST_BYTES} is the most whose tokens are "
            "counted; send it in parts"
        )
