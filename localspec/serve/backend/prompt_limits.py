"""Prompts that cannot fit into the context are refused before they reach the engine.

llama.cpp's tokenizer takes seconds for megabytes, and time that grows with the square of the number
of special tokens in a text; other prompts would wait for it.
"""

from __future__ import annotations

from localspec.core.reply_request import ReplyRequest
from localspec.serve.http.errors import ApiError, too_long

CHARACTERS_PER_TOKEN = 64
"""Most characters of a prompt for each token of the context; texts have 3 to 5."""
_MARKERS = ("<|", "</s>", "<s>", "[INST]", "<start_of_turn>", "<end_of_turn>")
"""Texts of special tokens, or their beginnings: each is at least one token."""


def require_room(request: ReplyRequest, context: int) -> None:
    """Refuse a request whose prompt has certainly more tokens than the context holds.

    Raises:
        ApiError: 400, context_length_exceeded.
    """
    if request.prediction is not None:
        most = CHARACTERS_PER_TOKEN * context
        _require(len(request.prediction), most, "characters in its prediction")
    if request.prompt_tokens is not None:
        _require(len(request.prompt_tokens), context, "tokens")
        return
    texts = [message.content for message in request.messages]
    texts += [message.name for message in request.messages]
    calls = [call for message in request.messages for call in message.calls]
    texts += [text for call in calls for text in (call.name, call.arguments)]
    if request.prompt is not None:
        texts.append(request.prompt)
    # Few templates show ids, in which some programs keep what another model has thought.
    ids = [message.call_id for message in request.messages] + [call.id for call in calls]
    _require(len(request.messages), context, "messages")
    for several, what in ((texts, "characters"), (ids, "characters in ids of calls")):
        _require(sum(map(len, several)), CHARACTERS_PER_TOKEN * context, what)
    special = sum(text.count(marker) for text in (*texts, *ids) for marker in _MARKERS)
    _require(special, context, "special tokens")


def _require(found: int, most: int, what: str) -> None:
    if found > most:
        raise _too_long(found, most, what)


def _too_long(found: int, most: int, what: str) -> ApiError:
    return too_long(
        f"the prompt has {found} {what}, which exceeds the available context size: at most {most}"
    )
