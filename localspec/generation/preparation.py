"""Prepares a request: its prompt, and the rules of its reply."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.adapter_list import Blend
from localspec.core.constraint import Constraint
from localspec.core.drafter_registry import OFF, PREDICTION, SUFFIX
from localspec.core.emitted import LogprobsMode
from localspec.core.errors import UsageError
from localspec.core.events import LEFT_OUT, Notice, Reply, ReplyFormat
from localspec.core.interrupt import Cancelled, never
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.core.reply_request import ReplyRequest
from localspec.core.target import ServingTarget
from localspec.decode.logprobs import TokenScorer
from localspec.decode.request import DraftRules, Request
from localspec.decode.verifiers import Verifier, verifier
from localspec.drafters.lookup.predicted_text import PredictedText
from localspec.generation.fitting import Prompt
from localspec.generation.grammars import Grammars
from localspec.generation.infill import InfillPrompts, Suggestions
from localspec.generation.infill_sampling import InfillProcessor
from localspec.generation.pictures import Sight, Tell
from localspec.generation.prepared import NOWHERE, Prepared, new_seed
from localspec.generation.processing import Processing, notices_of
from localspec.generation.prompt import PromptBuilder
from localspec.generation.runnable import RunnableModel
from localspec.generation.stop_condition import LineLimits, StopCondition
from localspec.grammar.thinking import begun, markers
from localspec.grammar.tool_families import FAMILIES
from localspec.prefix_cache.cache import PrefixCache
from localspec.prefix_cache.states import Conversation

_LONGEST_TOKEN = 64
"""Characters of a prediction for each token of the context: more of it cannot be of use."""
LARGE = 100_000
"""Characters of a request from which its template and its tokens take long."""


class Preparation:
    """Makes prompts for one model."""

    def __init__(
        self,
        model: RunnableModel,
        target: ServingTarget,
        judge: Verifier,
        prefix_cache: PrefixCache,
        drafters: Sequence[str] = (),
        sight: Sight | None = None,
        *,
        remembers: bool = False,
        quotes_chats: bool = False,
    ) -> None:
        """``judge`` verifies the drafts of requests that name no verifier; ``drafters`` are the
        names of those that are loaded; ``sight`` is how the model sees, if it does. ``remembers``:
        whether requests may be drafted for from earlier ones; ``quotes_chats``: whether all are
        from saved chats.
        """
        self._drafters = frozenset(drafters) - {OFF}
        self._model = model
        self._target = target
        self._prefix_cache = prefix_cache
        self._judge = judge
        self._grammars = Grammars(model)
        self.prompts = PromptBuilder(model, target.capacity, sight)
        self.processing = Processing(model)
        self.infills = InfillPrompts(model, target.capacity)
        self._remembers, self._quotes_chats = remembers, quotes_chats
        self.suggestions = Suggestions() if remembers else None

    def prepared(
        self,
        request: ReplyRequest,
        cancelled: Cancelled,
        tell: Tell,
        blend: Blend,
    ) -> Prepared:
        """The request with its prompt; ``tell`` is told what takes long. ``blend`` is what its
        adapters were when it was asked: their names may mean others by now.

        Raises:
            UsageError: the parameters are invalid, or the template refuses the conversation.
            ContextError: the last message does not fit into the context.
            Interrupted: ``cancelled`` returned true.
        """
        stop, notices = request.stop, notices_of(request.sampling)
        if request.grammar is not None:
            _require_a_beginning(request)
        prompt, conversation, stable = self.prompt(request, cancelled, tell, blend)
        if conversation is not None:
            if not self._target.cuts_anywhere:
                stable = self.prompts.stable(request, conversation)
            if request.grammar is None:
                # Without a template, stop texts end the turns; a grammar may require them.
                stop = (*stop, *self.prompts.stop)
            if conversation.dropped:
                notices.append(
                    Notice(
                        f"the context of {self._target.capacity} tokens is full: the "
                        f"{conversation.dropped} {LEFT_OUT}"
                    )
                )
        if request.grammar is not None:
            notices += self._grammars.prepare()
        constraint = self.constraint(request, prompt, conversation, cancelled)
        form = self._format(request, conversation) if request.markers else ReplyFormat()
        room = self._target.capacity - len(prompt) + 1
        judge = self._judge if request.verifier is None else verifier(request.verifier)
        drafting = self._drafting(request, len(prompt))
        noise = Noise(self._seed(request, judge, drafting))
        limits = LineLimits.of(request.infill)
        ending = StopCondition(self._model, stop, self._shown(form), limits)
        prepared = Prepared(
            Request(
                NOWHERE,
                list(prompt),
                self._processor(request, noise, constraint),
                noise,
                limit=room if request.max_tokens is None else min(request.max_tokens, room),
                stop=ending,
                verifier=judge,
                guided=request.drafts and bool(self._drafters),
                scorer=self._scorer(request.logprobs, request.logprobs_mode),
                drafting=drafting,
            ),
            ending,
            opening=(*((form,) if request.markers else ()), *notices),
            conversation=conversation,
            owner=request.owner,
            blend=blend,
            stable=stable,
            prompt_scorer=self._scorer(request.prompt_logprobs, "raw"),
            infill=request.infill,
        )
        self._prefix_cache.prefetch(prepared.reusable, prepared.cache_owner)
        return prepared

    def prompt(
        self,
        request: ReplyRequest,
        cancelled: Cancelled = never,
        tell: Tell = lambda _: None,
        blend: Blend | None = None,
    ) -> tuple[list[int], Prompt | None, int | None]:
        """The tokens of a request's prompt, the conversation that they are of, None for a raw
        prompt, and how many the prompt of the next keystroke begins with, None without a gap.
        ``blend`` is that of `prepared`; None: what its adapters are now.

        Raises:
            UsageError, ContextError, Interrupted: as `prepared`.
        """
        if request.prompt_tokens is not None:
            return self.prompts.given(request.prompt_tokens), None, None
        if request.prompt is not None:
            return self.prompts.bare(request.prompt), None, None
        if request.infill is not None:
            filling = self.infills.prompt(request.infill, request.max_tokens, request.owner)
            return filling.tokens, None, filling.stable
        blend = self._target.blend(request.adapters) if blend is None else blend
        cached_by = blend.owner(request.owner)
        self.prompts.recall(self._prefix_cache.conversations(cached_by), request.owner)
        conversation = self.prompts.chat(request, cancelled, tell)
        return conversation.tokens, conversation, None

    def _drafting(self, request: ReplyRequest, start: int) -> DraftRules:
        """The drafting rules of a request whose reply begins at ``start``.

        Raises:
            UsageError: it names a drafter that is not loaded.
        """
        may = set(self._drafters)
        if request.drafter is not None:
            asked = {name.strip() for name in request.drafter.split(",")}
            unknown = sorted(asked - may - {OFF, PREDICTION})
            if unknown:
                loaded = ", ".join(sorted(may)) or "nothing"
                raise UsageError(f"drafter {unknown[0]!r} is not loaded; loaded: {loaded}")
            may &= {*asked, PREDICTION}
        recalls = request.owner if request.draft_memory and request.drafts else None
        prediction = request.prediction
        if prediction is None and request.infill is not None and recalls is not None:
            prediction = self._expected(request)
        if prediction is None:
            return DraftRules(frozenset(may - {PREDICTION}), request.draft_max, recalls=recalls)
        within = prediction[: _LONGEST_TOKEN * self._target.capacity]
        tokens = self._model.tokenize(within, special=False, bos=False)
        predicted = PredictedText(tokens, start, self._target.capacity)
        return DraftRules(frozenset(may), request.draft_max, predicted, recalls)

    def _seed(self, request: ReplyRequest, judge: Verifier, rules: DraftRules) -> int:
        """The seed of a reply. A given one is not used where what is drafted may be an earlier
        reply to it, and the verifier would judge that by the same noise again.
        """
        remembered = self._quotes_chats or (self._remembers and rules.recalls is not None)
        recalled = remembered and rules.may_use(SUFFIX)
        predicted = rules.prediction is not None and rules.may_use(PREDICTION)
        copies = request.drafts and (recalled or predicted)
        if request.seed is None or (copies and not judge.reuses_noise):
            return new_seed()
        return request.seed

    def _expected(self, request: ReplyRequest) -> str | None:
        """The suggestion that a request at a cursor is probably answered with again."""
        if self.suggestions is None or request.infill is None:
            return None
        return self.suggestions.expected(request.owner, request.infill)

    def _processor(
        self, request: ReplyRequest, noise: Noise, constraint: Constraint | None
    ) -> LogitsProcessor:
        """The logits processing of a request."""
        found, model = self.processing.processor(request.sampling, noise, constraint), self._model
        if request.infill is None or not request.infill.certain:
            return found
        ends = (model.special_ids.get(name, -1) for name in ("eot", "eos"))
        end = next((token for token in ends if token >= 0), min(model.end_ids, default=-1))
        if end < 0:
            raise UsageError(
                "the sampler infill needs a token that ends a reply, and this model has none"
            )
        return InfillProcessor(found, model.piece, model.end_ids, end)

    def _scorer(self, alternatives: int | None, mode: LogprobsMode) -> TokenScorer | None:
        return None if alternatives is None else TokenScorer(alternatives, mode, self._token_text)

    def _token_text(self, token: int) -> str:
        piece = self._model.piece(token)
        return piece.decode("utf-8", "surrogateescape") or self._model.marker(token)

    def _format(self, request: ReplyRequest, conversation: Prompt | None) -> ReplyFormat:
        """How the reply to a request is divided."""
        if conversation is None:
            return ReplyFormat()
        family = self.prompts.family(request)
        found = markers(self._model.template)
        last = request.messages[-1]
        unfinished = last.content if last.role == "assistant" else ""
        thinks = begun(conversation.text, unfinished, found)
        return ReplyFormat(found, thinks, None if family is None else family.name)

    def _shown(self, form: ReplyFormat) -> frozenset[int]:
        """The control tokens that divide a reply."""
        texts = [*form.thinking, *(FAMILIES[form.tools].markers if form.tools is not None else ())]
        tokens = {t for text in texts for t in self._model.tokenize(text, special=True)}
        return frozenset(t for t in tokens if not self._model.piece(t))

    def forget(self) -> None:
        """Forget what was suggested."""
        if self.suggestions is not None:
            self.suggestions.forget()

    def warm_grammars(self) -> None:
        """Prepare what the first grammar needs: other replies would wait for it later."""
        self._grammars.warm()

    def takes_long(self, request: ReplyRequest) -> bool:
        """Whether preparing a request may take long, so that others should not wait for it: it has
        a grammar that was not tried out yet, DRY's texts have to be found in all tokens, or it is
        large.
        """
        if request.grammar is not None:
            family = self.prompts.family(request)
            if not self._grammars.knows(request.grammar, family):
                return True
        if self.processing.takes_long(request.sampling):
            return True
        return request.written > LARGE or request.sees

    def constraint(
        self,
        request: ReplyRequest,
        prompt: list[int],
        conversation: Prompt | None,
        cancelled: Cancelled = never,
    ) -> Constraint | None:
        """The constraint of the reply to a request; None without a grammar.

        Raises:
            UsageError, QueueFullError, Interrupted: see `Grammars.constraint`.
        """
        text = None if conversation is None else conversation.text
        return self._grammars.constraint(
            request.grammar, prompt, text, self.prompts.family(request), cancelled
        )

    def remember(self, prepared: Prepared, reply: Reply) -> Conversation | None:
        """Record the tokens of a reply for the next turn that quotes its text; returns the
        conversation, the reply included. None where the tokens say more than the text.
        """
        if prepared.infill is not None:
            if self.suggestions is not None and prepared.request.drafting.recalls is not None:
                self.suggestions.note(prepared.owner, prepared.infill, reply.text)
            return None
        ending = prepared.ending
        if prepared.conversation is None or ending.stream.stopped or ending.hides:
            return None
        return self.prompts.remember(prepared.conversation, reply, prepared.owner)


def _require_a_beginning(request: ReplyRequest) -> None:
    """Refuse a grammar for the continuation of a reply.

    Raises:
        UsageError: the last message is the beginning of the reply.
    """
    if request.messages and request.messages[-1].role == "assistant":
        raise UsageError(
            "a grammar is followed from the beginning of a reply, so a stopped reply cannot be "
            "continued under one; ask again"
        )
