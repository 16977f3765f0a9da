"""Texts on which the training tokenizer and llama.cpp must agree; needs neither of them."""

from pathlib import Path
from random import Random

from . import tokenizer as tok
from .copying import Quotes
from .corpus import HeldOut, conversations, docstring_sentences

_ODD = [
    "日本語のテキスト",
    "مرحبا بالعالم",
    "👩‍👩‍👧 👍🏽",
    "a\u00a0b",
    "one\r\ntwo\r\n",
    "I'LL we'Ve",
    "ſ K",
    "   lead",
    "trail   ",
    "\t\ttabs",
    "x=1;y=2",
    "1234567890",
    "1.5e-7",
    "\n\n\nthree",
    "<|im_start|>user\nhi<|im_end|>\n",
    "naïve café",
    "a_b__c",
    "<|endoftext|>",
    "C:\\path\\file",
    "Ünïcödé",
    "—–…",
    "½ ² Ⅷ",
    "\u200b",
    "𝔘𝔫𝔦",
    "don't can't it's",
    "  \n  \n x",
]


def samples(count: int, seed: int = 99) -> list[str]:
    """Renderings of fresh conversations, cut anywhere, and a share of hostile strings."""
    rng = Random(seed)
    source = conversations(seed, HeldOut(Path("nowhere")), Quotes(docstring_sentences()))
    found = []
    while len(found) < count * 17 // 20:
        text = tok.render(next(source)[1])
        start = rng.randrange(len(text))
        found.append(text[start : start + rng.randint(1, 400)])
    while len(found) < count:
        found.append("".join(rng.choices(_ODD, k=rng.randint(1, 4))))
    return found
