"""What the model that sees can do, through localspec itself: pictures that nobody trained on."""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from demo.answers import Drafted
from demo.phrase import ask

from localspec import Message, Options, ReplyRequest, Runtime
from localspec.core.picture import Picture
from localspec.core.sampling_params import Sampling

from .scenes import Scene, picture, scene
from .talks import DETAIL, WHAT, caption, detail, questions

Log = Callable[[str], None]
HELD_OUT = 1_000_000_007
"""Seed of the pictures that are never trained on."""
GREEDY = Sampling(temperature=0)
LENGTH = 5
"""Drafted tokens of a round: fixed, so that figures do not depend on the machine."""


@dataclass(frozen=True)
class Exam:
    """A picture, a question, and the right answer."""

    scene: Scene
    png: bytes
    kind: str
    question: str
    answer: str

    @property
    def request(self) -> ReplyRequest:
        """As the shell asks."""
        said = Message("user", f"\n{self.question}", pictures=(Picture(data=self.png),))
        return ReplyRequest((said,), sampling=GREEDY, max_tokens=96)


def exams(number: int, seed: int = HELD_OUT) -> Iterator[Exam]:
    """Three questions about each of so many held-out pictures, of 64 to 400 pixels a side."""
    rng = Random(seed)
    for _ in range(number):
        one = scene(rng)
        side, buffer = rng.choice((64, 96, 192, 400)), io.BytesIO()
        picture(one, rng).resize((side, side)).save(buffer, "PNG")
        kind = {"one": "one shape", "two": "two shapes", "several": "several"}.get(
            one.kind, "digit"
        )
        asked, answer = rng.choice(questions(one, rng))
        for name, question, right in (
            (f"what: {kind}", ask(rng, rng.choice(WHAT)), caption(one)),
            (f"in detail: {kind}", ask(rng, rng.choice(DETAIL)), detail(one)),
            ("one question", ask(rng, asked), answer),
        ):
            yield Exam(one, buffer.getvalue(), name, question, right)


def _told(of: Drafted) -> str:
    return f"{of.per_pass:.2f} tokens a pass, acceptance {of.acceptance:.2f}"


def examine(options: Options, number: int, wrong: Path, log: Log) -> None:
    """Answers to held-out pictures, plain and drafted."""
    right, total, figures = Counter[str](), Counter[str](), defaultdict[str, Drafted](Drafted)
    same, misses = 0, []
    with Runtime.open(options) as runtime:
        for exam in exams(number):
            plain = runtime.answer(replace(exam.request, draft=False))
            drafted = runtime.answer(exam.request)
            same += plain.tokens == drafted.tokens
            total[exam.kind] += 1
            right[exam.kind] += drafted.text == exam.answer
            figures[exam.kind].add(drafted)
            if drafted.text != exam.answer:
                misses.append({"asked": exam.question, "said": drafted.text, "right": exam.answer})
    for kind in sorted(total):
        share = right[kind] / total[kind]
        log(f"{kind:20} right {right[kind]} of {total[kind]} ({share:.0%}); {_told(figures[kind])}")
    log(f"drafted text is the plain one in {same} of {total.total()}")
    wrong.write_text(json.dumps(misses, indent=1) + "\n", encoding="utf-8")


def beside_a_picture(options: Options, heldout: Path, log: Log) -> None:
    """The demo's own held-out prompts, alone and behind a picture: what drafting gains."""
    talks = [entry["messages"] for entry in json.loads(heldout.read_text(encoding="utf-8"))]
    sights = [exam.png for exam in exams(len(talks)) if exam.kind.startswith("what")]
    alone, behind, same = Drafted(), Drafted(), 0
    with Runtime.open(options) as runtime:
        for said, png in zip(talks, sights, strict=True):
            text = next(m["content"] for m in said if m["role"] == "user")
            shown = Message("user", f"\n{text}", pictures=(Picture(data=png),))
            replies = [
                runtime.answer(ReplyRequest((message,), sampling=GREEDY, max_tokens=160))
                for message in (Message("user", text), shown)
            ]
            if replies[0].text == replies[1].text:
                same += 1
                alone.add(replies[0])
                behind.add(replies[1])
    log(f"the demo's held-out prompts: the same reply behind a picture in {same} of {len(talks)}")
    log(f"these alone: {_told(alone)}; behind the picture: {_told(behind)}")
