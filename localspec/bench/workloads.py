"""Prompts of `localspec bench`: eight kinds of work, written for this project; and those that
`localspec verify` asks when it is given none. Two more kinds, of tools, are in `tool_workloads`.

Six kinds follow Spec-Bench (Xia et al. 2024): chat, rewriting, summarising, question answering,
arithmetic, retrieval; code editing and JSON are other common uses of local models.
"""

from __future__ import annotations

from dataclasses import dataclass

from localspec.core.reply_request import ReplyRequest

VERIFY = (
    "Hello!",
    "Good morning, how are you?",
    "Who are you?",
    "What is localspec?",
    "What can you do?",
    "How does speculative decoding work?",
    "Does drafting change the answer?",
    "Thank you, goodbye!",
    "What is 7 plus 5?",
    "What is 12 + 30?",
    "What is 9 times 8?",
    "How much is 50 minus 18?",
    "Is 14 larger than 41?",
    "Count from 1 to 10.",
    "List five fruits.",
    "List the days of the week.",
    "Name three planets.",
    "Give me a list of four colours.",
    "Give me five tips for better sleep.",
    "Write a shopping list for a picnic.",
    "Repeat this text: The river bends twice before it meets the old stone bridge.",
    "Repeat after me: seven green bottles stand on a narrow shelf",
    "Copy this line exactly: Order 4471 ships on Tuesday to Mrs Alvarez in Lisbon.",
    "Replace the word cat with dog: The cat sat on the mat and the cat slept.",
    "Rewrite this politely: Send me the report now.",
    "Turn this into a bulleted list: apples, bread, milk, two lemons and a jar of honey",
    "Make this sentence shorter: The meeting that we had planned for today was moved to Friday.",
    "Extract the name and the age: Maria Lopez is 34 years old and lives in Porto.",
    "Which city is named here? Last summer we travelled by train to Vienna and stayed a week.",
    "Find the email address in this text: please write to anna.berg@example.com by noon.",
    "What is the date in this sentence? The contract was signed on 12 March 2021 in Oslo.",
    "Write a Python function that adds two numbers.",
    "Write a Python function that reverses a string.",
    "Write a Python function that checks whether a number is prime.",
    "Write a Python function that returns the largest item of a list.",
    "Write a function in Python to count the vowels in a text.",
    "Format this as JSON: name Tom, age 41, city Bergen",
    "Give me JSON with the keys title and year for the book Blue Harbour from 1987.",
    "Turn this into JSON: product lamp, price 19, in stock yes",
    "Explain in two sentences what a token is.",
    "Tell me something about yourself in three sentences.",
    "What is the capital of France?",
    "Write a short story about a lighthouse.",
    "Translate good night into German.",
    "My name is Ada. Please greet me by my name.",
    "Summarise this: The shop opens at nine, closes at six, and is closed on Sundays.",
    "Is it safe to use localspec offline?",
    "hi, what's 3 times 4, and can u list 3 animals?",
)


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


@dataclass(frozen=True, slots=True)
class Step:
    """The prompt that is measured next."""

    workload: str
    temperature: float
    prompt: int
    """Index within the workload."""
    prompts: int

    @property
    def stage(self) -> str:
        """In words, without the prompt."""
        return f"{self.workload}, temperature {self.temperature:g}"


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
