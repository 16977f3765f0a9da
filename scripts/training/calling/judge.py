"""How often the trained file does whole tasks, as the chat has them done: calls forced by grammar,
results given, answers compared word by word.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from localspec import Message, Options, ReplyRequest, Runtime, Sampling
from localspec.chats.calls import SavedCall, reply_messages
from localspec.tools.toolbox import RequestTools
from localspec.tools.values import OfferedTool
from localspec.tools.written_calls import WrittenCalls

from .form import Task
from .talks import Example, example
from .tasks import Choice

SEED = 20_000_003
"""No seed of training: files, pages, commits and names are new."""
_MOST = 4
"""Replies of one task."""
_KINDS = {
    "new files, pages and names": Choice,
    "wordings of questions not trained on": lambda rng: Choice(rng, held_words=True),
    "names and subjects of tools not trained on": lambda rng: Choice(rng, held_tools=True),
    "both": lambda rng: Choice(rng, held_words=True, held_tools=True),
}
Log = Callable[[str], None]


@dataclass(frozen=True)
class Verdict:
    """What the model did with a task."""

    called: bool
    """Whether it made the calls that are needed, in their order and with their arguments."""
    answered: bool
    """Whether its answer is the expected one, too."""
    said: str


def tools_of(made: Example) -> RequestTools:
    """The tools of a conversation as the chat has them."""
    found = []
    for tool in made.tools:
        server, _, name = tool.name.rpartition("__")
        function = tool.openai["function"]
        found.append(OfferedTool(server, name, tool.description, function["parameters"]))
    return RequestTools.of(found)


def tried(
    runtime: Runtime, tools: RequestTools, before: Sequence[Message], task: Task
) -> tuple[Verdict, list[Message]]:
    """Have a task done; also the conversation with it."""
    messages = [*before, Message("user", task.question)]
    wanted, called = list(task.steps), True
    for _ in range(_MOST):
        request = ReplyRequest(
            tuple(messages),
            sampling=Sampling(temperature=0),
            seed=1,
            max_tokens=300,
            tools=tools.text,
            grammar=tools.grammar,
            markers=True,
        )
        written = WrittenCalls(tools)
        for event in runtime.submit(request):
            written.take(event)
        done = [dataclasses.replace(call, state="done", result="") for call in written.calls]
        for at, call in enumerate(done):
            step = wanted.pop(0) if wanted else None
            if step is None or not _is(call, step.tool.name, step.arguments):
                return Verdict(called=False, answered=False, said=written.text), messages
            done[at] = dataclasses.replace(call, result=step.result)
        if not done:
            said = written.said.strip()
            called = not wanted
            messages.append(Message("assistant", said))
            return Verdict(called, called and said == task.answer.strip(), said), messages
        messages += reply_messages(written.text, done, written.at)
    return Verdict(called, answered=False, said=""), messages


def _is(call: SavedCall, name: str, arguments: object) -> bool:
    try:
        return call.name == name and json.loads(call.arguments) == arguments
    except ValueError:
        return False


def judge(model: Path, questions: int, log: Log, *, shown: int = 3) -> None:
    """Try held-out conversations of every kind, and tell how many went well."""
    with Runtime.open(Options(model=str(model), context=1024, draft="none")) as runtime:
        for title, choice in _KINDS.items():
            called = answered = tasks = 0
            rng, failures = Random(SEED), list[str]()
            for _ in range(questions):
                made = example(choice(rng))
                tools, messages = tools_of(made), list[Message]()
                for task in made.tasks:
                    verdict, messages = tried(runtime, tools, messages, task)
                    tasks += 1
                    called += verdict.called
                    answered += verdict.answered
                    if not verdict.answered:
                        failures.append(
                            f"{made.kind}: {task.question!r}: {verdict.said!r}, not {task.answer!r}"
                        )
                        break
            log(f"{title}: of {tasks} questions {called} called right, {answered} answered right")
            for failure in failures[:shown]:
                log(f"  {failure}")
