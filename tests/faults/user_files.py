"""Damaged files of the user: settings, chats, saved states, measurements, attachments."""

from __future__ import annotations

import json
import os
from pathlib import Path

from faults import mutations
from faults.entries import command, fresh, outcome
from faults.mutations import Chance

_CATALOGUE = b"""[mine]
about = "a pair"
target = {repo = "user/repo", file = "model.gguf", bytes = 1000, revision = "%s"}
draft = {file = "draft.gguf"}
drafting = "draft-model"
licence = "mit"
context = 4096
draft_length = 4
memory = 8
traps = ["one", "two"]
[demo]
about = "ours, changed"
""" % (b"0123456789" * 4)
_CONFIG = b"""model = "demo"
temperature = 0.7
threads = 2
draft_max = "auto"
theme = "dark"
[keys]
send = "enter"
[presets.brief]
system = "Be brief."
temperature = 0.2
top_k = 40
seed = 7
"""


def catalogue(chance: Chance, folder: Path) -> str | None:
    """The user's own models.toml."""
    home = fresh(folder)
    (home / "config" / "models.toml").write_bytes(mutations.in_text(_CATALOGUE, chance))
    return command("models", "--json") or command("show", "mine", "--offline", "--json")


def settings(chance: Chance, folder: Path) -> str | None:
    """config.toml, its presets, and a change to it."""
    from localspec.config import edit, presets
    from localspec.config import settings as config

    home = fresh(folder)
    path = home / "config" / "config.toml"
    path.write_bytes(mutations.in_text(_CONFIG, chance))

    def read() -> None:
        config.settings()
        presets.presets()
        presets.called("brief")

    def change() -> None:
        edit.save({("temperature",): 0.5, ("presets", "brief", "seed"): 9})

    wrong = outcome(read) or outcome(change)
    return wrong or command("run", "--preset", "brief", "-m", "none-of-that-name", "hi")


_STATS = {"prompt_tokens": 1, "cached_tokens": 0, "emitted": 1, "rounds": 1, "drafted": 0}
_CHATS = json.dumps(
    {
        "format": "localspec-chats",
        "version": 1,
        "chats": [
            {
                "title": "a",
                "created": 1.5,
                "updated": 2,
                "named": True,
                "system": "a",
                "model": "demo",
                "draft": None,
                "leaf": 2,
                "messages": [
                    {"id": 1, "parent": None, "role": "user", "text": "a", "created": 1},
                    {
                        "id": 2,
                        "parent": 1,
                        "role": "assistant",
                        "text": "abc",
                        "created": 2,
                        "end": "stop",
                        "details": {
                            "seed": 1,
                            "stats": _STATS,
                            "tokens": {
                                "ids": [1, 2],
                                "lengths": [1, 2],
                                "kinds": [0, 0],
                                "origins": ["accepted"],
                                "sources": [None],
                            },
                        },
                    },
                ],
            }
        ],
    }
).encode()


def chat_import(chance: Chance, folder: Path) -> str | None:
    """An export of chats: what is imported can be listed, searched, shown and exported again."""
    fresh(folder)
    path = folder / "chats.json"
    path.write_bytes(mutations.in_json(_CHATS, chance))
    wrong = command("chats", "import", str(path))
    for words in (["list"], ["list", "--json"], ["show"], ["search", "abc"]):
        wrong = wrong or command("chats", *words)
    for form in ("json", "markdown"):
        target = str(folder / f"again.{form}")
        wrong = wrong or command("chats", "export", "--all", "--format", form, "-o", target)
    return wrong or _restored()


def _restored() -> str | None:
    """The interface's own reading of what is kept of replies."""
    from localspec.chats.store import ChatStore
    from tui.session.conversation import ChatTurn
    from tui.session.reply_record import restore

    with ChatStore() as store:
        for listed in store.listed():
            for message in store.load(listed.info.id).messages:
                turn = ChatTurn(message.role, message.text, id=message.id, created=message.created)
                restore(turn, message.details or {})
    return None


def chat_database(chance: Chance, folder: Path) -> str | None:
    """The file of chats itself."""
    from localspec.chats.store import ChatStore
    from localspec.chats.transfer import from_json

    home = fresh(folder)
    with ChatStore() as store:
        store.put_chats(from_json(_CHATS.decode()))
    path = home / "data" / "chats.db"
    raw = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 3, 20))):
        at = chance.randrange(len(raw))
        raw[at : at + 8] = chance.choice(mutations.FIELDS)
    path.write_bytes(raw if chance.random() < 0.8 else raw[: chance.randrange(len(raw))])
    for words in (["list"], ["show"], ["search", "abc"], ["rm", "last"]):
        if wrong := command("chats", *words):
            return wrong
    return None


def states(chance: Chance, folder: Path) -> str | None:
    """Saved KV caches."""
    from localspec.prefix_cache.file_format import DamagedError
    from localspec.prefix_cache.files import KvStore
    from localspec.prefix_cache.states import Conversation, State, token_ids

    said = Conversation("What is this?", (1, 2, 3, 104, 5))
    shelf = KvStore("setting", folder)
    state = memoryview(chance.randbytes(3000))
    shelf.put(State("", token_ids([1, 2, 3]), state, rate=5.0, conversation=said), 1.0)
    (path,) = (folder / "setting").glob("*.state")
    path.write_bytes(mutations.in_bytes(path.read_bytes(), chance))

    def read() -> None:
        found, _ = shelf.saved()
        for saved in found:
            if saved.conversation != said:
                raise AssertionError("a changed text would be continued")
            if shelf.load(saved).state != state or saved.tokens.tolist() != [1, 2, 3]:
                raise AssertionError("a changed state was taken for a whole one")

    return outcome(read, DamagedError)


_COSTS = {
    "costs": {"3": {"verify": {"1": 0.01, "2": 0.011}, "draft": {"model": 0.001}}},
    "acceptance": [],
}


def costs(chance: Chance, folder: Path) -> str | None:
    """A controller's measurements, and the history of the benchmark."""
    from localspec.bench import history
    from localspec.policy import storage

    path = folder / "costs.json"
    whole = json.dumps(_COSTS | {"format": storage.FORMAT}).encode()
    path.write_bytes(whole)
    assert storage.load(path) is not None, "this search would test nothing"
    path.write_bytes(mutations.in_json(whole, chance))
    storage.load(path)
    run = {"format": 1, "when": "now", "setting": "s", "threads": 1}
    run["results"] = [{"workload": "code", "temperature": 0.0, "ratio": 1.5}]
    book = folder / "history.jsonl"
    book.write_bytes(mutations.in_json(json.dumps(run).encode(), chance) + b"\n")
    history.last(book, "s")
    return None


def attachment(chance: Chance, folder: Path) -> str | None:
    """Messages that name files, and their contents."""
    from tui.input.attachments import AttachError, read
    from tui.input.message_draft import Draft

    (folder / "a.txt").write_bytes(mutations.in_text(b"hello\nworld = 1\n" * 5, chance))
    text = mutations.in_text(b'see @a.txt and @"b c" or @/dev/null, @~x/y!', chance)
    here = Path.cwd()
    os.chdir(folder)
    try:
        return outcome(lambda: read(Draft(text.decode("utf-8", "replace"))).message, AttachError)
    finally:
        os.chdir(here)
