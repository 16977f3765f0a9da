"""The answers of the pair to the held-out prompts, acceptance on them, and the page of verdicts."""

import itertools
import json
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llama_cpp import Llama

from localspec import GREEDY, Message, Options, ReplyRequest, Runtime
from localspec.core.events import Reply
from localspec.core.sampling_params import Sampling

from . import tokenizer as tok
from .stages import Log

K = 4
"""Drafted tokens of a round: fixed, so that figures do not depend on the machine."""
_UNCUT = Sampling(temperature=1, top_k=0, top_p=1.0, min_p=0.0)
HEAD = """# Judged answers

Every held-out prompt with the answer of the quantized target (`localspec/demo/target.gguf`) at
temperature 0 through llama.cpp, unedited, and a verdict given by reading it. A conversation of
several turns is judged as a whole: every reply must be sensible. `good` means that the answer does
what was asked, or, for requests outside the repertoire, says so.

Made by `scripts/train_demo answers` and `scripts/train_demo judged`; the verdicts are in
`verdicts.json`, in the order of `heldout.json`.
"""


@dataclass
class Drafted:
    """Counts over replies."""

    replies: int = 0
    emitted: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    verified: int = 0

    def add(self, reply: Reply) -> None:
        self.replies += 1
        for name in ("emitted", "rounds", "drafted", "accepted", "verified"):
            setattr(self, name, getattr(self, name) + getattr(reply.stats, name))

    @property
    def acceptance(self) -> float:
        return self.accepted / max(1, self.verified)

    @property
    def per_pass(self) -> float:
        return self.emitted / max(1, self.rounds)


def _answered(model: Llama, entry: dict[str, Any]) -> list[Message]:
    """The conversation with the replies of llama-cpp-python, so that nothing of localspec judges
    itself.
    """
    talk: list[Message] = []
    for message in entry["messages"]:
        talk.append(Message(message["role"], message["content"]))
        if message["role"] != "user":
            continue
        asked = tok.render([(one.role, one.content) for one in talk], open_reply=True)
        prompt = model.tokenize(asked.encode(), add_bos=False, special=True)
        tokens = itertools.islice(model.generate(prompt, temp=0.0, repeat_penalty=1.0), 400)
        reply = list(itertools.takewhile(lambda token: token != tok.END, tokens))
        talk.append(Message("assistant", model.detokenize(reply).decode("utf-8", "replace")))
    return talk


def answer_all(out: Path, heldout: Path, goal: Path, log: Log) -> None:
    """Greedy answers of the quantized target to every held-out prompt, and acceptance of the pair
    there: at temperature 0, and at 1 by a coupled draft and by rejection.
    """
    entries = json.loads(heldout.read_text(encoding="utf-8"))
    target, draft = str(out / "target.gguf"), str(out / "draft.gguf")
    alone = Llama(target, n_ctx=2048, n_batch=2048, n_ubatch=2048, n_threads=1, verbose=False)
    # Before localspec is used, whose kernels are those of the whole process.
    talks = [_answered(alone, entry) for entry in entries]
    goal.parent.mkdir(parents=True, exist_ok=True)
    found = [
        {
            "kind": entry["kind"],
            "expect": entry.get("expect", ""),
            "talk": [(one.role, one.content) for one in talk],
        }
        for entry, talk in zip(entries, talks, strict=True)
    ]
    goal.write_text(json.dumps(found, indent=1, ensure_ascii=False), encoding="utf-8")
    counts: dict[str, list[Drafted]] = defaultdict(lambda: [Drafted() for _ in range(3)])
    same = 0
    options = Options(
        target, draft, drafter=("model",), draft_max=K, remember=False, context=2048, threads=1
    )
    rejecting = replace(options, verifier="rejection")
    with Runtime.open(options) as runtime, Runtime.open(rejecting) as other:
        for number, (entry, talk) in enumerate(zip(entries, talks, strict=True)):
            for at in (i for i, one in enumerate(talk) if one.role == "user"):
                request = ReplyRequest(
                    tuple(talk[: at + 1]), sampling=GREEDY, seed=number + 1, max_tokens=400
                )
                drawn = replace(request, sampling=_UNCUT, max_tokens=300)
                replies = runtime.answer(request), runtime.answer(drawn), other.answer(drawn)
                for kind in (entry["kind"], "all"):
                    for count, reply in zip(counts[kind], replies, strict=True):
                        count.add(reply)
                same += replies[0].text == talk[at + 1].content
    log(
        f"{'kind':12} temperature 0 | coupled at 1 | rejection at 1   "
        "(accepted/verified, accepted/drafted, tokens per round)"
    )
    for kind in sorted(counts, key="all".__eq__):
        figures = (
            f"{c.acceptance:.2f} {c.accepted / max(1, c.drafted):.2f} {c.per_pass:.2f}"
            for c in counts[kind]
        )
        log(f"{kind:12} {' | '.join(figures)}")
    log(f"drafted text is that of llama-cpp-python in {same} of {counts['all'][0].replies} replies")


def judge(answers: Path, verdicts: Path, goal: Path) -> dict[str, tuple[int, int]]:
    found = json.loads(answers.read_text(encoding="utf-8"))
    given = json.loads(verdicts.read_text(encoding="utf-8"))
    kinds: dict[str, list[dict]] = defaultdict(list)
    for entry in found:
        kinds[entry["kind"]].append(entry)
    scores, body = {}, []
    for kind, entries in kinds.items():
        marks = given[kind]
        if len(marks) != len(entries):
            raise ValueError(f"{kind}: {len(entries)} answers but {len(marks)} verdicts")
        scores[kind] = (sum(mark == "good" for mark in marks), len(marks))
        body.append(f"\n## {kind}: {scores[kind][0]} of {scores[kind][1]}\n")
        for number, (entry, mark) in enumerate(zip(entries, marks, strict=True), 1):
            body.append(f"\n### {kind} {number}: {mark}\n")
            for role, text in entry["talk"]:
                quoted = "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
                body.append(f"\n**{role}**\n\n{quoted}\n")
    table = "\n| kind | good | of |\n|---|---|---|\n" + "".join(
        f"| {kind} | {good} | {total} |\n" for kind, (good, total) in scores.items()
    )
    goal.write_text(HEAD + table + "".join(body), encoding="utf-8")
    return scores
