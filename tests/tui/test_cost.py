"""What the interface costs: the decode loop must not pay for being watched."""

import time

import pytest
from fake_engine import FakeEngine, Script

SENTENCE = "the small model drafts tokens and the target checks them all in one pass"
WORDS = SENTENCE.split()


def prose(n):
    return " ".join(WORDS[i % 14] + ("\n\n" if i % 80 == 79 else "") for i in range(n))


def one_list(n):
    return " ".join(("\n- " if i % 14 == 0 else "") + WORDS[i % 14] for i in range(n))


def one_fence(n):
    return "```python\n" + " ".join("x" + ("\n" if i % 12 == 11 else "") for i in range(n))


def one_paragraph(n):
    return "wall " * n


@pytest.mark.slow
@pytest.mark.parametrize("text", [prose, one_list, one_fence, one_paragraph])
@pytest.mark.parametrize("colours", [False, True])
async def test_watching_takes_less_than_two_fifths_of_a_core(chat, text, colours):
    """That is 2 ms a token at 200 tokens a second; a shared machine stretches both sides."""
    engine = FakeEngine([Script(text(800))], pace=0.01)  # about 270 tokens a second
    async with chat(engine=engine, size=(120, 40)) as c:
        if colours:
            await c.pilot.press("ctrl+t")
        c.session.send("go")
        cpu, begun = time.process_time(), time.monotonic()
        await c.until(lambda: c.replies and c.replies[-1].end, seconds=60)
        share = (time.process_time() - cpu) / (time.monotonic() - begun)
    assert share < 0.4
