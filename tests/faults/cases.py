"""The searches whose cases are damaged inputs, each a function of chance and an empty folder that
returns what is wrong, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from faults import (
    adapter_files,
    commands,
    engine_answers,
    grammars,
    header_values,
    messages,
    model_files,
    pulls,
    templates,
    user_files,
)
from faults.mutations import Chance

Function = Callable[[Chance, Path], str | None]

CASES: dict[str, Function] = {
    function.__name__: function
    for function in (
        model_files.gguf,
        model_files.heads,
        header_values.header_values,
        model_files.shards,
        model_files.header_over_http,
        model_files.safetensors,
        model_files.native,
        adapter_files.adapters,
        user_files.catalogue,
        user_files.settings,
        user_files.chat_import,
        user_files.chat_database,
        user_files.states,
        user_files.costs,
        user_files.attachment,
        messages.protocol_lines,
        messages.hub_answer,
        engine_answers.engine_answers,
        templates.template,
        grammars.grammars,
        pulls.pulls,
        commands.commands,
    )
}
