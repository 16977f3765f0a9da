"""Small arithmetic: sums and differences up to 99, times tables up to 12, comparisons, word problems.

Two-digit sums are worked out in steps, because a model this small is far more reliable when every
step is easy.
"""

from random import Random

from . import words as w
from .phrase import Talk, ask, single


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


_WORDING = {
    "+": [
        "[what is|what's|calculate|compute|how much is|||please compute|can you calculate|tell me|solve|"
        "work out] {a} [+|plus|and] {b}?",
        "[add|please add|can you add|sum up|add up|could you add up|please add together] {a} and {b}[|| for me| please].",
        "[what do|how much do|what will] {a} and {b} [make|give|add up to][| together| in total]?",
        "[tell me|say|can you tell me|do you know] [what|how much] {a} [plus|and|+] {b} [is|makes|gives].",
        "{a}+{b}",
        "{a} + {b} = ?",
        "{a} + {b}",
        "{a} + {b} =",
        "{a}+{b}=?",
        "[what is|give me] the sum of {a} and {b}?",
        "what do you get if you add {b} to {a}?",
        "[and |so |ok, ][what is |how much is |]{a} plus {b}?",
        "[what does] {a} plus {b} [make|equal|give]?",
    ],
    "-": [
        "[what is|what's|calculate|compute|how much is|||please compute|can you calculate|tell me|solve|"
        "work out] {a} [-|minus|take away|less] {b}?",
        "[subtract|take|please subtract|take away] {b} from {a}.",
        "[tell me|say|can you tell me|do you know] [what|how much] {a} [minus|-|less] {b} [is|makes|gives].",
        "what remains of {a} [without|minus|if you take away] {b}?",
        "{a}-{b}",
        "{a}-{b}=",
        "{a} - {b} = ?",
        "{a} - {b}",
        "{a} - {b} =",
        "{a}-{b}=?",
        "what is the difference between {a} and {b}?",
        "what is left if you take {b} from {a}?",
        "[what does] {a} minus {b} [make|equal|give]?",
    ],
    "*": [
        "[what is|what's|calculate|compute|how much is|||please compute|can you calculate|tell me|solve|"
        "work out] {a} [*|times|x|×|multiplied by] {b}?",
        "[multiply|please multiply] {a} [by|and|with] {b}.",
        "[tell me|say|can you tell me|do you know] [what|how much] {a} [times|x|*] {b} [is|makes|gives].",
        "{a} [times|x|by] {b} [is|makes|gives|equals] [what|how much]?",
        "{a}*{b}",
        "{a} * {b}",
        "{a} x {b} =",
        "{a}x{b}",
        "{a} × {b}",
        "[what is|give me] the product of {a} and {b}?",
        "[what does] {a} times {b} [make|equal|give]?",
    ],
}


def question(rng: Random, a: int, op: str, b: int) -> str:
    return ask(rng, rng.choice(_WORDING[op]), a=a, b=b)


def _plain(rng: Random) -> Talk:
    a, op, b = draw(rng)
    return single(question(rng, a, op, b), solve(a, op, b))


def _story(rng: Random) -> Talk:
    op = rng.choice("+-*")
    while True:
        a, op, b = draw(rng, op)
        if a > 1 and b > 1:
            break
    slots = {
        "a": a,
        "b": b,
        "name": w.some(rng, w.NAMES),
        "things": w.some(rng, w.THINGS),
        "other": w.some(rng, w.NAMES),
    }
    if op == "+":
        text = (
            "{name} [has|had|owns] {a} {things} [and buys|and then buys {b} more|and gets {b} more|and finds {b} more|and {other} gives "
            "{name} {b} more]. How many {things} [does {name} have|does {name} have now|are there|are there now]?"
        )
        end = f"{slots['name']} has {a + b} {slots['things']}."
    elif op == "-":
        text = (
            "{name} [has|had] {a} {things} and [gave away|lost|sold|gives away|loses|sells|eats up|gives {other}|breaks] {b}[ of them|]. "
            "How many {things} [are left|does {name} have now|does {name} have left|remain]?"
        )
        end = f"{slots['name']} has {a - b} {slots['things']} left."
    else:
        text = (
            "[There are {a} boxes with {b} {things} each|{name} buys {a} bags with {b} {things} each|"
            "{name} has {a} boxes, each with {b} {things}]. How many {things} are [there|that|there in total|that together]?"
        )
        end = f"There are {a * b} {slots['things']}."
    return single(ask(rng, text, **slots), f"{solve(a, op, b)} {end}")


def _compare(rng: Random) -> Talk:
    a, b = rng.sample(range(100), 2)
    big = rng.random() < 0.6
    text = (
        "[which is|which number is|what is|which one is] [larger|bigger|greater], {a} or {b}?"
        if big
        else "[which is|which number is|what is|which one is] [smaller|less], {a} or {b}?"
    )
    if rng.random() < 0.25:
        text = (
            "is {a} [larger|bigger|greater] than {b}?" if big else "is {a} [smaller|less] than {b}?"
        )
        right = (a > b) == big
        relation = "larger" if big else "smaller"
        answer = (
            f"Yes, {a} is {relation} than {b}." if right else f"No, {a} is not {relation} than {b}."
        )
        return single(ask(rng, text, a=a, b=b), answer)
    hi, lo = max(a, b), min(a, b)
    answer = f"{hi} is larger than {lo}." if big else f"{lo} is smaller than {hi}."
    return single(ask(rng, text, a=a, b=b), answer)


def _table(rng: Random) -> Talk:
    n = rng.randint(1, 12)
    text = (
        "[show me|write|give me|list|what is|write down|print||please write|write out|i need|say] the [{n} times table|times table of {n}|"
        "multiplication table of {n}|multiplication table for {n}|table of {n}]."
    )
    lines = "\n".join(f"{k} × {n} = {k * n}" for k in range(1, 11))
    return single(ask(rng, text, n=n), f"Here is the {n} times table:\n\n{lines}")


def _half(rng: Random) -> Talk:
    n = rng.randint(1, 50)
    if rng.random() < 0.5:
        return single(
            ask(
                rng,
                "[what is|what's|calculate|] [half of {n}|the half of {n}|{n} divided by 2|{n} / 2]?",
                n=2 * n,
            ),
            f"Half of {2 * n} is {n}.",
        )
    return single(
        ask(rng, "[what is|what's|calculate|] [double {n}|twice {n}|the double of {n}]?", n=n),
        f"Twice {n} is {2 * n}.",
    )


def _count(rng: Random) -> Talk:
    a = rng.choice((1, 1, 1, rng.randint(0, 80)))
    b = a + rng.randint(4, 19)
    if rng.random() < 0.3:
        b = a + rng.randint(4, 12)
        text = "[count|please count|can you count] [backwards|down] from {b} to {a}."
        numbers = range(b, a - 1, -1)
    else:
        text = "[count|please count|can you count|list the numbers|write the numbers|count up|count for me|give me the numbers|say the numbers] from {a} to {b}."
        numbers = range(a, b + 1)
    return single(ask(rng, text, a=a, b=b), ", ".join(map(str, numbers)) + ".")


def _parity(rng: Random) -> Talk:
    n = rng.randint(0, 99)
    odd = rng.random() < 0.5
    word = "odd" if odd else "even"
    return single(
        ask(rng, "is {n} [{k}|an {k} number|{k} or {o}]?", n=n, k=word, o="even" if odd else "odd"),
        f"{n} is {'odd' if n % 2 else 'even'}.",
    )


def sums(rng: Random) -> Talk:
    maker = rng.choices(
        (_plain, _story, _compare, _table, _half, _count, _parity), (10, 4, 1.6, 0.7, 0.8, 1.6, 0.4)
    )[0]
    return maker(rng)
