"""A request with its prompt, before it has a sequence."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from localspec.core.adapter_list import AS_LOADED, Blend
from localspec.core.events import ReplyEvent
from localspec.core.infill import Infill
from localspec.decode.logprobs import TokenScorer
from localspec.decode.request import Request
from localspec.generation.fitting import Prompt
from localspec.generation.stop_condition import StopCondition

NOWHERE = -1
"""The sequence of a request that has none yet."""


def new_seed() -> int:
    """A random seed for a request without one."""
    return secrets.randbits(32)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request with its prompt, ready to be read."""

    request: Request
    """Its prompt and the rules of its reply."""
    ending: StopCondition
    """Its end, as ``request`` has it, with the text so far."""
    opening: tuple[ReplyEvent, ...] = ()
    """The first events of the reply."""
    conversation: Prompt | None = None
    """The rendered conversation; None for a raw prompt."""
    owner: str = ""
    """Whose request it is."""
    blend: Blend = AS_LOADED
    """The adapters that it is computed with."""
    stable: int | None = None
    """Tokens that the next turn's prompt will begin with, see `PromptBuilder.stable`."""
    prompt_scorer: TokenScorer | None = None
    """Computes logprobs of the prompt."""
    infill: Infill | None = None
    """The gap that it fills; None for other requests."""

    @property
    def reusable(self) -> list[int]:
        """The tokens of which the prefix cache may have a beginning: those of a prompt that is
        scored are all read, since a token in the cache has no logits.
        """
        prompt = self.request.tokens
        return prompt if self.prompt_scorer is None else prompt[:1]

    @property
    def cache_owner(self) -> str:
        """Whose it is in the prefix cache, where what was read with other adapters is another's."""
        return self.blend.owner(self.owner)
