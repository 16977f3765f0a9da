"""Messages with the files that they name, as tests write them."""

from tui.input.attachments import read
from tui.input.message_draft import Draft


def attach(text: str, *, as_words: bool = False) -> str:
    return read(Draft(text), as_words=as_words).message
