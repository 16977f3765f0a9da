"""How many questions about held-out pictures are answered rightly, through localspec itself."""

import argparse
import io
from collections import Counter

import numpy as np

from localspec import Message, Options, ReplyRequest, Runtime, Sampling
from localspec.core.picture import Picture

from .pictures import HELD_OUT, NAMES, SHAPES, Scene, asked, draw, scene


def evaluate(args: argparse.Namespace) -> None:
    """Print the accuracy by question, of seen and of held-out combinations of shape and colour."""
    right: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    drafted = accepted = verified = rounds = emitted = 0
    options = Options(model="demo", mmproj=str(args.out), sees=True, remember=False)
    with Runtime.open(options) as runtime:
        for i in range(args.pictures):
            number = 2_000_001 + 2 * i
            shown = scene(number)
            rng = np.random.default_rng(number)
            question, answer = asked(shown, rng)
            messages = (Message("user", f"\n{question}", pictures=(picture(shown, number),)),)
            request = ReplyRequest(messages, sampling=Sampling(temperature=0), max_tokens=40)
            reply = runtime.answer(request)
            new = shown.digit < 0 and (SHAPES[shown.shape], NAMES[shown.colour]) in HELD_OUT
            key = ("digit" if shown.digit >= 0 else "shapes, new" if new else "shapes", question)
            total[key] += 1
            right[key] += reply.text.strip() == answer
            if args.show and i < args.show:
                print(f"{question} {reply.text.strip()!r} ({answer!r})")
            stats = reply.stats
            drafted, accepted = drafted + stats.drafted, accepted + stats.accepted
            verified, rounds = verified + stats.verified, rounds + stats.rounds
            emitted += stats.emitted
    for key in sorted(total):
        print(f"{key[0]:<12} {key[1]:<28} {right[key]:>4} of {total[key]}")
    print(f"all {sum(right.values())} of {sum(total.values())}")
    if verified:
        print(f"acceptance {accepted / verified:.2f}, {emitted / rounds:.2f} tokens per round")


def picture(shown: Scene, number: int) -> Picture:
    """A held-out picture as a file."""
    buffer = io.BytesIO()
    draw(shown, number, 3 * 64).save(buffer, "PNG")
    return Picture(data=buffer.getvalue())
