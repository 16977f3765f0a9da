"""The runtime: a loaded pair that answers. This is the Python API.

As it is used::

    from localspec import Message, Options, Runtime, Sampling

    with Runtime.open(Options(model="demo")) as runtime:
        for event in runtime.reply([Message("user", "Hello!")], sampling=Sampling(), seed=1):
            ...  # Reading, Notice, Token, Round and, last, Finished

`Runtime.reply` and `Runtime.complete` are short for `Runtime.submit` with a `ReplyRequest`.
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
from localspec.core.interrupt import Interrupt
from localspec.core.logits import LogitsProcessor, Sampling
from localspec.core.noise import Noise
from localspec.core.reply_request import ReplyRequest
from localspec.drafters.base import Drafter, Off
from localspec.errors import ContextError, LocalspecError, UsageError
from localspec.generation.chat_template import Prompt
from localspec.generation.inspect_token import examination
from localspec.generation.kv_files import KvStore
from localspec.generation.prefill import Prefill
from localspec.generation.prefix_cache import PrefixCache
from localspec.generation.prompt import PromptBuilder
from localspec.generation.reply import ReplyLoop
from localspec.generation.stream import Generation, StopCondition, new_seed
from localspec.loading.loader import LoadedPair, load
from localspec.loading.options import Options
from localspec.loading.policy import OnPass
from localspec.policy import Plain, Policy
from localspec.policy.costs import Costs
from localspec.processes.activity import doing

_SEQ = 0


class ReplyStream(Iterator[ReplyEvent]):
    """The events of one reply; reading them runs it."""

    def __init__(self, events: Iterator[ReplyEvent], interrupt: Interrupt) -> None:
        self._events = events
        self._interrupt = interrupt

    def __next__(self) -> ReplyEvent:
        """The next event."""
        return next(self._events)

    def interrupt(self) -> None:
        """End this reply within about 50 ms, whether it runs or is still to begin; it still ends
        with `Finished`. Callable from any thread.
        """
        self._interrupt.set()

    def close(self) -> None:
        """Stop reading: what was emitted is kept in the KV cache, no `Finished` comes."""
        if isinstance(self._events, Generator):
            self._events.close()


class Runtime:
    """One loaded pair, answering one request at a time."""

    def __init__(self, pairing: LoadedPair) -> None:
        """Use `Runtime.open`."""
        self._loaded = pairing
        self._reader = Prefill(pairing.target, pairing.drafter, pairing.stop, _SEQ)
        self._decoding = ReplyLoop(
            pairing.target,
            pairing.verifier,
            self._reader,
            pairing.stop,
            pairing.control,
            pairing.watchdog,
        )
        self._newest: ReplyStream | None = None
        self._running: Interrupt | None = None
        self._busy = threading.Lock()
        self._closed = False
        # Asks at once whether it was stopped where the template runs in a process of its own.
        self._wording = PromptBuilder(pairing.target_model, pairing.target.capacity, self._stopped)
        self._exercises = False

    @property
    def _parts(self) -> LoadedPair:
        """The loaded parts; llama.cpp aborts the process when a freed one is used.

        Raises:
            UsageError: closed.
        """
        self._require_open()
        return self._loaded

    def _stopped(self) -> bool:
        """Whether the running request was told to end."""
        return self._closed or (self._running is not None and self._running.is_set())

    def _require_open(self) -> None:
        if self._closed:
            raise UsageError("this runtime is closed")

    @classmethod
    def open(
        cls,
        options: Options | None = None,
        on_event: Callable[[Loading], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
        *,
        anew: bool = False,
    ) -> Self:
        """Load target and draft.

        ``on_event`` is told the progress; when ``cancelled`` returns true, loading stops. With
        ``anew``, the kernels are chosen by measurement again; see `measure_costs` for the rest.

        Raises:
            LocalspecError: whatever prevents it, see `localspec.errors`.
        """
        return cls(load(options or Options(), on_event, cancelled, anew=anew))

    def lend(self) -> LoadedPair:
        """The loaded parts, for measurements between two replies; the KV cache is given up."""
        doing(f"measuring {self.info.target}")
        self._reader.held = []
        self._parts.target.truncate(_SEQ, 0)
        return self._parts

    def costs(self) -> Costs | None:
        """What passes and drafts cost here, as far as the policy measures it."""
        return self._parts.control.policy.costs

    def measure_costs(self, on_pass: OnPass | None = None) -> Costs | None:
        """Measure anew what passes cost, thoroughly; None where nothing is ever drafted.

        ``on_pass`` is told (tokens, seconds) of each pass, and may raise to end it.
        """
        return self.lend().control.measure(on_pass)

    def keep_costs(self) -> None:
        """Keep what was measured for the next session, as every reply does.

        Raises:
            OSError: it cannot be written.
        """
        self._parts.control.save()

    @contextmanager
    def exercising(self) -> Iterator[None]:
        """Meanwhile drafts are of every length and shape that may be chosen, whether they pay or
        not: for comparisons with plain decoding.
        """
        self._exercises = True
        try:
            yield
        finally:
            self._exercises = False

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

    def submit(self, request: ReplyRequest, interrupt: Interrupt | None = None) -> ReplyStream:
        """Answer a request; its events come from the stream, the last one is `Finished`.

        The request runs while its stream is read. ``interrupt`` lets a caller end it from before
        it was submitted; by default the stream brings its own.

        Raises (while the stream is read):
            UsageError: another request is running, or the parameters cannot be meant.
            ContextError: the last message does not fit into the context.
            DecodeError: llama.cpp failed.
        """
        interrupt = interrupt or Interrupt()
        events = self._chat if request.prompt is None else self._complete
        self._newest = ReplyStream(events(request, interrupt), interrupt)
        return self._newest

    def answer(self, request: ReplyRequest) -> Reply:
        """Answer a request and wait for the whole reply; raises as `submit`."""
        *_, last = self.submit(request)
        assert isinstance(last, Finished)
        return last.reply

    def reply(
        self,
        messages: Sequence[Message],
        *,
        sampling: Sampling | None = None,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        draft: bool = True,
    ) -> ReplyStream:
        """`submit` for a conversation, with the fields of `ReplyRequest` as arguments."""
        return self.submit(
            ReplyRequest(
                messages=tuple(messages),
                sampling=sampling or Sampling(),
                seed=seed,
                max_tokens=max_tokens,
                stop=tuple(stop),
                draft=draft,
            )
        )

    def complete(
        self,
        text: str,
        *,
        sampling: Sampling | None = None,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        draft: bool = True,
    ) -> ReplyStream:
        """`submit` for a text that is continued without a chat template."""
        return self.submit(
            ReplyRequest(
                prompt=text,
                sampling=sampling or Sampling(),
                seed=seed,
                max_tokens=max_tokens,
                stop=tuple(stop),
                draft=draft,
            )
        )

    def examine(
        self, request: ReplyRequest, tokens: Sequence[int], rival: int | None = None
    ) -> Examination:
        """Probabilities at the place of the last of ``tokens``, the beginning of a reply.

        ``request`` is the one that the reply was made with, its seed included. With ``rival``,
        another token for that place, also how close the two were. Costs a pass, and the next turn
        reads what came after that place again.

        Raises:
            UsageError: no tokens, none of this model's, or a request without a seed.
            LocalspecError: as `submit`.
        """
        if request.seed is None:
            raise UsageError("a place is examined with the seed of its reply")
        pairing = self._parts
        n_vocab = pairing.target_model.n_vocab
        if not tokens or not all(0 <= t < n_vocab for t in (*tokens, rival or 0)):
            raise UsageError("these are no tokens of this model")
        known = [*self._prompt(request).tokens, *tokens[:-1]]
        if len(known) > pairing.target.capacity:
            raise ContextError("the context has no room for that place any more")
        with self._alone(), Interrupt().stopping(pairing.stop):
            return examination(
                self._reader.row_after(known),
                known,
                tokens[-1],
                rival,
                drafter=pairing.drafter,
                seq=_SEQ,
                sampling=request.sampling,
                noise=Noise(request.seed),
                text=self._reads,
            )

    def _reads(self, token: int) -> str:
        """A token as text; control tokens by their name."""
        model = self._parts.target_model
        return model.piece(token).decode("utf-8", "replace") or model.marker(token)

    def interrupt(self) -> None:
        """End the reply that was asked for last within about 50 ms; callable from any thread."""
        if self._newest is not None:
            self._newest.interrupt()

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
        doing(f"freeing {self.info.target}")
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

    def _prompt(self, request: ReplyRequest) -> Prompt:
        return self._wording.chat(request.messages, request.max_tokens)

    def _chat(self, request: ReplyRequest, interrupt: Interrupt) -> Iterator[ReplyEvent]:
        capacity = self._parts.target.capacity
        if self._reader.resuming is not None:
            self._reader.resuming.prepare()
        self._running = interrupt
        prompt = self._prompt(request)
        if prompt.dropped:
            yield Notice(
                f"the context of {capacity} tokens is full: the {prompt.dropped} oldest messages "
                "were left out"
            )
        ending = StopCondition(self._parts.target_model, (*request.stop, *self._wording.stop))
        reply = yield from self._generate(request, prompt.tokens, ending, interrupt)
        if not ending.stream.stopped:  # else the tokens say more than the text
            self._wording.remember(prompt, reply)
        yield Finished(reply)

    def _complete(self, request: ReplyRequest, interrupt: Interrupt) -> Iterator[ReplyEvent]:
        ending = StopCondition(self._parts.target_model, request.stop)
        tokens = self._wording.bare(request.prompt or "")
        yield Finished((yield from self._generate(request, tokens, ending, interrupt)))

    def _generate(
        self,
        request: ReplyRequest,
        prompt: list[int],
        ending: StopCondition,
        interrupt: Interrupt,
    ) -> Generator[ReplyEvent, None, Reply]:
        pairing = self._parts
        room = pairing.target.capacity - len(prompt) + 1
        drafter: Drafter = pairing.drafter if request.draft else Off()
        policy: Policy = Plain("switched off for this reply")
        if request.draft:
            control = pairing.control
            policy = (self._exercises and control.proof) or control.policy
        generation = Generation(
            seq=_SEQ,
            prompt=prompt,
            processor=LogitsProcessor(request.sampling, pairing.target_model.n_vocab),
            noise=Noise(new_seed() if request.seed is None else request.seed),
            limit=min(request.max_tokens or room, room),
            ending=ending,
        )
        with self._alone():
            doing(f"answering with {pairing.target_model.path}")
            try:
                return (yield from self._decoding.reply(generation, drafter, policy, interrupt))
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


__all__ = ["Options", "ReplyRequest", "ReplyStream", "Runtime"]
