"""Fuzz of every reader: files, answers and messages that others made, mutated.

Each case ends in a result or in one of the errors that the reader documents, in one line, within
ten seconds and a gigabyte; anything else is a fault. ``python scripts/fuzz_readers.py --help``.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import http.server
import io
import json
import os
import random
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from faults import limits, mutations
from faults.limits import Case, Fault

CODES = {0, 1, 2, 3, 4, 5, 6, 7, 130}


@dataclass(frozen=True, slots=True)
class Search:
    """One reader and what it reads."""

    name: str
    case: Case


def _outcome(read: Callable[[], object], *also: type[Exception]) -> str | None:
    """What is wrong with how a reader ended."""
    from localspec.errors import LocalspecError

    try:
        read()
    except LocalspecError as error:
        if error.exit_code not in CODES:
            return f"exit code {error.exit_code}"
        return None if str(error).strip() else f"{type(error).__name__} without a word"
    except also:
        return None
    return None


def _command(*words: str) -> str | None:
    """What is wrong with how a command ended."""
    from localspec.cli import call

    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = call(list(words))
        err.flush()
    said = err.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]
    if code not in CODES:
        return f"`{words[0]}` ended with {code}"
    if "defect" in said or "Traceback" in said:
        log = Path(os.environ["LOCALSPEC_HOME"]) / "state" / "defect.log"
        trace = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
        return f"`{words[0]}`: {said.strip()[:300]} {' | '.join(trace[-5:])[:600]}"
    if code and said.count("\n") != 1:
        return f"`{words[0]}` ended with {code} and {said.count(chr(10))} lines: {said[:200]!r}"
    return None


def _fresh(folder: Path) -> Path:
    """A home of its own, and nothing remembered of another."""
    from localspec.config import settings as config
    from localspec.models.catalog import catalog

    home = folder / "home"
    os.environ["LOCALSPEC_HOME"] = str(home)
    os.environ["HF_HOME"] = str(folder / "hf")
    for cached in (config.settings, catalog.catalog):
        cached.cache_clear()
    (home / "config").mkdir(parents=True, mode=0o700)
    return home


# -- models ------------------------------------------------------------------------------------


def small_gguf() -> bytes:
    """A header with all kinds of values, and tensors of a llama with a vocabulary of 300."""
    words = [b"<s>", b"</s>", *(b"<0x%02X>" % i for i in range(256))]
    words += [bytes([97 + i // 26, 97 + i % 26]) for i in range(42)]
    text = lambda raw: struct.pack("<Q", len(raw)) + raw  # noqa: E731 - a line is enough
    metadata: list[tuple[bytes, int, bytes]] = [
        (b"general.architecture", 8, text(b"llama")),
        (b"general.name", 8, text(b"fuzz")),
        (b"general.alignment", 4, struct.pack("<I", 32)),
        *(
            (b"llama." + name, 4, struct.pack("<I", value))
            for name, value in (
                (b"context_length", 512),
                (b"embedding_length", 64),
                (b"block_count", 2),
                (b"feed_forward_length", 128),
                (b"attention.head_count", 2),
                (b"rope.dimension_count", 32),
            )
        ),
        (b"llama.attention.head_count_kv", 9, struct.pack("<IQ2i", 5, 2, 1, 1)),
        (b"llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
        (b"tokenizer.ggml.model", 8, text(b"llama")),
        (b"tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 300) + b"".join(map(text, words))),
        (b"tokenizer.ggml.scores", 9, struct.pack("<IQ300f", 6, 300, *([0.0] * 300))),
        (
            b"tokenizer.ggml.token_type",
            9,
            struct.pack("<IQ300i", 5, 300, 3, 3, *([6] * 256 + [1] * 42)),
        ),
        (b"tokenizer.ggml.bos_token_id", 4, struct.pack("<I", 0)),
        (b"tokenizer.ggml.eos_token_id", 4, struct.pack("<I", 1)),
        (b"tokenizer.ggml.add_bos_token", 7, b"\x01"),
        (
            b"tokenizer.chat_template",
            8,
            text(b"{% for m in messages %}{{ m }}{% endfor %}"),
        ),
    ]
    shapes: list[tuple[bytes, tuple[int, ...]]] = [(b"token_embd.weight", (64, 300))]
    shapes.append((b"output_norm.weight", (64,)))
    for i in range(2):
        shapes += [
            (b"blk.%d.%s.weight" % (i, name), shape)
            for name, shape in (
                (b"attn_norm", (64,)),
                (b"ffn_norm", (64,)),
                (b"attn_q", (64, 64)),
                (b"attn_k", (64, 32)),
                (b"attn_v", (64, 32)),
                (b"attn_output", (64, 64)),
                (b"ffn_gate", (64, 128)),
                (b"ffn_up", (64, 128)),
                (b"ffn_down", (128, 64)),
            )
        ]
    raw = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(metadata)))
    for key, kind, value in metadata:
        raw += text(key) + struct.pack("<I", kind) + value
    offset = 0
    for name, shape in shapes:
        raw += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        raw += struct.pack("<IQ", 0, offset)
        size = 4
        for n in shape:
            size *= n
        offset += -(-size // 32) * 32
    raw = raw.ljust(-(-len(raw) // 32) * 32, b"\0")
    return bytes(raw) + b"\0" * offset


_GGUF = small_gguf()
_HEADER_BYTES = 12_000


def gguf(chance: random.Random, folder: Path) -> str | None:
    """A model file, as `show` reads it, alone or as a draft."""
    _fresh(folder)
    path = folder / "model.gguf"
    head = mutations.in_bytes(_GGUF[:_HEADER_BYTES], chance)
    path.write_bytes(head + _GGUF[_HEADER_BYTES:])
    words = ["show", str(path), "--json", "--offline"]
    if chance.random() < 0.3:
        (folder / "draft.gguf").write_bytes(_GGUF)
        words += ["--draft", str(folder / "draft.gguf")]
    return _command(*words)


def native(chance: random.Random, folder: Path) -> str | None:
    """A model file whose header passes our look at it, opened by llama.cpp; not one of `SEARCHES`,
    since llama.cpp may abort: what is found here is to be recognised before.
    """
    from localspec.llama.model import Model
    from localspec.models.gguf.model_file import ModelFile
    from localspec.models.memory.fit import fit_files
    from localspec.models.memory.planner import Wishes

    path = folder / "model.gguf"
    head = mutations.in_bytes(_GGUF[:_HEADER_BYTES], chance)
    path.write_bytes(head + _GGUF[_HEADER_BYTES:])

    def read() -> None:
        fit_files(ModelFile(path), None, Wishes())
        model = Model(path, gpu_layers=0)
        try:
            for token in model.tokenize("a b\n", special=True, bos=model.adds_bos):
                model.piece(token)
        finally:
            model.close()

    return _outcome(read)


def header_over_http(chance: random.Random, _: Path) -> str | None:
    """A header through a function that sends too little, too much, or something else."""
    from localspec.models.gguf.header import parse_header
    from localspec.models.gguf.vocabulary import HeaderVocabulary, end_tokens, require_text_model

    raw = mutations.in_bytes(_GGUF[:_HEADER_BYTES], chance)
    size = chance.choice((len(raw), len(_GGUF), 1 << 40, 0, 3))

    def fetch(start: int, end: int) -> bytes:
        kind = chance.randrange(20)
        if kind == 0:
            return raw[start : start + (end - start) // 2]
        if kind == 1:
            return raw[:end]
        if kind == 2:
            return chance.randbytes(min(end - start, 1 << 20))
        return raw[start:end].ljust(end - start if end - start < 1 << 26 else 0, b"\0")

    def read() -> None:
        header = parse_header(fetch, size, "model.gguf")
        require_text_model(header)
        assert HeaderVocabulary(header).special_ids
        end_tokens(header)

    return _outcome(read)


def safetensors(chance: random.Random, folder: Path) -> str | None:
    """A checkpoint, and the numbers of its tensors."""
    from localspec.models.gguf.safetensors import read_safetensors

    tensors = {
        "medusa_head.0.0.linear.weight": {
            "dtype": "F32",
            "shape": [4, 8],
            "data_offsets": [0, 128],
        },
        "b": {"dtype": "BF16", "shape": [16], "data_offsets": [128, 160]},
        "__metadata__": {"format": "pt"},
    }
    head = mutations.in_json(json.dumps(tensors).encode(), chance)
    length = len(head) if chance.random() < 0.9 else chance.choice(mutations.NUMBERS)
    raw = struct.pack("<Q", length & ((1 << 64) - 1)) + head + chance.randbytes(160)
    if chance.random() < 0.2:
        raw = mutations.in_bytes(raw, chance)
    path = folder / "model.safetensors"
    path.write_bytes(raw)

    def read() -> None:
        for storage in read_safetensors(path).values():
            if storage.shape:
                storage.rows(0, min(2, storage.shape[0]))

    return _outcome(read)


# -- what the user keeps -----------------------------------------------------------------------

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


def catalogue(chance: random.Random, folder: Path) -> str | None:
    """The user's own models.toml."""
    home = _fresh(folder)
    (home / "config" / "models.toml").write_bytes(mutations.in_text(_CATALOGUE, chance))
    return _command("models", "--json") or _command("show", "mine", "--offline", "--json")


def settings(chance: random.Random, folder: Path) -> str | None:
    """config.toml, its presets, and a change to it."""
    from localspec.config import edit, presets
    from localspec.config import settings as config

    home = _fresh(folder)
    path = home / "config" / "config.toml"
    path.write_bytes(mutations.in_text(_CONFIG, chance))

    def read() -> None:
        config.settings()
        presets.presets()
        presets.called("brief")

    def change() -> None:
        edit.save({("temperature",): 0.5, ("presets", "brief", "seed"): 9})

    wrong = _outcome(read) or _outcome(change)
    return wrong or _command("run", "--preset", "brief", "-m", "none-of-that-name", "hi")


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


def chat_import(chance: random.Random, folder: Path) -> str | None:
    """An export of chats: what is imported can be listed, searched, shown and exported again."""
    _fresh(folder)
    path = folder / "chats.json"
    path.write_bytes(mutations.in_json(_CHATS, chance))
    wrong = _command("chats", "import", str(path))
    for words in (["list"], ["list", "--json"], ["show"], ["search", "abc"]):
        wrong = wrong or _command("chats", *words)
    for form in ("json", "markdown"):
        target = str(folder / f"again.{form}")
        wrong = wrong or _command("chats", "export", "--all", "--format", form, "-o", target)
    return wrong or _restored()


def _restored() -> str | None:
    """The interface's own reading of what is kept of replies."""
    from localspec.chats.store import ChatStore
    from tui.session.conversation import Turn
    from tui.session.reply_record import restore

    with ChatStore() as store:
        for listed in store.listed():
            for message in store.load(listed.info.id).messages:
                turn = Turn(message.role, message.text, id=message.id, created=message.created)
                restore(turn, message.details or {})
    return None


def chat_database(chance: random.Random, folder: Path) -> str | None:
    """The file of chats itself."""
    from localspec.chats.store import ChatStore
    from localspec.chats.transfer import from_json

    home = _fresh(folder)
    with ChatStore() as store:
        store.put_chats(from_json(_CHATS.decode()))
    path = home / "data" / "chats.db"
    raw = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 3, 20))):
        at = chance.randrange(len(raw))
        raw[at : at + 8] = chance.choice(mutations.FIELDS)
    path.write_bytes(raw if chance.random() < 0.8 else raw[: chance.randrange(len(raw))])
    for words in (["list"], ["show"], ["search", "abc"], ["rm", "last"]):
        if wrong := _command("chats", *words):
            return wrong
    return None


def states(chance: random.Random, folder: Path) -> str | None:
    """Saved KV caches."""
    from localspec.generation.kv_files import DamagedError, KvStore

    shelf = KvStore("setting", folder)
    state = memoryview(chance.randbytes(3000))
    shelf.put(held=[1, 2, 3], text="abc", tokens=[1, 2], rate=5.0, state=state)
    (path,) = (folder / "setting").glob("*.state")
    path.write_bytes(mutations.in_bytes(path.read_bytes(), chance))

    def read() -> None:
        found, _ = shelf.saved()
        for saved in found:
            if bytes(shelf.load(saved)) != bytes(state) or saved.held != (1, 2, 3):
                raise AssertionError("a changed state was taken for a whole one")

    return _outcome(read, DamagedError)


_COSTS = {
    "format": 2,
    "costs": {"512": {"verify": {"1": 0.01, "2": 0.011}, "draft": {"model": 0.001}}},
    "survival": [],
}


def costs(chance: random.Random, folder: Path) -> str | None:
    """What a controller learnt, and the history of the benchmark."""
    from localspec.bench import history
    from localspec.policy import storage

    path = folder / "costs.json"
    path.write_bytes(mutations.in_json(json.dumps(_COSTS).encode(), chance))
    storage.load(path)
    run = {"format": 1, "when": "now", "setting": "s", "threads": 1}
    run["results"] = [{"workload": "code", "temperature": 0.0, "ratio": 1.5}]
    book = folder / "history.jsonl"
    book.write_bytes(mutations.in_json(json.dumps(run).encode(), chance) + b"\n")
    history.last(book, "s")
    return None


def attachment(chance: random.Random, folder: Path) -> str | None:
    """Messages that name files, and their contents."""
    from tui.input.attachments import AttachError, attach

    (folder / "a.txt").write_bytes(mutations.in_text(b"hello\nworld = 1\n" * 5, chance))
    text = mutations.in_text(b'see @a.txt and @"b c" or @/dev/null, @~x/y!', chance)
    here = Path.cwd()
    os.chdir(folder)
    try:
        return _outcome(lambda: attach(text.decode("utf-8", "replace")), AttachError)
    finally:
        os.chdir(here)


# -- messages of other processes and hosts -----------------------------------------------------


def _messages() -> list[bytes]:
    from localspec.core.events import Loading, Message, Notice, Reading, Token
    from localspec.core.events import Round as RoundEvent
    from localspec.core.origin import Origin
    from localspec.core.reply_request import ReplyRequest
    from localspec.core.sampling_params import Sampling
    from localspec.engine import protocol
    from localspec.engine.commands import (
        ExamineCommand,
        InterruptCommand,
        OpenCommand,
        ReplyCommand,
    )
    from localspec.engine.events import (
        FailedEvent,
        HelloEvent,
        LoadingEvent,
        ReplyEvents,
    )

    hello = ReplyRequest((Message("user", "a"),), None, Sampling(), 1, 10, ("a",))
    empty = {f.name: 0 for f in dataclasses.fields(RoundEvent)}
    made = [
        OpenCommand({"model": "demo"}),
        ReplyCommand(1, hello),
        ExamineCommand(2, hello, (1, 2)),
        InterruptCommand(1),
        HelloEvent(2, 1),
        LoadingEvent(Loading("a", 0.5)),
        ReplyEvents(1, (Reading(1, 2, 0), Notice("a"))),
        FailedEvent(1, "UsageError", "a", 2),
        ReplyEvents(1, (Token(1, "a", Origin.ACCEPTED, "model"),)),
    ]
    lines = [protocol.encode(message) for message in made]
    lines.append(
        json.dumps({"type": "events", "id": 1, "events": [{"type": "round", **empty}]}).encode()
    )
    return lines


def protocol_lines(chance: random.Random, _: Path) -> str | None:
    """Lines between interface and engine, and between interface and pull."""
    from localspec.engine import protocol
    from localspec.errors import LocalspecError
    from localspec.models.pull import process

    line = mutations.in_json(chance.choice(_messages()).strip(), chance)

    def failed() -> None:
        event = protocol.decode_event(line)
        if hasattr(event, "exception") and not isinstance(event.exception(), LocalspecError):
            raise AssertionError("an error that is none of ours")

    planned = {"said": "Planned", "n_bytes": 1, "missing": 1, "licence": "a", "notices": ["a"]}
    told = mutations.in_json(json.dumps(planned | {"suggestion": None}).encode(), chance)
    return (
        _outcome(lambda: protocol.decode_command(line), protocol.BadCommandError)
        or _outcome(failed)
        or _outcome(lambda: process.decode(told))
    )


_REPO = json.dumps(
    {
        "_id": "1",
        "id": "user/repo",
        "modelId": "user/repo",
        "sha": "0123456789" * 4,
        "gated": False,
        "private": False,
        "tags": ["gguf"],
        "cardData": {"license": "mit"},
        "siblings": [
            {
                "rfilename": "model-Q4_K_M.gguf",
                "size": 1000,
                "blobId": "a" * 40,
                "lfs": {"sha256": "b" * 64, "size": 1000, "pointerSize": 100},
            },
            {"rfilename": "README.md", "size": 10, "blobId": "c" * 40},
        ],
    }
).encode()


class _Hub(http.server.BaseHTTPRequestHandler):
    """Answers everything with the same bytes."""

    answer = b""
    status = 200
    kind = "application/json"

    def do_GET(self) -> None:
        """Send it."""
        self.send_response(self.status)
        self.send_header("Content-Type", self.kind)
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


_server: list[http.server.ThreadingHTTPServer] = []


def hub_answer(chance: random.Random, folder: Path) -> str | None:
    """What the Hub, or what takes its place, says of a repository."""
    from localspec.models.hub import api, file_names

    if not _server:
        _server.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub))
        threading.Thread(target=_server[0].serve_forever, daemon=True).start()
    _fresh(folder)
    os.environ["HF_ENDPOINT"] = f"http://127.0.0.1:{_server[0].server_address[1]}"
    _Hub.answer = mutations.in_json(_REPO, chance)
    _Hub.status = chance.choice((200,) * 12 + (401, 403, 404))
    _Hub.kind = chance.choice(("application/json", "application/json", "text/html"))

    def read() -> None:
        repo = api.look_up("user/repo")
        wanted = file_names.parse("user/repo")
        assert wanted is not None
        file_names.candidates(repo.entries, wanted)

    return _outcome(read)


# -- templates ---------------------------------------------------------------------------------

_PIECES = (
    "{% for m in messages %}", "{% endfor %}", "{% set x = 'a' * 2000000000 %}", "{{ x }}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "{% if x %}",
    "{% endif %}", "{{ m.content }}", "{{ ''.__class__.__mro__ }}", "{{ messages.__init__ }}",
    "{{ cycler.__init__.__globals__ }}", "{{ 9 ** 99999999 }}", "{{ raise_exception('\x1b[2J') }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ messages | tojson }}", "{{ 1 / 0 }}",
    "{{ lipsum(n=100000) }}", "{{ 'x' | center(999999999) }}", "{% set x = [1] * 99999999 %}",
    "{{ '%999999999d' % 1 }}", "{{ x.y.z }}", "{{ strftime_now('%Y' * 99999) }}", "{# #}", "{{",
    "{% include 'x' %}", "{{ range(10) | list | join(',') }}", "{{ messages[99] }}", "(" * 300,
    "{% set ns = namespace(a=1) %}", "{% break %}", "{{ dict(a=1) | items | list }}", "\0",
    "\ud800",
)  # fmt: skip


def template(chance: random.Random, _: Path) -> str | None:
    """Chat templates put together of what hostile ones are made of."""
    from localspec.core.events import Message
    from localspec.generation import template_child, template_process
    from localspec.generation.chat_template import Template

    template_process.SECONDS = 1.0  # type: ignore[misc]
    assert template_child.MEMORY < limits.MEMORY
    source = "".join(chance.choices(_PIECES, k=chance.randint(1, 4)))
    made = lambda: Template(source, bos="<s>", eos="").render([Message("user", "hi\ud800")])  # noqa: E731
    return _outcome(made)


SEARCHES = tuple(
    Search(case.__name__, case)
    for case in (
        gguf,
        header_over_http,
        safetensors,
        catalogue,
        settings,
        chat_import,
        chat_database,
        states,
        costs,
        attachment,
        protocol_lines,
        hub_answer,
        template,
    )
)


def search(names: set[str], cases: int, seed: int, first: int = 0) -> list[Fault]:
    """Run the searches of these names, or all; their faults, told as they are found."""
    found = []
    all_names = {one.name for one in SEARCHES}
    for one in (*SEARCHES, Search("native", native)):
        if one.name not in (names or all_names):
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            faults = limits.run(one.name, one.case, cases, seed, Path(folder), first)
        for fault in faults[:5]:
            print(fault)
        took = time.monotonic() - start
        print(f"{one.name}: {cases} cases, {len(faults)} faults, {took:.0f} s, seed {seed}")
        found += faults
    return found


def main() -> int:
    """The command line; 1 if there are faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="for each reader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", action="append", default=[], help="a reader; repeatable")
    asked = parser.parse_args()
    return 1 if search(set(asked.only), asked.cases, asked.seed, asked.first) else 0


if __name__ == "__main__":
    sys.exit(main())
