"""Every command on a terminal, with names, chats, templates and files that hold what it obeys."""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import brief_doctor
import gguf
import gguf_tools
import known_speed
import numpy as np
import pytest
import terminals

from localspec.cli import COMMANDS

ROOT = Path(__file__).parents[2]
POISON = "\x1b]52;c;UE9JU09O\x07\x1b]0;POISON\x07\x1b[31mPOISON\x9b2J\u202ePOISON\x08\x7f"
TEMPLATE = "{{ raise_exception('" + POISON + "') }}"

pytestmark = [
    pytest.mark.slow,
    terminals.needed,
]


def harmful(drawn: str) -> list[str]:
    """The part of the poison that a terminal would obey."""
    drawn = re.sub(r"\x1b\]2;localspec · [^\x1b\x07]*\x07", "", drawn)  # the title of the window
    escapes = re.findall(r"\x1b\][^\x07]*POISON|\x1b\]52;[^\x07]*|\x1b\[31mPOISON", drawn)
    return escapes + re.findall("[\x80-\x9f\u202a-\u202e\u2066-\u2069\x7f]", drawn)


def on_terminal(*words: str, keys: bytes = b"", until: str = "", seconds: float = 90) -> str:
    """The drawing of a command on a terminal that is all three standard streams, until it ends or
    has drawn ``until`` after the ``keys``.
    """
    import pty

    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "localspec", *words],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=ROOT,
        env=os.environ | {"TERM": "xterm-256color", "TEXTUAL_ANIMATIONS": "none"},
        start_new_session=True,
    )
    os.close(slave)
    drawn, sent, end = bytearray(), 0, time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    chunk = os.read(master, 1 << 16)
                except OSError:
                    break
                if not chunk:
                    break
                drawn += chunk
                if keys and b"POISON" in drawn:  # it is on the screen
                    os.write(master, keys)
                    keys, sent = b"", len(drawn)
                elif sent and until and until.encode() in drawn[sent:]:
                    break
            elif process.poll() is not None:
                break
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(master)
    return drawn.decode("utf-8", "replace")


@pytest.fixture
def poisoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """For each command, arguments that bring poison to the screen."""
    home = tmp_path / "home"
    monkeypatch.setenv("LOCALSPEC_HOME", str(home))
    for name in ("config", "data"):
        (home / name).mkdir(parents=True, mode=0o700)
    folder = tmp_path / "models"
    folder.mkdir()
    named = folder / f"{POISON.replace('/', '')}.gguf"
    gguf_tools.write_llama(named, template=TEMPLATE)
    babbling = gguf_tools.write_llama(folder / "babbling.gguf", template=None)
    titled = folder / "titled.gguf"
    writer = gguf.GGUFWriter(titled, "llama")
    writer.add_name(POISON)
    writer.add_license(POISON)
    writer.add_tensor(f"{POISON[:9]}", np.ones(32, np.float32))
    gguf_tools.written(writer)
    value = json.dumps(POISON).replace("\x7f", "\\u007f").replace("\x9b", "\\u009b")
    value = value.replace("\u202e", "\\u202e")
    (home / "config" / "models.toml").write_text(
        f"[poison]\nabout = {value}\nlicence = {value}\ntraps = [{value}]\n"
        f"target = {json.dumps(str(babbling))}\n",
        encoding="utf-8",
    )
    known_speed.save()
    custom = tmp_path / "custom"
    brief_doctor.write(custom)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(custom)]))
    (home / "config" / "config.toml").write_text(
        f"[presets.poison]\nsystem = {value}\n", encoding="utf-8"
    )
    text = f"POISON {POISON}\n\n`{POISON}`\n"
    message = {"id": 1, "parent": None, "role": "user", "text": text, "created": 1}
    reply = message | {"id": 2, "parent": 1, "role": "assistant", "end": "stop"}
    chat = {"title": POISON, "created": 1, "updated": 1, "model": POISON, "system": POISON}
    chat |= {"messages": [message, reply]}
    whole = {"format": "localspec-chats", "version": 1, "chats": [chat]}
    (tmp_path / "chats.json").write_text(json.dumps(whole))
    some = ["-n", "48", "--threads", "1", "-t", "3", "--seed", "1"]
    model = str(babbling)
    return {
        "chat": [["chat", POISON], ["chat", str(named)], ["chat", "demo", "--resume"]],
        "chats": [
            ["chats", "import", str(tmp_path / "chats.json")],
            ["chats"],
            ["chats", "list", "--json"],
            ["chats", "show"],
            ["chats", "search", "POISON"],
            ["chats", "search", "--json", "POISON"],
            ["chats", "export", "last"],
            ["chats", "export", "last", "--format", "markdown"],
            ["chats", "show", POISON],
        ],
        "run": [
            ["run", "-m", str(named), "hi", *some],
            ["run", "-m", model, "--raw", "hi", *some],
            ["run", "-m", model, "--raw", "hi", "--json", *some],
            ["run", "-m", POISON, "hi"],
            ["run", "--preset", POISON, "hi"],
        ],
        "serve": [["serve", POISON], ["serve", str(titled)], ["serve", "demo", "--host", POISON]],
        "worker": [["worker", "--bind", POISON], ["worker", "--source", POISON, "--bind", "x:y"]],
        "pull": [["pull", POISON, "--offline"], ["pull", "poison", "--offline"]],
        "models": [["models"], ["models", "--json"]],
        "show": [
            ["show", str(titled), "--offline"],
            ["show", str(titled), "--offline", "--json"],
            ["show", str(named), "--offline"],
            ["show", "poison", "--offline"],
            ["show", "poison", "--offline", "--json"],
        ],
        "rm": [["rm", POISON], ["rm", "poison"]],
        "verify": [["verify", str(named), "--limit", "1", "-n", "4", "--threads", "1"]],
        "bench": [
            ["bench", POISON],
            ["bench", model, "--workload", POISON],
            ["bench", model, "--against", POISON],
        ],
        "make-draft": [["make-draft", str(titled)], ["make-draft", model, "--layers", POISON]],
        "tune": [["tune", str(titled)], ["tune", POISON]],
        "build-llama": [["build-llama", POISON]],
        "demo": [["demo", "--plain", POISON]],
        "completion": [["completion", POISON], ["completion", "bash"]],
        "embed": [["embed", str(titled)], ["embed", POISON], ["embed", model, "--query", POISON]],
        "doctor": [["doctor", "--offline"], ["doctor", "--offline", POISON]],
    }


@pytest.mark.timeout(600)  # fifty processes, beside whatever else the machine computes
def test_no_command_lets_a_terminal_obey_what_strangers_wrote(
    poisoned: dict[str, list[list[str]]],
) -> None:
    assert set(poisoned) == set(COMMANDS), "a new command needs poisoned arguments here"
    chat, (first, *others) = poisoned.pop("chat"), poisoned.pop("chats")
    calls = [*others, *itertools.chain.from_iterable(poisoned.values())]
    drawn_by = [on_terminal(*first)]  # the import, which the others show
    with ThreadPoolExecutor(4) as pool:
        drawn_by += pool.map(lambda words: on_terminal(*words), calls)
    seen = 0
    for words, drawn in zip([first, *calls], drawn_by, strict=True):
        assert harmful(drawn) == [], f"{words}: {drawn!r}"
        assert "defect" not in drawn, drawn
        seen += "POISON" in drawn
    assert seen > 20
    imported = json.loads(on_terminal("chats", "list", "--json"))[0]["id"]
    chat[-1].append(str(imported))  # the others make chats of their own, if they get that far
    # The interface, with a name of nothing, a model that refuses, and a chat that was imported.
    for words, until in zip(chat, ("", "template refuses", "tokens in"), strict=True):
        drawn = on_terminal(*words, keys=b"hi\r", until=until)
        assert "POISON" in drawn, f"{words}: {drawn!r}"
        assert until in drawn, f"{words}: {drawn!r}"
        assert harmful(drawn) == [], f"{words}: {drawn!r}"


def test_the_eye_that_looks_for_harm_sees_it() -> None:
    assert len(harmful(POISON)) >= 5
