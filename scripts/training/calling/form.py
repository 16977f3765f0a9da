"""How the model is told of tools and writes calls: its chat template, in Jinja and in Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.phrase import Talk
from tokenizers import AddedToken, Tokenizer

MARKERS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""Tokens of their own, which the embedded pair does not have."""
TOLD = 64
"""Characters of a description that the model is told: its context is short."""

TEMPLATE = (
    "{% if tools or (messages and messages[0].role == 'system') %}<|im_start|>system\n"
    "{% if messages and messages[0].role == 'system' %}{{ messages[0].content }}\n{% endif %}"
    "{% for tool in tools or [] %}{% set f = tool.function %}"
    "{{ ((f.description or '') | trim).split('\\n')[0].split('. ')[0][:64] | trim }}: "
    "{{ f.name }}({{ (f.parameters.required or []) | join(', ') }})\n"
    "{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}{% if message.role == 'tool' %}<|im_start|>user\n"
    "<tool_response>\n{{ message.content | trim }}\n</tool_response><|im_end|>\n"
    "{% elif message.role != 'system' %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}"
    "{% if message.content or not loop.first %}\n{% endif %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Tool:
    """A tool as a model is told of it."""

    name: str
    parameters: Mapping[str, str]
    """Those that a call must have, and their types in JSON schema."""
    description: str

    @property
    def openai(self) -> dict[str, object]:
        """As a request has it."""
        schema = {
            "type": "object",
            "properties": {name: {"type": kind} for name, kind in self.parameters.items()},
            "required": list(self.parameters),
        }
        function = {"name": self.name, "description": self.description, "parameters": schema}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class Step:
    """A call and its result."""

    tool: Tool
    arguments: Mapping[str, object]
    result: str

    @property
    def written(self) -> str:
        """The call as the model writes it."""
        call = f'{{"name": "{self.tool.name}", "arguments": {json.dumps(self.arguments)}}}'
        return f"<tool_call>\n{call}\n</tool_call>"


@dataclass(frozen=True)
class Task:
    """A question, the calls that it needs, and the answer from their results."""

    question: str
    steps: tuple[Step, ...]
    answer: str


def talk(tools: Sequence[Tool], tasks: Sequence[Task], system: str = "") -> Talk:
    """The conversation as turns of text."""
    told = [f"{_brief(t.description)}: {t.name}({', '.join(t.parameters)})\n" for t in tools]
    turns: Talk = []
    if told or system:
        turns.append(("system", (f"{system}\n" if system else "") + "".join(told)))
    for task in tasks:
        turns.append(("user", task.question))
        for step in task.steps:
            turns.append(("assistant", step.written))
            turns.append(("user", f"<tool_response>\n{step.result.strip()}\n</tool_response>"))
        turns.append(("assistant", task.answer))
    return turns


def _brief(description: str) -> str:
    return description.strip().split("\n")[0].split(". ")[0][:TOLD].strip()


def tokenizer(path: Path) -> Tokenizer:
    """The vocabulary of the embedded pair, and `MARKERS` behind it."""
    found = Tokenizer.from_file(str(path))
    found.add_special_tokens([AddedToken(m, special=True, normalized=False) for m in MARKERS])
    return found
