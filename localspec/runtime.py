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

Log-probabilities come with the events of those who ask: ``ReplyRequest(logprobs=5)`` gives each
`Token` its own and the five likeliest (`Token.logprobs`); ``prompt_logprobs=0`` scores the prompt
in `PromptScored` events before the first token, and with ``max_tokens=0`` nothing else is computed.
``prediction=TEXT`` drafts from a text that the reply will be much like.

`Runtime.answer` waits for the whole `Reply` instead. `Runtime.reply` and `Runtime.complete` take
the fields of a request as arguments.

llama.cpp runs in the process of the caller: where it aborts or faults, that process ends with it.
A program that has to survive uses `localspec.engine.client.EngineClient`, which keeps llama.cpp in
another process and raises `EngineError` instead. `localspec.bench.lab.Lab` measures a runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from localspec.core import codec
from localspec.core.errors import ChatsError, UsageError
from localspec.core.events import Examination, Finished, Loading, Message, ModelInfo, Reply
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.interrupt import Cancelled, Interrupt, never
from localspec.core.options import Options
from localspec.core.processes.activity import doing
from localspec.core.reply_request import ReplyRequest, TakesEvents, Tokenized
from localspec.core.sampling_params import Sampling
from localspec.generation.examine import examine
from localspec.generation.reply_stream import ReplyStream
from localspec.generation.scheduler import Scheduler
from localspec.loading.drafting import NO_TEXTS, EarlierTexts
from localspec.loading.loader import LoadedPair
from localspec.loading.loading_thread import load_in_thread
from localspec.policy import Policy
from localspec.prefix_cache.files import KvStore

__all__ = ["Options", "ReplyRequest", "ReplyStream", "Runtime"]


class Runtime:
    """One loaded pair, answering as many requests at a time as it has sequences; others wait."""

    def __init__(self, pair: LoadedPair) -> None:
        """Use `Runtime.open`."""
        self._pair = pair
        self._scheduler = Scheduler(pair)
        if pair.target.sequences > 1:
            self._scheduler.warm_grammars()

    @classmethod
    def open(
        cls,
        options: Options | None = None,
        on_event: Callable[[Loading], None] | None = None,
        cancelled: Cancelled | None = None,
    ) -> Self:
        """Load target and draft.

        ``on_event`` is told the progress; when ``cancelled`` returns true, loading stops. Both are
        called in the thread that loads; what they raise ends the loading and is raised here.

        Raises:
            LocalspecError: whatever prevents it, see `localspec.core.errors`.
        """
        options = options or Options()
        earlier = _earlier_texts() if options.remember else NO_TEXTS
        return cls(load_in_thread(options, on_event, cancelled, earlier=earlier))

    @property
    def info(self) -> ModelInfo:
        """The models that were loaded, and how."""
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
        self._require_open()
        return self._pair

    def _require_open(self) -> None:
        if self._scheduler.closed:
            raise UsageError("this runtime is closed")

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt that `reply` would read, as text."""
        return self._scheduler.preparation.prompts.render(messages)

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Tokens of the prompt that `reply` would read."""
        self._require_open()
        return self._scheduler.preparation.prompts.whole(ReplyRequest(tuple(messages)))[1]

    def submit(
        self,
        request: ReplyRequest,
        interrupt: Interrupt | None = None,
        *,
        policy: Policy | None = None,
    ) -> ReplyStream:
        """Answer a request; its events come from the stream, the last one is `Finished`.

        The request runs whether its stream is read or not, in the order in which requests were
        submitted (one whose prompt or grammar takes long to prepare is overtaken), beside as many
        others as the runtime has sequences. A stream that is closed, or
        dropped, ends its reply. ``interrupt`` lets a caller end it from before it was submitted;
        by default the stream brings its own. ``policy`` plans the drafts of this reply in place of
        the controller.

        Raises:
            UsageError: the runtime is closed, or an adapter that is asked for is not loaded.
            QueueFullError: too many requests wait.

        Raises (while the stream is read):
            UsageError: the parameters are invalid.
            ContextError: the last message does not fit into the context.
            DecodeError: llama.cpp failed.
        """
        return self._scheduler.submit(request, interrupt or Interrupt(), policy)

    def deliver(
        self, request: ReplyRequest, mailbox: TakesEvents, interrupt: Interrupt | None = None
    ) -> None:
        """Answer a request as `submit` does, with its events handed to ``mailbox`` in the thread
        that computes: where they are only passed on, no reader is woken in every round.

        Raises:
            UsageError, QueueFullError: as `submit`.
        """
        self._scheduler.deliver(request, mailbox, interrupt or Interrupt())

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
        grammar: GrammarSpec | None = None,
    ) -> ReplyStream:
        """`submit` for a conversation, with the fields of `ReplyRequest` as arguments; ``stop`` may
        also be one text.
        """
        given = {"seed": seed, "max_tokens": max_tokens, "draft": draft, "grammar": grammar}
        return self.submit(_request(sampling, stop, messages=tuple(messages), **given))

    def complete(
        self,
        text: str,
        *,
        sampling: Sampling | None = None,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        draft: bool = True,
        grammar: GrammarSpec | None = None,
    ) -> ReplyStream:
        """`submit` for a text that is continued without a chat template; ``stop`` as in `reply`."""
        given = {"seed": seed, "max_tokens": max_tokens, "draft": draft, "grammar": grammar}
        return self.submit(_request(sampling, stop, prompt=text, **given))

    def tokenize(
        self,
        request: ReplyRequest,
        *,
        special: bool = True,
        bos: bool = True,
        interrupt: Interrupt | None = None,
    ) -> Tokenized:
        """The prompt of a request as text and tokens, however long it is: its messages through the
        chat template, its raw prompt, or its tokens.

        For a raw prompt, ``special`` recognises control tokens in it and ``bos`` puts the token of
        the beginning before it, where the model wants one.

        Raises:
            UsageError: tokens that the vocabulary lacks, a template that refuses, or closed.
            Interrupted: ``interrupt`` was set.
        """
        self._require_open()
        ends = interrupt or Interrupt()
        return self._scheduler.tokenized(request, ends.is_set, special=special, bos=bos)

    @property
    def failed(self) -> bool:
        """Whether a defect ended the thread that computes: only a new runtime can answer."""
        return self._scheduler.failed

    def examine(
        self,
        request: ReplyRequest,
        tokens: Sequence[int],
        rival: int | None = None,
        interrupt: Interrupt | None = None,
    ) -> Examination:
        """Probabilities at the place of the last of ``tokens``, the beginning of a reply.

        ``request`` is the one that the reply was made with, its seed included. With ``rival``,
        another token for that place, also how close the two were. Costs a pass, and the next turn
        reads what came after that place again.

        Raises:
            UsageError: no tokens, none of this model's or of the request's grammar, a request
                without a seed, or a gap that takes more than ten seconds of computing.
            Interrupted: ``interrupt`` was set.
            LocalspecError: as `submit`.
        """
        self._require_open()
        ends = interrupt or Interrupt()
        return examine(self._scheduler, self._pair, request, tokens, rival, ends)

    def load_adapter(self, path: Path, name: str = "") -> None:
        """Load a LoRA adapter of the target for requests to come (`ReplyRequest.adapters`), which
        call it by ``name``, or else by its path. What had the name before is used no more by these;
        replies that run go on with what they began with.

        Raises:
            LocalspecError: it is none, of another model, or there are too many; see
                `localspec.models.compat.adapters`.
        """
        self._scheduler.load_adapter(self.pair.adapter_file(path), name or str(path))

    def unload_adapter(self, name: str | Path) -> None:
        """Unload such an adapter; its memory is freed once no reply uses it.

        Raises:
            UsageError: it was loaded with the model.
        """
        self._require_open()
        self._scheduler.unload_adapter(str(name))

    def interrupt(self) -> None:
        """End all replies within about 50 ms, those that wait too; callable from any thread."""
        self._scheduler.interrupt()

    def forget(self) -> None:
        """Empty the KV cache: the next prompt is read from its first token. What running replies
        use of it is emptied when they end.

        Raises:
            UsageError: closed.
        """
        self._scheduler.forget()

    def keep_states(self, store: KvStore | None = None) -> None:
        """From now on use states of earlier sessions on disk, where that is faster than reading.

        They are saved by `rest`. With workers nothing is: another machine may answer at the same
        address next time, and computes other last bits.
        """
        if self.pair.remote is not None:
            return
        self._scheduler.use_disk(store or KvStore(self.pair.identity))

    def rest(self, cancelled: Cancelled = never) -> None:
        """Save states to disk where it is worth it, if `keep_states` was called.

        Call it when nothing was asked for a while. It gives up when ``cancelled`` returns true.
        """
        self._scheduler.rest(cancelled)

    def close(self) -> None:
        """Free everything. May be called twice, and while replies run, which then end as if
        interrupted.
        """
        self._scheduler.close()
        doing(f"freeing {self.info.target}")
        self._pair.close()

    def __enter__(self) -> Self:
        """The runtime itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Free everything."""
        self.close()


def _request(sampling: Sampling | None, stop: Sequence[str], **fields: Any) -> ReplyRequest:
    """A request with these fields; ``stop`` may be a single text."""
    texts = (stop,) if isinstance(stop, str) else tuple(stop)
    return ReplyRequest(sampling=sampling or Sampling(), stop=texts, **fields)


def _earlier_texts() -> EarlierTexts:
    """Texts of the saved chats; where they cannot be read, a notice."""
    from localspec.chats.drafting_texts import earlier_texts

    try:
        return EarlierTexts(earlier_texts())
    except ChatsError as error:
        return EarlierTexts(notices=(f"{error}; drafting without earlier chats",))


def open_from_fields(
    fields: dict[str, Any], on_event: Callable[[Loading], None], cancelled: Cancelled
) -> Runtime:
    """`Runtime.open` with the fields of `Options`, as an engine process gets them.

    Raises:
        UsageError: they are no options; and what that raises.
    """
    try:
        options = codec.decode(Options, fields, "options")
    except codec.CodecError as error:
        raise UsageError(str(error)) from None
    runtime = Runtime.open(options, on_event, cancelled)
    if options.save_states:
        runtime.keep_states()
    return runtime
