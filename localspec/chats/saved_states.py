"""Saved KV states contain the text of their conversations: where a chat is erased, they go too."""

from __future__ import annotations

from localspec.config import paths
from localspec.errors import ChatsError


def erase_states() -> None:
    """Remove all saved KV states, of every model: which of them contain a text is not known
    without their tokenizers. That costs reading time and nothing else.

    Raises:
        ChatsError: one cannot be removed.
    """
    folder = paths.states_dir()
    for file in folder.glob("*/*"):
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise ChatsError(
                f"{file} may contain text of the erased chat and cannot be removed: "
                f"{error.strerror}; delete the folder {folder}"
            ) from None
