"""The fields of a request that all endpoints for replies share: sampling, limits, drafting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from localspec.core import settings_schema as schema
from localspec.core.emitted import MOST_ALTERNATIVES, LogprobsMode
from localspec.core.errors import UsageError
from localspec.core.events import Message
from localspec.core.reply_request import MOST_STOPS, ReplyRequest, seed_of_variant
from localspec.serve.http.errors import bad_request
from localspec.serve.http.settings import Limits, ServeSettings
from localspec.serve.http.typed import Fields, Foreign, checked, setting
from localspec.serve.http.wording import REFUSAL
from localspec.serve.requests.adapters import Scales, uses
from localspec.serve.requests.earlier_calls import told_of
from localspec.serve.requests.foreign_fields import REFUSED, WITHOUT_EFFECT
from localspec.serve.requests.grammars import GrammarFields

LONGEST_NAME = 128
"""Characters of a tool's name: each of its results is given it."""
_LONGEST_ID = 4096
"""Characters of a call's id: some programs put what another model has thought into it."""

_SALT = Meta(max_length=1024, description="keeps what is cached for it apart")
Stop = Annotated[str, Meta(min_length=1)]
Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
"""The name of a tool."""
CallId = Annotated[str, Meta(max_length=_LONGEST_ID)]
"""The id of a call."""
Seed = Annotated[Any, setting(schema.SEED, minus_one="-1 = a new one")]
"""Read by `seed_of`."""
Alternatives = Annotated[int, Meta(ge=0, le=MOST_ALTERNATIVES)]
Stops = Annotated[list[Stop], Meta(max_length=MOST_STOPS)]
TokenLimit = Annotated[
    int,
    Meta(
        ge=-1,
        description="most tokens of the reply; -1 is no limit",
        extra_json_schema={"not": {"const": 0}},
        extra={REFUSAL: "must be a whole number of at least 1, or -1 for no limit"},
    ),
]
"""A largest number of tokens, with -1 as LM Studio and llama.cpp have it."""


class Drafting(Fields, forbid_unknown_fields=True):
    """localspec's own object: how this reply is drafted and verified."""

    verifier: Annotated[Any, setting(schema.VERIFIER)] = None
    drafter: Annotated[Any, setting(schema.DRAFTER)] = None
    draft_max: Annotated[Any, setting(schema.DRAFT_MAX)] = None
    draft_memory: Annotated[bool, Meta(description="draft from earlier requests too")] | None = None
    origins: Annotated[bool, Meta(description="answer where each token came from")] | None = None
    strict: Annotated[bool, Meta(description="refuse unless computed in strict mode")] | None = None

    def fields(self) -> dict[str, Any]:
        """The fields of `ReplyRequest` that say so.

        Raises:
            ApiError: one is invalid.
        """
        return {
            "verifier": checked("localspec.verifier", schema.VERIFIER, self.verifier),
            "drafter": checked("localspec.drafter", schema.DRAFTER, self.drafter),
            "draft_max": checked("localspec.draft_max", schema.DRAFT_MAX, self.draft_max),
            "draft_memory": self.draft_memory is not False,
        }

    def extras(self, notices: tuple[str, ...]) -> Extras:
        """The parts of the answer that every endpoint has on request."""
        return Extras(origins=self.origins or False, strict=self.strict or False, notices=notices)


class PredictedPart(Fields):
    """A part of a prediction."""

    text: str | None = None


class Prediction(Fields, kw_only=True):
    """OpenAI's predicted output."""

    type: Literal["content"] | None = None
    content: str | list[PredictedPart]

    @property
    def text(self) -> str:
        """The text."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text or "" for part in self.content)


class GenerationBody(GrammarFields):
    """What requests for replies have besides the prompt."""

    foreign: ClassVar[Mapping[str, Foreign]] = REFUSED
    without_effect: ClassVar[tuple[str, ...]] = (*WITHOUT_EFFECT, "parallel_tool_calls")

    model: Annotated[str, Meta(description="a name of /v1/models; absent: the present")] | None = (
        None
    )
    stream: bool | None = None
    seed: Seed = None
    stop: Annotated[Stop | Stops, Meta(description="texts that end the reply")] | None = None
    prediction: str | Prediction | None = None
    logprobs_mode: LogprobsMode | None = None
    cache_salt: Annotated[str, _SALT] | None = None
    lora: Scales | None = None
    localspec: Drafting | None = None

    def reply_fields(self, settings: ServeSettings, *, max_tokens: int | None) -> dict[str, Any]:
        """The fields of `ReplyRequest` but the prompt; ``max_tokens`` is what the endpoint read.

        Raises:
            ApiError: one is invalid.
        """
        prediction = self.prediction
        return {
            "sampling": self.sampling(settings.sampling),
            "seed": seed_of("seed", self.seed),
            "max_tokens": settings.most_tokens(max_tokens),
            "stop": texts(self.stop),
            "grammar": self.followed(),
            "prediction": prediction.text if isinstance(prediction, Prediction) else prediction,
            "logprobs_mode": self.logprobs_mode or "raw",
            "owner": self.cache_salt or "",
            "adapters": uses(self.lora),
            **(self.localspec or Drafting()).fields(),
        }

    def wanted(self, given: dict[str, Any]) -> Extras:
        """The parts of the answer that every endpoint has on request; ``given`` is the body as it
        came.
        """
        return (self.localspec or Drafting()).extras(self.notices(given))


def texts(given: str | list[str] | None) -> tuple[str, ...]:
    """The texts of a field that has one or several."""
    return (given,) if isinstance(given, str) else tuple(given or ())


def limit(name: str, given: int | None) -> int | None:
    """The largest number of tokens that a `TokenLimit` means; None: no limit.

    Raises:
        ApiError: it is 0.
    """
    if given == 0:
        raise bad_request(f"{name} must be at least 1, or -1 for no limit", name)
    return None if given == -1 else given


def seed_of(name: str, given: object) -> int | None:
    """The seed in the field ``name``; None: a new one, which -1 is as well: clients of
    llama-server, vLLM, LM Studio and Ollama send it unless they are told of a seed.

    Raises:
        ApiError: it is none.
    """
    found: int | None = checked(name, schema.SEED, given)
    return None if found == -1 else found


class Extras(Struct, frozen=True):
    """The parts of an answer that a request must ask for."""

    include_usage: bool = False
    """Whether a stream ends with a chunk of usage."""
    continuous_usage: bool = False
    """Whether every chunk of it has the usage so far, as vLLM has it."""
    token_ids: bool = False
    """Ids of the tokens of the reply, and of its prompt where that is no chat, as vLLM has them."""
    origins: bool = False
    """Where each token came from."""
    strict: bool = False
    """Whether the reply must be computed in strict mode."""
    progress: bool = False
    """Chunks that tell how much of the prompt was read, as llama.cpp has them."""
    notices: tuple[str, ...] = ()
    """What the answer says of the request itself."""

    def of(self, messages: Iterable[Message]) -> Extras:
        """These, with what the answer says of the messages."""
        return replace(self, notices=(*self.notices, *told_of(messages)))


_CONTINUOUS = Meta(description="usage so far in every chunk, with include_usage")


class StreamOptions(Fields):
    """``stream_options``."""

    without_effect: ClassVar[tuple[str, ...]] = ("include_obfuscation",)

    include_usage: bool | None = None
    continuous_usage_stats: Annotated[bool, _CONTINUOUS] | None = None


_PREDICT = "most tokens of the reply, before max_tokens; -1 is no limit, 0 reads the prompt"
_CHOICES = Meta(ge=1, extra_json_schema={"maximum": Limits().choices})


class ChoicesBody(GenerationBody):
    """What OpenAI's chat and its completions have besides."""

    n: Annotated[int, _CHOICES] | None = None
    best_of: Annotated[int, _CHOICES] | None = None
    n_predict: Annotated[int, Meta(ge=-1, description=_PREDICT)] | None = None  # llama-server's
    stream_options: StreamOptions | None = None
    prompt_logprobs: Alternatives | None = None
    return_token_ids: bool | None = None
    return_progress: bool | None = None

    def reply_fields(self, settings: ServeSettings, *, max_tokens: int | None) -> dict[str, Any]:
        """The fields of a `ReplyRequest` that this gives, as `GenerationBody.reply_fields`."""
        most = max_tokens if self.n_predict is None else self.n_predict
        fields = super().reply_fields(settings, max_tokens=None if most == -1 else most)
        return fields | {"prompt_logprobs": self.prompt_logprobs}

    def choices(self, settings: ServeSettings) -> int:
        """``n``.

        Raises:
            ApiError: it is too many.
        """
        n = 1 if self.n is None else self.n
        if n > settings.limits.choices:
            raise bad_request(f"n must be at most {settings.limits.choices}", "n")
        if self.best_of not in {None, n}:
            raise bad_request("best_of is not supported with another value than n", "best_of")
        return n

    def extras(self, given: dict[str, Any]) -> Extras:
        """The parts of the answer that it asks for; ``given`` is the body as it came."""
        options = self.stream_options or StreamOptions()
        return replace(
            self.wanted(given),
            include_usage=options.include_usage or False,
            continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
            token_ids=self.return_token_ids or False,
            progress=self.return_progress or False,
        )


def of_choices(request: dict[str, Any], n: int) -> list[ReplyRequest]:
    """``n`` requests whose seeds follow each other.

    Raises:
        ApiError: fields that exclude each other.
    """
    seed = request.get("seed")
    if seed is None:
        return [made(request)] * n
    return [made(request | {"seed": seed_of_variant(seed, i)}) for i in range(n)]


def made(request: dict[str, Any]) -> ReplyRequest:
    """The request with these fields.

    Raises:
        ApiError: fields that exclude each other.
    """
    try:
        return ReplyRequest(**request)
    except UsageError as error:
        raise bad_request(str(error)) from None
