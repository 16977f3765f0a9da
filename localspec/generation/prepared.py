"""A request with its prompt, before it has a sequence."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from localspec.core.adapter_list import AS_LOADED, Blend
from localspec.core.constraint import Constraint
from localspec.core.events import ReplyEvent
from localspec.core.infill import Infill
from localspec.core.logits import LogitsProcessor
from localspec.core.noise import Noise
from localspec.decode.logprobs import TokenScorer
from localspec.decode.request import ANY_DRAFT, DraftRules, Request
from localspec.decode.verifiers import Verifier
from localspec.generation.fitting import Prompt
from localspec.generation.stop_condition import StopCondition
from localspec.policy import Policy


def new_seed() -> int:
    """A random seed for a request without one."""
    return secrets.randbits(32)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request with its prompt, ready to be read."""

    prompt: list[int]
    processor: LogitsProcessor
    noise: Noise
    limit: int
    """Most tokens to emit."""
    ending: StopCondition
    verifier: Verifier
    opening: tuple[ReplyEvent, ...] = ()
    """The first events of the reply."""
    constraint: Constraint | None = None
    """The grammar of the reply; None without one."""
    guided: bool = True
    """Whether drafts go on through what the grammar forces."""
    conversation: Prompt | None = None
    """The rendered conversation; None for a raw prompt."""
    owner: str = ""
    """Whose request it is."""
    blend: Blend = AS_LOADED
    """The adapters that it is computed with."""
    stable: int | None = None
    """Tokens that the next turn's prompt will begin with, see `PromptBuilder.stable`."""
    scorer: TokenScorer | None = None
    """Computes logprobs of emitted tokens."""
    prompt_scorer: TokenScorer | None = None
    """Computes those of the prompt."""
    drafting: DraftRules = ANY_DRAFT
    infill: Infill | None = None
    """The gap that it fills; None for other requests."""

    @property
    def reusable(self) -> list[int]:
        """The tokens of which the prefix cache may have a beginning: those of a prompt that is
        scored are all read, since a token in the cache has no logits.
        """
        return self.prompt if self.prompt_scorer is None else self.prompt[:1]

    @property
    def cache_owner(self) -> str:
        """Whose it is in the prefix cache, where what was read with other adapters is another's."""
        return self.blend.owner(self.owner)

    def request(self, seq: int, policy: Policy | None) -> Request:
        """The reply to be decoded in a sequence, with drafts planned by ``policy``; None: by the
        policy that all requests of a round share.
        """
        return Request(
            seq=seq,
            tokens=list(self.prompt),
            processor=self.processor,
            noise=self.noise,
            limit=self.limit,
            stop=self.ending,
            verifier=self.verifier,
            policy=policy,
            guided=self.guided,
            scorer=self.scorer,
            drafting=self.drafting,
        )
