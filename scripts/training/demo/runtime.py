"""Plain reference loops on llama.cpp, separate from the engine, so that they can judge the pair independently."""

import ctypes
from dataclasses import dataclass
from pathlib import Path

import llama_cpp
import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]
END = 2


@llama_cpp.llama_log_callback
def _quiet(_level: int, _text: bytes, _data: ctypes.c_void_p) -> None:
    pass


class Runner:
    """One model with one sequence; `ids` are the tokens in its cache."""

    def __init__(
        self, path: Path, context: int = 2048, threads: int = 1, exact_cache: bool = False
    ) -> None:
        llama_cpp.llama_log_set(_quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise RuntimeError(f"cannot load {path}")
        cp = llama_cpp.llama_context_default_params()
        cp.n_ctx = cp.n_batch = cp.n_ubatch = context
        cp.n_threads = cp.n_threads_batch = threads
        cp.flash_attn_type = 0
        if exact_cache:
            cp.type_k = cp.type_v = llama_cpp.GGML_TYPE_F32
        self.ctx = llama_cpp.llama_init_from_model(self.model, cp)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.size = llama_cpp.llama_vocab_n_tokens(self.vocab)
        self.batch = llama_cpp.llama_batch_init(context, 0, 1)
        self.ids: list[int] = []

    def tokenize(self, text: str) -> list[int]:
        data = text.encode("utf-8")
        room = len(data) + 8
        buffer = (llama_cpp.llama_token * room)()
        n = llama_cpp.llama_tokenize(self.vocab, data, len(data), buffer, room, False, True)
        return list(buffer[:n])

    def text(self, ids: list[int], special: bool = False) -> str:
        out = b""
        buffer = ctypes.create_string_buffer(256)
        for token in ids:
            n = llama_cpp.llama_token_to_piece(self.vocab, token, buffer, 256, 0, special)
            out += buffer.raw[:n]
        return out.decode("utf-8", "replace")

    def feed(self, ids: list[int], every: bool = False) -> Logits:
        """Append tokens; the logits after each of them, or after the last one only."""
        b = self.batch
        b.n_tokens = len(ids)
        for i, token in enumerate(ids):
            b.token[i], b.pos[i], b.n_seq_id[i] = token, len(self.ids) + i, 1
            b.seq_id[i][0] = 0
            b.logits[i] = every or i == len(ids) - 1
        if code := llama_cpp.llama_decode(self.ctx, b):
            raise RuntimeError(f"llama_decode failed with {code}")
        self.ids += ids
        rows = len(ids) if every else 1
        return np.ctypeslib.as_array(
            llama_cpp.llama_get_logits(self.ctx), shape=(rows, self.size)
        ).copy()

    def keep(self, count: int) -> None:
        llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(self.ctx), 0, count, -1)
        del self.ids[count:]

    def follow(self, ids: list[int]) -> Logits:
        """Make the cache contain exactly `ids`; returns the logits after the last one."""
        same = 0
        while same < min(len(self.ids), len(ids) - 1) and self.ids[same] == ids[same]:
            same += 1
        self.keep(same)
        return self.feed(ids[same:])[0]


def probabilities(logits: Logits) -> NDArray[np.float64]:
    e = np.exp(logits.astype(np.float64) - logits.max())
    return e / e.sum()


def greedy(target: Runner, prompt: list[int], limit: int = 400) -> list[int]:
    """The reply at temperature 0, one token at a time, without its end token."""
    row, reply = target.follow(prompt), []
    while len(reply) < limit:
        token = int(row.argmax())
        if token == END:
            break
        reply.append(token)
        row = target.feed([token])[0]
    return reply


@dataclass
class Count:
    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    emitted: int = 0
    rounds: int = 0

    def add(self, other: "Count") -> None:
        for key, value in vars(other).items():
            setattr(self, key, getattr(self, key) + value)

    @property
    def acceptance(self) -> float:
        return self.accepted / max(1, self.verified)


class Speculation:
    """One reply; `mode` is greedy (temperature 0), or rejection or coupled (temperature 1, uncut)."""

    def __init__(self, target: Runner, draft: Runner, mode: str, seed: int, k: int = 4) -> None:
        self.target, self.draft, self.mode, self.seed, self.k = target, draft, mode, seed, k
        self.rng, self.count = np.random.default_rng(seed), Count()

    def choose(self, logits: Logits, position: int) -> int:
        if self.mode == "greedy":
            return int(logits.argmax())
        p = probabilities(logits)
        if self.mode == "rejection":
            return int(self.rng.choice(len(p), p=p))
        # Both models see the same noise at the same position, so they often choose alike.
        noise = np.random.Generator(np.random.Philox(key=[self.seed, position]))
        return int((np.log(p + 1e-300) + noise.gumbel(size=len(p))).argmax())

    def propose(self, so_far: list[int]) -> tuple[list[int], list[NDArray[np.float64]]]:
        drafted: list[int] = []
        proposals: list[NDArray[np.float64]] = []
        row = self.draft.follow(so_far)
        while True:
            drafted.append(self.choose(row, len(so_far) + len(drafted)))
            proposals.append(probabilities(row))
            if len(drafted) == self.k or drafted[-1] == END:
                return drafted, proposals
            row = self.draft.feed(drafted[-1:])[0]

    def judge(self, token: int, q: NDArray[np.float64], row: Logits, position: int) -> int:
        """The target's token at this position; the draft's was accepted if it is the same."""
        if self.mode != "rejection":
            return self.choose(row, position)
        p = probabilities(row)
        if self.rng.random() * q[token] < p[token]:
            return token
        rest = np.maximum(p - q, 0)
        return int(self.rng.choice(len(p), p=rest / rest.sum()))

    def round(self, so_far: list[int]) -> list[int]:
        drafted, proposals = self.propose(so_far)
        rows = self.target.feed([so_far[-1], *drafted], every=True)
        self.count.rounds += 1
        self.count.drafted += len(drafted)
        new: list[int] = []
        for i, token in enumerate(drafted):
            new.append(self.judge(token, proposals[i], rows[i], len(so_far) + i))
            self.count.verified += 1
            if new[-1] != token:
                break
            self.count.accepted += 1
        if new == drafted and new[-1] != END:
            new.append(self.choose(rows[len(drafted)], len(so_far) + len(drafted)))
        self.count.emitted += len(new)
        return new

    def reply(self, prompt: list[int], limit: int = 300) -> list[int]:
        self.target.follow(prompt)
        self.target.keep(len(prompt) - 1)
        reply: list[int] = []
        while len(reply) < limit:
            new = self.round(prompt + reply)
            if END in new:
                return reply + new[: new.index(END)]
            reply += new
            self.target.keep(len(prompt) + len(reply) - 1)
        return reply
