"""Turns the answers and human verdicts into a page that can be read and checked."""

import json
from collections import defaultdict
from pathlib import Path

HEAD = """# Judged answers

Every held-out prompt with the answer of the quantized target (`localspec/demo/target.gguf`) at
temperature 0 through llama.cpp, unedited, and a verdict given by reading it. A conversation of
several turns is judged as a whole: every reply must be sensible. `good` means that the answer does
what was asked, or, for requests outside the repertoire, says so.

Made by `scripts/train_demo answers` and `scripts/train_demo judged`; the verdicts are in
`verdicts.json`, in the order of `heldout.json`.
"""


def write(answers: Path, verdicts: Path, goal: Path) -> dict[str, tuple[int, int]]:
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
