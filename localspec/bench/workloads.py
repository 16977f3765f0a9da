"""Prompts of `localspec bench`: eight kinds of work, written for this project. Two more, of tools,
are in `tool_workloads`.

Six kinds follow Spec-Bench (Xia et al. 2024): chat, rewriting, summarising, question answering,
arithmetic, retrieval; code editing and JSON are other common uses of local models.
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.core.reply_request import ReplyRequest


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of work."""

    name: str
    prompts: tuple[str, ...]
    requests: tuple[ReplyRequest, ...] = ()
    """What is asked in place of the prompts, one for each, where a question is more than a text."""

    @property
    def questions(self) -> tuple[str | ReplyRequest, ...]:
        """What is asked."""
        return self.requests or self.prompts


_STORE = (
    "The harbour store opens at eight and closes at six. On Saturdays it closes at two, and on "
    "Sundays it stays shut. Ropes and lamps are on the left, paint is at the back, and the till is "
    "beside the door. Mrs Olsen has kept it since 1998; her son Per repairs engines in the yard."
)
_RIVER = (
    "The river is wide. We walked along the river until the river met the sea, and slept by the "
    "river."
)
_MINUTES = (
    "The meeting began at ten. Lena showed the plan for the new bridge. Tomas asked who would pay "
    "for the lights. The town will pay half of it, and the ferry company the other half. Work is "
    "to begin in March and to end before the summer fair."
)
_CODE = (
    "def total(prices):\n    result = 0\n    for price in prices:\n"
    "        result = result + price\n    return result\n\n\n"
    "def mean(prices):\n    return total(prices) / len(prices)\n"
)

WORKLOADS = (
    Workload(
        "chat",
        (
            "Hello! Who are you, and what can you do for me?",
            "What is localspec and how does it make answers faster?",
            "Give me five tips for a good night's sleep.",
        ),
    ),
    Workload(
        "rewriting",
        (
            f"Repeat this text word for word: {_STORE}",
            f"Replace the word river with lake: {_RIVER}",
            f"Rewrite this as a bulleted list: {_MINUTES}",
        ),
    ),
    Workload(
        "summarising",
        (
            f"Summarise this and quote one sentence: {_STORE}",
            f"Summarise this in two sentences: {_MINUTES}",
            f"What is the main point of this text? {_MINUTES}",
        ),
    ),
    Workload(
        "questions",
        (
            "List the planets of the solar system.",
            "What does a draft model do in speculative decoding?",
            "Name five animals and one thing that each of them eats.",
        ),
    ),
    Workload(
        "arithmetic",
        (
            "What is 27 plus 45? Show the steps.",
            "Write the times table of 7 up to 10.",
            "Tom has 12 apples, buys 30 more and gives 8 away. How many has he left?",
        ),
    ),
    Workload(
        "retrieval",
        (
            f"{_STORE}\n\nWhen does the store close on Saturdays?",
            f"{_STORE}\n\nWho repairs engines, and where? Quote the sentence.",
            f"{_MINUTES}\n\nWho pays for the lights? Quote the sentence.",
        ),
    ),
    Workload(
        "code editing",
        (
            f"Rename total to sum_of in this code and print all of it:\n\n```python\n{_CODE}```",
            f"Add a docstring to each function and print all of it:\n\n```python\n{_CODE}```",
            f"Repeat this code exactly:\n\n```python\n{_CODE}```",
        ),
    ),
    Workload(
        "json",
        (
            "Format this as JSON: name Ada, age 36, city London, languages English and French",
            f"Turn this text into JSON with keys for hours, people and goods: {_STORE}",
            "Give me a JSON list of three books, each with title, author and year.",
        ),
    ),
)
