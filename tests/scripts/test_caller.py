"""What the small model that calls tools was trained on, and what the chat asks it."""

import itertools
import json
from pathlib import Path
from random import Random

import pytest
from calling import tasks
from calling.form import MARKERS, TEMPLATE
from calling.talks import example, talks
from calling.tasks import Choice
from demo.tokenizer import render

from localspec.core.events import Message, MessageCall
from localspec.generation.chat_template import Template
from localspec.models.gguf.header import read_header
from localspec.tools.toolbox import RequestTools
from localspec.tools.values import OfferedTool

MODEL = Path(__file__).parents[1] / "data" / "calling" / "caller.gguf"


def tools_of(made):
    """The tools of a conversation as the chat has them."""
    found = []
    for tool in made.tools:
        server, _, name = tool.name.rpartition("__")
        function = tool.openai["function"]
        found.append(OfferedTool(server, name, tool.description, function["parameters"]))
    return RequestTools.of(found)


def messages(made):
    """A conversation as the chat has it, without its last answer."""
    found, number = [], 0
    for task in made.tasks:
        found.append(Message("user", task.question))
        for step in task.steps:
            number += 1
            call = MessageCall(f"c{number}", step.tool.name, json.dumps(step.arguments))
            found.append(Message("assistant", "", calls=(call,)))
            found.append(Message("tool", step.result, call_id=call.id, name=step.tool.name))
        found.append(Message("assistant", task.answer))
    return found[:-1]


@pytest.mark.parametrize("seed", range(12))
def test_the_chat_template_makes_the_prompts_that_were_trained_on(seed):
    made = example(Choice(Random(seed)))
    offered = json.loads(tools_of(made).text)
    template = Template(TEMPLATE, bos="", eos="").with_tools(offered, in_text=False)
    assert template.render(messages(made)) == render(made.talk()[:-1], open_reply=True)


def test_the_file_has_this_template_and_a_token_for_each_marker():
    header = read_header(MODEL)
    assert header.metadata["tokenizer.chat_template"] == TEMPLATE
    last = header.metadata["tokenizer.ggml.tokens"][-len(MARKERS) :]
    assert tuple(token.decode() for token in last) == MARKERS


def test_what_is_held_out_is_in_no_conversation_of_training():
    held = [*tasks._HELD_SUBJECTS, "enumerate_folder", "load_document", "changelog", "browse"]
    for talk in itertools.islice(talks(1), 400):
        system = next((text for role, text in talk if role == "system"), "")
        assert not [name for name in held if name in system]
