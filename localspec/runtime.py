"""The runtime: a loaded pair that answers requests. This is the Python API.

Submit a `ReplyRequest` and read the events of its reply::

    from localspec import Finished, Message, Options, ReplyRequest, Runtime, Token

    with Runtime.open(Options(model="demo")) as runtime:
        for event in runtime.submit(ReplyRequest((Message("user", "Hello!"),), seed=1)):
            match event:
                case Token():
                    print(event.text, end="", flush=True)
                case Finished(reply):
                    print(reply.stats.tokens_per_second)

`Runtime.answer` waits for the whole `Reply` instead. `Runtime.reply` and `Runtime.complete` take
the fields of a request as arguments.

llama.cpp runs in the process of the caller: where it aborts or faults, that process ends with it.
A program that has to survive uses `localspec.engine.client.EngineClient`, which keeps llama.cpp in
another process and raises `EngineError` instead. `localspec.bench.lab.Lab` measures a runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from types import TracebackType
from typing import Self

from localspec.core.events import (
    Examination,
    Finished,
    Loading,
    Message,
    ModelInfo,
    Reply,
    ReplyEvent,
)
from localspec.core.interrupt import Interrupt
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampling_params import Sampling
from localspec.errors import ChatsError
from localspec.generation.kv_files import KvStore
from localspec.generation.prefix_cache import PrefixCache
from localspec.generation.request_runner import RequestRunner
from localspec.loading.drafting import NO_TEXTS, EarlierTexts
from localspec.loading.loader import LoadedPair, load
from localspec.loading.options import Options
from localspec.policy import Policy
from localspec.processes.activity import doing


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

    def __init__(self, pair: LoadedPair) -> None:
        """Use `Runtime.open`."""
        self._pair = pair
        self._runner = RequestRunner(pair)
        self._newest: ReplyStream | None = None

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
        ``anew``, the kernels are chosen by measurement again.

        Raises:
            LocalspecError: whatever prevents it, see `localspec.errors`.
        """
        options = options or Options()
        earlier = _earlier_texts() if options.remember else NO_TEXTS
        return cls(load(options, on_event, cancelled, anew=anew, earlier=earlier))

    @property
    def info(self) -> ModelInfo:
        """What was loaded."""
        return self._pair.info

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end a reply."""
        return self.pair.target_model.end_ids

    @property
    def pair(self) -> LoadedPair:
        """The loaded parts, for measurements; see `localspec.bench.lab.Lab`.

        Raises:
            UsageError: closed; llama.cpp aborts the process when a freed part is used.
        """
        self._runner.require_open()
        return self._pair

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt that `reply` would read, as text."""
        return self._runner.prompts.render(messages)

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Tokens of the prompt that `reply` would read."""
        self._runner.require_open()
        return self._runner.prompts.transcript.encode(self.render(messages))

    def submit(
        self,
        request: ReplyRequest,
        interrupt: Interrupt | None = None,
        *,
        policy: Policy | None = None,
    ) -> ReplyStream:
        """Answer a request; its events come from the stream, the last one is `Finished`.

        The request runs while its stream is read. ``interrupt`` lets a caller end it from before
        it was submitted; by default the stream brings its own. ``policy`` plans the drafts of this
        reply in place of the controller.

        Raises (while the stream is read):
            UsageError: another request is running, the runtime is closed, or the parameters cannot
                be meant.
            ContextError: the last message does not fit into the context.
            DecodeError: llama.cpp failed.
        """
        interrupt = interrupt or Interrupt()
        self._newest = ReplyStream(self._runner.events(request, interrupt, policy), interrupt)
        return self._newest

    def answer(self, request: ReplyRequest, *, policy: Policy | None = None) -> Reply:
        """Answer a request and wait for the whole reply; as `submit`, and raises as that does."""
        *_, last = self.submit(request, policy=policy)
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
        return self._runner.examine(request, tokens, rival)

    def interrupt(self) -> None:
        """End the reply that was asked for last within about 50 ms; callable from any thread."""
        if self._newest is not None:
            self._newest.interrupt()

    def forget(self) -> None:
        """Empty the KV cache: the next prompt is read from its first token.

        Raises:
            UsageError: closed.
        """
        self._runner.clear()

    def keep_states(self, store: KvStore | None = None) -> None:
        """From now on use KV caches of earlier sessions, where that is faster than reading.

        They are saved by `rest`.
        """
        pair = self.pair
        self._runner.prefill.prefix_cache = PrefixCache(
            store or KvStore(pair.identity), pair.target, self._runner.prompts.transcript
        )

    def rest(self, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Save the KV cache of the conversation, if `keep_states` was called and it is worth it.

        Call it when nothing was asked for a while. It gives up when ``cancelled`` returns true.
        """
        self._runner.rest(cancelled)

    def close(self) -> None:
        """Free everything. May be called twice, and between two events of a reply, which then ends
        as if interrupted.
        """
        self._runner.close()
        doing(f"freeing {self.info.target}")
        self._pair.close()

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


def _earlier_texts() -> EarlierTexts:
    """Texts of the saved chats; where they cannot be read, a notice."""
    from localspec.chats.drafting_texts import earlier_texts

    try:
        return EarlierTexts(earlier_texts())
    except ChatsError as error:
        return EarlierTexts(notices=(f"{error}; drafting without earlier chats",))


__all__ = ["Options", "ReplyRequest", "ReplyStream", "Runtime"]
