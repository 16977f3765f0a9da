"""Small arithmetic: sums and differences up to 99, times tables up to 12, comparisons, word problems.

Two-digit sums are worked out in steps, because a model this small is far more reliable when every
step is easy.
"""

from random import Random

from . import words as w
from .phrase import Talk, ask, single

_TEXTS = w.TEXTS["sums"]
NAMED = {"+": "plus", "-": "minus", "*": "times"}


def reserved(a: int, op: str, b: int) -> bool:
    """Pairs of operands that training never sees; held-out sums come from these.

    Sums and differences are kept back in both orders. A product cannot be worked out from others by so
    small a model, so of those only one order is kept back.
    """
    first, second = a, b
    a, b = max(a, b), min(a, b)
    if op == "*":
        return (first, second) in {(7, 8), (6, 9), (4, 11)}
    return a > 12 and b > 9 and (a * 7 + b * 13 + (op == "-")) % 23 == 5


def work(a: int, op: str, b: int) -> str:
    """The worked answer without its conclusion; empty where one step is enough."""
    if op == "+" and a > 9 and b > 9:
        tens, ones = a // 10 * 10 + b // 10 * 10, a % 10 + b % 10
        return (
            f"Add the tens: {a // 10 * 10} + {b // 10 * 10} = {tens}. "
            f"Add the ones: {a % 10} + {b % 10} = {ones}. Together: {tens} + {ones} = {a + b}. "
        )
    if op == "-" and b > 9:
        mid = a - b // 10 * 10
        return f"Take away the tens: {a} - {b // 10 * 10} = {mid}. Take away the ones: {mid} - {b % 10} = {a - b}. "
    return ""


def result(a: int, op: str, b: int) -> int:
    return a + b if op == "+" else a - b if op == "-" else a * b


def solve(a: int, op: str, b: int) -> str:
    steps = work(a, op, b)
    shown = "×" if op == "*" else op
    return f"{steps}{'So ' if steps else ''}{a} {shown} {b} = {result(a, op, b)}."


def draw(rng: Random, op: str | None = None) -> tuple[int, str, int]:
    """Operands that training may see."""
    while True:
        chosen = op or rng.choice("+++---**")
        if chosen == "*":
            a, b = rng.randint(0 if rng.random() < 0.1 else 1, 12), rng.randint(1, 12)
        elif chosen == "+":
            top = rng.choice((9, 20, 99, 99, 99, 99))
            a, b = rng.randint(0, top), rng.randint(0, rng.choice((9, top, top)))
        else:
            top = rng.choice((9, 20, 99, 99, 99, 99, 110))
            a = rng.randint(0, top)
            b = rng.randint(0, min(a, 99))
        if not reserved(a, chosen, b):
            return a, chosen, b


def plain(rng: Random) -> Talk:
    a, op, b = draw(rng)
    return single(ask(rng, _TEXTS[NAMED[op]], a=a, b=b), solve(a, op, b))


def _story(rng: Random) -> Talk:
    op = rng.choice("+-*")
    while True:
        a, op, b = draw(rng, op)
        if a > 1 and b > 1:
            break
    slots = {
        "name": w.some(rng, w.NAMES),
        "things": w.some(rng, w.THINGS),
        "other": w.some(rng, w.NAMES),
    }
    end = {
        "+": f"{slots['name']} has {a + b} {slots['things']}.",
        "-": f"{slots['name']} has {a - b} {slots['things']} left.",
        "*": f"There are {a * b} {slots['things']}.",
    }[op]
    request = ask(rng, _TEXTS[f"story_{NAMED[op]}"], a=a, b=b, **slots)
    return single(request, f"{solve(a, op, b)} {end}")


def _compare(rng: Random) -> Talk:
    a, b = rng.sample(range(100), 2)
    big = rng.random() < 0.6
    relation = "larger" if big else "smaller"
    if rng.random() < 0.25:
        right = (a > b) == big
        answer = f"{'Yes' if right else 'No'}, {a} is {'' if right else 'not '}{relation} than {b}."
        return single(ask(rng, _TEXTS[f"is_{relation}"], a=a, b=b), answer)
    hi, lo = max(a, b), min(a, b)
    answer = f"{hi} is larger than {lo}." if big else f"{lo} is smaller than {hi}."
    return single(ask(rng, _TEXTS[relation], a=a, b=b), answer)


def _table(rng: Random) -> Talk:
    n = rng.randint(1, 12)
    lines = "\n".join(f"{k} × {n} = {k * n}" for k in range(1, 11))
    return single(ask(rng, _TEXTS["table"], n=n), f"Here is the {n} times table:\n\n{lines}")


def _half(rng: Random) -> Talk:
    n = rng.randint(1, 50)
    if rng.random() < 0.5:
        return single(ask(rng, _TEXTS["half"], n=2 * n), f"Half of {2 * n} is {n}.")
    return single(ask(rng, _TEXTS["double"], n=n), f"Twice {n} is {2 * n}.")


def _count(rng: Random) -> Talk:
    a = rng.choice((1, 1, 1, rng.randint(0, 80)))
    b = a + rng.randint(4, 19)
    way, numbers = "up", range(a, b + 1)
    if rng.random() < 0.3:
        b = a + rng.randint(4, 12)
        way, numbers = "down", range(b, a - 1, -1)
    return single(ask(rng, _TEXTS[way], a=a, b=b), ", ".join(map(str, numbers)) + ".")


def _parity(rng: Random) -> Talk:
    n = rng.randint(0, 99)
    kinds = ("odd", "even") if rng.random() < 0.5 else ("even", "odd")
    request = ask(rng, _TEXTS["parity"], n=n, k=kinds[0], o=kinds[1])
    return single(request, f"{n} is {'odd' if n % 2 else 'even'}.")


def sums(rng: Random) -> Talk:
    makers = (plain, _story, _compare, _table, _half, _count, _parity)
    return rng.choices(makers, (10, 4, 1.6, 0.7, 0.8, 1.6, 0.4))[0](rng)
