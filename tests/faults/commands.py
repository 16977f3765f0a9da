"""Damaged files through the real command line: a process of its own each time."""

from __future__ import annotations

from pathlib import Path

from faults import entries, header_values, model_files, user_files
from faults.mutations import Chance

_READERS = (
    model_files.gguf,
    model_files.heads,
    header_values.header_values,
    model_files.shards,
    model_files.safetensors,
    user_files.settings,
    user_files.catalogue,
    user_files.chat_import,
    user_files.chat_database,
)


def commands(chance: Chance, folder: Path) -> str | None:
    """Any of the readers that a command has, as the shell starts it."""
    entries.use_real_command()
    reader = chance.choice(_READERS)
    wrong = reader(chance, folder)
    return f"{reader.__name__}: {wrong}" if wrong else None
