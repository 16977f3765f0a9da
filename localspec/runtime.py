"""The runtime: a loaded pair that answers. This is the Python API.

As it is used::

    from localspec import Message, Options, Runtime, Sampling

    with Runtime.open(Options(model="demo")) as runtime:
        for event in runtime.reply([Message("user", "Hello!")], sampling=Sampling(), seed=1):
            ...  # Reading, Notice, Token, Round and, last, Finished
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from localspec.core.events import (
    Examination,
    Finished,
    Loading,
    Message,
    ModelInfo,
    Notice,
    Reply,
    ReplyEvent,
)
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.drafters.base import Drafter, Off
from localspec.errors import ContextError, LocalspecError, UsageError
from localspec.generation.inspect_token import examination
from localspec.generation.kv_files import KvStore
from localspec.generation.prefill import Prefill
from localspec.generation.prefix_cache import PrefixCache
from localspec.generation.prompt import PromptBuilder
from localspec.generation.reply import Decoding
from localspec.generation.stream import Generation, StopCondition, new_seed
from localspec.loading.loader import LoadedPair, load
from localspec.loading.options import Options
from localspec.policy import Plain, Policy
from localspec.policy.costs import Costs

_SEQ = 0


class Runtime:
    """One loaded pair, answering one request at a time."""

    def __init__(self, pairing: LoadedPair) -> None:
        """Use `Runtime.open`."""
        self._loaded = pairing
        self._reader = Prefill(pairing, _SEQ)
        self._decoding = Decoding(pairing, self._reader)
        self._wording = PromptBuilder(
            pairing.target_model, pairing.target.capacity, pairing.stop.is_set
        )
        self._busy = threading.Lock()
        self._closed = False

    @property
    def _parts(self) -> LoadedPair:
        """The loaded parts; llama.cpp aborts the process when a freed one is used.

        Raises:
            UsageError: closed.
        """
        self._require_open()
        return self._loaded

    def _require_open(self) -> None:
        if self._closed:
            raise UsageError("this runtime is closed")

    @classmethod
    def open(
        cls,
        options: Options | None = None,
        on_event: Callable[[Loading], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Self:
        """Load target and draft.

        ``on_event`` is told the progress; when ``cancelled`` returns true, loading stops.

        Raises:
            LocalspecError: whatever prevents it, see `localspec.errors`.
        """
        return cls(load(options or Options(), on_event, cancelled))

    def lend(self) -> LoadedPair:
        """The loaded parts, for measurements between two replies; the KV cache is given up."""
        self._reader.held = []
        self._parts.target.truncate(_SEQ, 0)
        return self._parts

    def costs(self) -> Costs | None:
        """What passes and drafts cost here, as far as the policy measures it."""
        return self._parts.control.policy.costs

    def measure_costs(self) -> Costs | None:
        """Measure anew what passes cost, thoroughly; None where nothing is ever drafted."""
        return self.lend().control.measure()

    def keep_costs(self) -> None:
        """Keep what was measured for the next session, as every reply does.

        Raises:
            OSError: it cannot be written.
        """
        self._parts.control.keep()

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end a reply."""
        return self._parts.target_model.end_ids

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt that `reply` would read, as text."""
        return self._wording.render(messages)

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Tokens of the prompt that `reply` would read."""
        self._require_open()
        return self._wording.transcript.encode(self.render(messages))

    @property
    def info(self) -> ModelInfo:
        """What was loaded."""
        return self._loaded.info

    def reply(
        self,
        messages: Sequence[Message],
        *,
        sampling: Sampling | None = None,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        draft: bool = True,
    ) -> Iterator[ReplyEvent]:
        """The next assistant turn of a conversation, as a stream of events.

        The whole conversation is given each time; what the KV cache holds of it is not read
        again. ``draft=False`` decodes plainly. Without ``seed`` one is drawn and reported.

        Raises:
            UsageError: parameters that cannot be meant.
            ContextError: the last message does not fit into the context.
            DecodeError: llama.cpp failed.
        """
        capacity = self._parts.target.capacity
        if self._reader.resuming is not None:
            self._reader.resuming.prepare()
        self._parts.stop.clear()  # from here on an interrupt means this reply
        prompt = self._wording.chat(messages, max_tokens)
        if prompt.dropped:
            yield Notice(
                f"the context of {capacity} tokens is full: the {prompt.dropped} oldest messages "
                "were left out"
            )
        ending = StopCondition(self._parts.target_model, (*stop, *self._wording.stop))
        reply = yield from self._generate(prompt.tokens, ending, sampling, seed, max_tokens, draft)
        if not ending.stream.stopped:  # else the tokens say more than the text
            self._wording.remember(prompt, reply)
        yield Finished(reply)

    def complete(
        self,
        text: str,
        *,
        sampling: Sampling | None = None,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        draft: bool = True,
    ) -> Iterator[ReplyEvent]:
        """What the model writes after ``text``, without a chat template. As `reply` otherwise."""
        model = self._parts.target_model
        tokens = self._wording.bare(text)
        ending = StopCondition(model, tuple(stop))
        reply = yield from self._generate(tokens, ending, sampling, seed, max_tokens, draft)
        yield Finished(reply)

    def examine(
        self,
        messages: Sequence[Message],
        tokens: Sequence[int],
        *,
        sampling: Sampling,
        seed: int,
        max_tokens: int | None = None,
        rival: int | None = None,
    ) -> Examination:
        """What stood behind the last of ``tokens``, the beginning of a reply to ``messages``.

        With ``rival``, another token for that place, also how close the two were. The other
        arguments are those that the reply was made with. Costs a pass, and the next turn reads
        what was behind that place again.

        Raises:
            UsageError: no tokens, or none of this model's.
            LocalspecError: as `reply`.
        """
        pairing = self._parts
        n_vocab = pairing.target_model.n_vocab
        if not tokens or not all(0 <= t < n_vocab for t in (*tokens, rival or 0)):
            raise UsageError("these are no tokens of this model")
        known = [*self._wording.chat(messages, max_tokens).tokens, *tokens[:-1]]
        if len(known) > pairing.target.capacity:
            raise ContextError("the context has no room for that place any more")
        with self._alone():
            pairing.stop.clear()
            return examination(
                self._reader.row_after(known),
                known,
                tokens[-1],
                rival,
                drafter=pairing.drafter,
                seq=_SEQ,
                sampling=sampling,
                noise=Noise(seed),
                text=self._reads,
            )

    def _reads(self, token: int) -> str:
        """A token as text; control tokens by their name."""
        model = self._parts.target_model
        return model.piece(token).decode("utf-8", "replace") or model.marker(token)

    def interrupt(self) -> None:
        """End the running reply within about 50 ms; callable from any thread."""
        self._loaded.stop.set()

    def keep_states(self, shelf: KvStore | None = None) -> None:
        """From now on KV caches of earlier sessions are used, where that is faster than reading.

        They are saved by `rest`.
        """
        pairing = self._parts
        self._reader.resuming = PrefixCache(
            shelf or KvStore(pairing.identity), pairing.target, self._wording.transcript
        )

    def rest(self, cancelled: Callable[[], bool] = lambda: False) -> None:
        """To be called when nothing is asked for a while: saves the KV cache of the conversation,
        if `keep_states` was called and it is worth it. Gives up when ``cancelled`` says so.
        """
        self._require_open()
        resuming = self._reader.resuming
        if resuming is None or not self._busy.acquire(blocking=False):
            return
        try:
            resuming.keep(_SEQ, self._reader.held, *self._wording.said, cancelled)
        finally:
            self._busy.release()

    def close(self) -> None:
        """Free everything. May be called twice, and between two events of a reply, which then ends
        as if interrupted.
        """
        self._closed = True
        self._loaded.close()

    def __enter__(self) -> Self:
        """The runtime itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Free everything."""
        self.close()

    # -- one request ---------------------------------------------------------------------------

    def _generate(
        self,
        prompt: list[int],
        ending: StopCondition,
        sampling: Sampling | None,
        seed: int | None,
        max_tokens: int | None,
        draft: bool,
    ) -> Generator[ReplyEvent, None, Reply]:
        pairing = self._parts
        if max_tokens is not None and max_tokens < 1:
            raise UsageError(f"max_tokens must be at least 1, not {max_tokens}")
        room = pairing.target.capacity - len(prompt) + 1
        seed = new_seed() if seed is None else seed
        drafter: Drafter = pairing.drafter if draft else Off()
        policy: Policy = pairing.control.policy if draft else Plain("switched off for this reply")
        generation = Generation(
            seq=_SEQ,
            prompt=prompt,
            processor=LogitsProcessor(sampling or Sampling(), pairing.target_model.n_vocab),
            noise=Noise(seed),
            limit=min(max_tokens or room, room),
            ending=ending,
        )
        with self._alone():
            try:
                return (yield from self._decoding.reply(generation, drafter, policy))
            finally:
                # Also where the reader stops reading in the middle of a reply.
                if not self._closed:
                    self._reader.keep(generation.tokens)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nothing else is computed meanwhile; after a failure the caches are not trusted.

        Raises:
            UsageError: something else is.
        """
        if not self._busy.acquire(blocking=False):
            raise UsageError("this runtime is answering already; one reply at a time")
        try:
            yield
        except LocalspecError:
            if not self._closed:
                self._reader.forget()
            raise
        finally:
            self._busy.release()


__all__ = ["Options", "Runtime"]
