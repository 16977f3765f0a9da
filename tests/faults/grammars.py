"""Grammars made to take time and memory: what passes the rehearsal must be cheap to follow."""

from __future__ import annotations

import functools
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from faults.mutations import Chance

TOKEN_SECONDS = 0.25
"""Of computing, for one step of a reply: so long all others may wait for it."""
BUILD_SECONDS = 2.0
"""Of computing, to make a matcher: twice what the rehearsal allows, since machines are busy."""
GROWTH = 192 << 20
"""Bytes that a matcher may take after many tokens."""
_STEPS = 60
_WORDS = 32000


def grammars(chance: Chance, _: Path) -> str | None:
    """Grammars put together of what hostile ones are made of, tried out and then followed."""
    from localspec.core.errors import UsageError
    from localspec.core.grammar_spec import GrammarSpec

    kind, text, path = spelled(chance)
    try:
        spec = GrammarSpec(kind, text)  # type: ignore[arg-type]
        found = checker().checked(spec)
    except UsageError as error:
        return None if len(str(error).splitlines()) == 1 else f"not one line: {error}"
    return followed(found.grammar, chance, path)


def followed(grammar: str, chance: Chance, path: str = "") -> str | None:
    """What is wrong with the time and the memory that following a grammar takes: along ``path``,
    character by character, and then along a random text.
    """
    from llguidance import LLMatcher

    from localspec.grammar import rehearsal
    from localspec.grammar.compiling import limits

    before = rehearsal.allocated()
    began = time.process_time()
    matcher = LLMatcher(vocabulary(), grammar, log_level=0, limits=limits())
    seconds = time.process_time() - began
    if seconds > BUILD_SECONDS:
        return f"a matcher takes {seconds:.2f} seconds"
    worst, at = 0.0, 0
    given = iter(path.encode())
    for step in range(len(path) + _STEPS):
        words, mask_seconds = _timed(matcher.compute_bitmask)
        if matcher.is_error() or matcher.is_stopped():
            break
        bits = np.unpackbits(np.frombuffer(words, np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits)
        if not len(allowed):
            break
        byte = next(given, None)
        token = int(chance.choice(allowed.tolist()[:4] if chance.random() < 0.3 else allowed))
        if byte is not None:
            token = single()[byte]
        _, forced_seconds = _timed(matcher.compute_ff_tokens)
        _, read_seconds = _timed(functools.partial(matcher.try_consume_tokens, [token]))
        slowest = max(mask_seconds, forced_seconds, read_seconds)
        worst, at = max((worst, at), (slowest, step))
    if worst > TOKEN_SECONDS:
        return f"token {at} takes {worst:.2f} seconds"
    growth = rehearsal.allocated() - before
    return f"a matcher grows to {growth >> 20} MB" if growth > GROWTH else None


def _timed(step: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    found = step()
    return found, time.process_time() - began


@functools.cache
def single() -> dict[int, int]:
    """The tokens of single bytes."""
    tokens = ((i, vocabulary().decode_bytes([i])) for i in range(vocabulary().vocab_size))
    return {token[0]: i for i, token in tokens if len(token) == 1}


@functools.cache
def checker() -> Any:
    """Tries grammars out as an engine does."""
    from localspec.grammar.checking import Checker

    return Checker(vocabulary)


@functools.cache
def vocabulary() -> Any:
    """Bytes, numbers, words with and without a space, punctuation of JSON."""
    from localspec.grammar.rehearsal import tokenizer

    chance = random.Random(1)
    tokens = {bytes([i]) for i in range(256)} | {str(i).encode() for i in range(1000)}
    tokens |= {
        w.encode() for w in ('": "', '", "', '{"', '"}', '": ', '":', ' "', "[[", "]]", "},")
    }
    while len(tokens) < _WORDS:
        word = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9)))
        tokens.add((" " * chance.randint(0, 1) + word).encode())
    return tokenizer([*sorted(tokens), b"\xff<end>"], [len(tokens)])


def spelled(chance: Chance) -> tuple[str, str, str]:
    """The kind and the text of a grammar, and the beginning of the text that follows it."""
    made = chance.random()
    if made < 0.1:
        most = chance.choice([100, 400, 800, 2000])
        branches = int(most * chance.uniform(0.1, 0.6))
        depth = int((most - branches) * chance.uniform(0.3, 0.95))
        return "lark", *late(branches, depth, chance.choice([2, 9, 30, 59]))
    if made < 0.2:
        begin = "x" * chance.choice([20, 100, 400])
        return "lark", f'start: "{begin}" T\nT: /{_regex(chance, 4)}/', begin
    if made < 0.6:
        return "schema", json.dumps(_schema(chance, 3)), ""
    if made < 0.8:
        return "regex", _regex(chance, 4), ""
    return "lark", _lark(chance), ""


def late(branches: int, depth: int, ends: int) -> tuple[str, str]:
    """A grammar that is cheap for ``depth`` characters, and the text that leads to its one costly
    place: there ``depth`` rules may end in ``ends`` ways, each with ``branches`` to go on.
    """
    letters = "abcdefghijklmnopqrstuvyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"[:ends]
    text = (
        "start: z\nz: " + " | ".join(f"l a q{k}" for k in range(branches)) + "\n"
        'l: l "x" | \na: "x" a | "qzqzqz" end\nend: '
        + " | ".join(f'"{letter}"' for letter in letters) + "\n"
        + "\n".join(f'q{k}: "k{k}"' for k in range(branches))
    )  # fmt: skip
    return text, "x" * depth + "qzqzqz"


def _number(chance: Chance) -> int:
    return chance.choice(
        [2, 3, 7, 97, 997, 9973, 99991, 999983, 9999991, 2**31 - 1, 10**9, 10**18, 1 << 62]
    )


def _schema(chance: Chance, deep: int) -> dict[str, Any]:
    plain: list[Callable[[], dict[str, Any]]] = [
        lambda: {"type": "integer", "multipleOf": _number(chance)},
        lambda: {"type": "integer", "minimum": -_number(chance), "maximum": _number(chance)},
        lambda: {
            "type": chance.choice(["integer", "number"]),
            "multipleOf": chance.choice([3, 997, 0.01, 0.00001, 1e-9, 99991]),
            "minimum": -_number(chance),
            "exclusiveMaximum": _number(chance),
        },
        lambda: {"type": "number", "minimum": 1 / _number(chance), "maximum": _number(chance)},
        lambda: {
            "type": "string",
            "minLength": chance.choice([0, 9, 999, 99999]),
            "maxLength": 10**5,
        },
        lambda: {"type": "string", "pattern": _regex(chance, 3)},
        lambda: {"type": "string", "format": chance.choice(["date-time", "email", "uri", "ipv6"])},
        lambda: {"enum": [f"w{i * 7919}" for i in range(chance.choice([2, 200, 5000]))]},
        lambda: {"type": ["string", "number", "null", "object", "array"]},
        dict,
    ]
    if deep == 0 or chance.random() < 0.3:
        return chance.choice(plain)()
    parts = [_schema(chance, deep - 1) for _ in range(chance.randint(1, 4))]
    many = chance.choice([1, 2, 30, 300] if deep == 1 else [1, 2])
    return chance.choice(
        [
            {chance.choice(["allOf", "anyOf", "oneOf"]): parts},
            {"allOf": [{"anyOf": parts}, {"anyOf": parts[::-1]}, {"anyOf": parts}]},
            {"type": "object", "properties": {f"p{i}": p for i, p in enumerate(parts * many)}},
            {
                "type": "object",
                "properties": {f"p{i}": p for i, p in enumerate(parts * many)},
                "required": [f"p{i}" for i in range(len(parts) * many)],
                "additionalProperties": False,
            },
            {"type": "object", "additionalProperties": parts[0], "maxProperties": _number(chance)},
            {"type": "array", "items": parts[0], "minItems": chance.choice([0, 9, 9999, 10**6])},
            {"type": "array", "prefixItems": parts * many},
            {
                "$defs": {f"d{i}": {"anyOf": [p, {"$ref": f"#/$defs/d{(i + 1) % len(parts)}"}]}
                          for i, p in enumerate(parts)},
                "$ref": "#/$defs/d0",
            },
            {"type": "object", "properties": {"a": parts[0], "b": {"$ref": "#"}}},
        ]
    )  # fmt: skip


def _regex(chance: Chance, deep: int) -> str:
    if deep == 0:
        return chance.choice(["a", "[a-z]", ".", r"\d", r"\w", "(ab|a|b)", r"\p{L}", "é", "[^x]"])
    inner = _regex(chance, deep - 1)
    most = chance.choice([2, 9, 50, 400, 5000, 100000])
    return chance.choice(
        [
            f"({inner})*",
            f"({inner}){{0,{most}}}",
            f"({inner}){{{most}}}",
            f"(.*{inner}){{{min(most, 50)}}}",
            f"(a|b)*{inner}(a|b){{{min(most, 400)}}}",
            f"({inner}|{_regex(chance, deep - 1)})+",
            f"{inner}{_regex(chance, deep - 1)}",
            f"({inner}?){{{min(most, 400)}}}({inner}){{{min(most, 400)}}}",
        ]
    )


def _lark(chance: Chance) -> str:
    one, two = _regex(chance, 2), _regex(chance, 2)
    most = chance.choice([3, 50, 1000, 20000])
    alternatives = " | ".join(f'"k{i * 31}"' for i in range(chance.choice([2, 100, 3000])))
    return chance.choice(
        [
            f"start: T\nT: /{one}/ & /{two}/",
            f"start: T\nT: /{one}/ & ~/{two}/",
            f"start: T U\nT: /(?s:.*){one}/ & ~/(?s:.*){two}(?s:.*)/\nU: /{two}/",
            'start: a\na: a a | a a a | "x" | ',
            f"start: e\ne: e e | e /{one}/ e | /{two}/",
            f"start: (/{one}/ | /{two}/ | start){{0,{most}}}",
            f"start: ({alternatives})+",
            f'start: ("a"? "b"?){{{min(most, 1000)}}} /{one}/',
            "start: " + " | ".join(f"r{i}" for i in range(50)) + "\n"
            + "\n".join(f"r{i}: r{(7 * i + 1) % 50} | /{one}/ r{3 * i % 50} |" for i in range(50)),
            f"start: x{{0,{most}}}\nx[max_tokens=3]: /{one}/",
            f"start: %json {json.dumps(_schema(chance, 1))} T\nT: /{two}/",
        ]
    )  # fmt: skip
