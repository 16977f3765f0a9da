"""Runs requests on one sequence of a loaded pair: prompt, reply, and the KV cache between them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from localspec.core.events import Examination, Finished, Notice, Reply, ReplyEvent
from localspec.core.interrupt import Interrupt, StopSignal
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.reply_request import ReplyRequest
from localspec.core.target import Target
from localspec.drafters.base import Drafter, Off
from localspec.errors import ContextError, LocalspecError, UsageError
from localspec.generation.grammars import GrammarModel, Grammars, incomplete
from localspec.generation.inspect_token import examination
from localspec.generation.prefill import Prefill
from localspec.generation.prefix_cache import PrefixCache
from localspec.generation.prompt import PromptBuilder, Tokenizer
from localspec.generation.reply import ReplyLoop, SavesCosts, WatchesPasses
from localspec.generation.stream import Generation, Pieces, StopCondition, new_seed
from localspec.policy import Plain, Policy
from localspec.processes.activity import doing
from localspec.verifiers import Verifier

_SEQ = 0


class RunnableModel(Tokenizer, Pieces, GrammarModel, Protocol):
    """A target model, as far as requests need it."""

    @property
    def path(self) -> Path:
        """Its file."""
        ...

    @property
    def n_vocab(self) -> int:
        """Tokens of its vocabulary."""
        ...


class Controls(SavesCosts, Protocol):
    """The policy of a loaded pair, and where its measurements are saved."""

    @property
    def policy(self) -> Policy:
        """Plans the drafts of every request that brings no policy of its own."""
        ...


class RunnablePair(Protocol):
    """The parts of a loaded pair that answer requests."""

    @property
    def target_model(self) -> RunnableModel:
        """Tokenizes prompts and ends replies."""
        ...

    @property
    def target(self) -> Target:
        """Scores drafts."""
        ...

    @property
    def drafter(self) -> Drafter:
        """Proposes drafts."""
        ...

    @property
    def verifier(self) -> Verifier:
        """Accepts or rejects drafted tokens."""
        ...

    @property
    def control(self) -> Controls:
        """Plans drafts."""
        ...

    @property
    def stop(self) -> StopSignal:
        """Set, it aborts the running pass."""
        ...

    @property
    def watchdog(self) -> WatchesPasses | None:
        """Watches the time of passes; None: nobody does."""
        ...


class RequestRunner:
    """Runs one request at a time and keeps the KV cache for the next one."""

    def __init__(self, pair: RunnablePair) -> None:
        self._pair = pair
        self.prefill = Prefill(pair.target, pair.drafter, pair.stop, _SEQ)
        self._loop = ReplyLoop(pair.target, self.prefill, pair.stop, pair.control, pair.watchdog)
        self._busy = threading.Lock()
        self._running: Interrupt | None = None
        self._closed = False
        self._grammars = Grammars(pair.target_model)
        # Last: a template in a process of its own asks at once whether the request was stopped.
        self.prompts = PromptBuilder(pair.target_model, pair.target.capacity, self._stopped)

    def close(self) -> None:
        """Refuse further requests; a running one ends before its next pass."""
        self._closed = True

    def require_open(self) -> None:
        """Refuse to touch what is freed: llama.cpp would abort the process.

        Raises:
            UsageError: closed.
        """
        if self._closed:
            raise UsageError("this runtime is closed")

    def _stopped(self) -> bool:
        """Whether the running request was told to end."""
        return self._closed or (self._running is not None and self._running.is_set())

    def events(
        self, request: ReplyRequest, interrupt: Interrupt, policy: Policy | None
    ) -> Iterator[ReplyEvent]:
        """The events of a reply, the last one `Finished`. ``policy`` replaces the pair's own.

        Raises:
            UsageError: another request is running, or the parameters cannot be meant.
            ContextError: the last message does not fit into the context.
            DecodeError: llama.cpp failed.
        """
        if request.prompt is None:
            yield from self._chat(request, interrupt, policy)
        else:
            yield from self._complete(request.prompt, request, interrupt, policy)

    def examine(
        self, request: ReplyRequest, tokens: Sequence[int], rival: int | None
    ) -> Examination:
        """See `localspec.runtime.Runtime.examine`."""
        self.require_open()
        if request.seed is None:
            raise UsageError("a place is examined with the seed of its reply")
        pair = self._pair
        model = pair.target_model
        if not tokens or not all(0 <= t < model.n_vocab for t in (*tokens, rival or 0)):
            raise UsageError("these are no tokens of this model")
        prompt = self.prompts.chat(request.messages, request.max_tokens)
        known = [*prompt.tokens, *tokens[:-1]]
        if len(known) > pair.target.capacity:
            raise ContextError("the context has no room for that place any more")
        with self._alone(), Interrupt().stopping(pair.stop):
            return examination(
                self.prefill.row_after(known),
                known,
                tokens[-1],
                rival,
                drafter=pair.drafter,
                seq=_SEQ,
                sampling=request.sampling,
                noise=Noise(request.seed),
                text=self._display,
            )

    def _display(self, token: int) -> str:
        """A token as text; control tokens by their name."""
        model = self._pair.target_model
        return model.piece(token).decode("utf-8", "replace") or model.marker(token)

    def rest(self, cancelled: Callable[[], bool]) -> None:
        """Save the KV cache of the conversation, if that is wanted and nothing runs."""
        self.require_open()
        cache: PrefixCache | None = self.prefill.prefix_cache
        if cache is None or not self._busy.acquire(blocking=False):
            return
        try:
            cache.save(_SEQ, self.prefill.cached, *self.prompts.conversation, cancelled)
        finally:
            self._busy.release()

    def clear(self) -> None:
        """Empty the KV cache, so that others may use it.

        Raises:
            UsageError: closed.
        """
        self.require_open()
        self.prefill.cached = []
        self._pair.target.truncate(_SEQ, 0)

    def _chat(
        self, request: ReplyRequest, interrupt: Interrupt, policy: Policy | None
    ) -> Iterator[ReplyEvent]:
        self.require_open()
        pair = self._pair
        if self.prefill.prefix_cache is not None:
            self.prefill.prefix_cache.prepare()
        self._running = interrupt
        prompt = self.prompts.chat(request.messages, request.max_tokens)
        if prompt.dropped:
            yield Notice(
                f"the context of {pair.target.capacity} tokens is full: the {prompt.dropped} "
                "oldest messages were left out"
            )
        # Without a template texts end the turns, and a grammar may well want those.
        own_stop = self.prompts.stop if request.grammar is None else ()
        ending = StopCondition(pair.target_model, (*request.stop, *own_stop))
        reply = yield from self._generate(
            request, prompt.tokens, ending, interrupt, policy, prompt.text
        )
        if not ending.stream.stopped:  # else the tokens say more than the text
            self.prompts.remember(prompt, reply)
        yield Finished(reply)

    def _complete(
        self, text: str, request: ReplyRequest, interrupt: Interrupt, policy: Policy | None
    ) -> Iterator[ReplyEvent]:
        self.require_open()
        ending = StopCondition(self._pair.target_model, request.stop)
        tokens = self.prompts.bare(text)
        yield Finished((yield from self._generate(request, tokens, ending, interrupt, policy)))

    def _generate(
        self,
        request: ReplyRequest,
        prompt: list[int],
        ending: StopCondition,
        interrupt: Interrupt,
        policy: Policy | None,
        text: str | None = None,
    ) -> Generator[ReplyEvent, None, Reply]:
        self.require_open()
        pair = self._pair
        room = pair.target.capacity - len(prompt) + 1
        drafter: Drafter = pair.drafter
        policy = policy or pair.control.policy
        if request.grammar is not None:
            yield from self._grammars.prepare()
        constraint = self._grammars.constraint(request.grammar, prompt, text)
        if not request.draft:
            drafter, policy = Off(), Plain("switched off for this reply")
        generation = Generation(
            seq=_SEQ,
            prompt=prompt,
            processor=LogitsProcessor(request.sampling, pair.target_model.n_vocab, constraint),
            noise=Noise(new_seed() if request.seed is None else request.seed),
            limit=min(request.max_tokens or room, room),
            ending=ending,
            verifier=pair.verifier,
            guided=not isinstance(drafter, Off),
        )
        with self._alone():
            doing(f"answering with {pair.target_model.path}")
            try:
                reply = yield from self._loop.reply(generation, drafter, policy, interrupt)
                yield from incomplete(constraint, reply.finish_reason)
                return reply
            finally:
                # Also where the caller stops reading events in the middle of a reply.
                if not self._closed:
                    self.prefill.sync(generation.tokens)

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
                self.prefill.reset()
            raise
        finally:
            self._busy.release()


__all__ = ["RequestRunner", "RunnableModel", "RunnablePair"]
