"""The settings of the next replies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.core.events import Message
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.reply_request import ReplyRequest, seed_of_variant
from localspec.core.sampling_params import Sampling

if TYPE_CHECKING:
    from localspec.tools.toolbox import RequestTools


@dataclass(slots=True)
class Settings:
    """Settings of the next replies; the user changes them while chatting."""

    sampling: Sampling
    max_tokens: int | None = None
    seed: int | None = None
    draft: bool = True
    grammar: GrammarSpec | None = None
    """The grammar of the next replies; None: any text."""
    grammar_name: str = ""
    """The name that the user gave it by."""

    thinking: bool | None = None
    """Whether the next replies begin with thinking; None: as the model's template does."""

    @property
    def invitation(self) -> str:
        """The text of the empty composer."""
        return "Message" if self.grammar is None else f"Message; replies fit {self.grammar_name}"

    def request(
        self,
        messages: tuple[Message, ...],
        variant: int = 0,
        tools: RequestTools | None = None,
    ) -> ReplyRequest:
        """A request for the next reply of a conversation; a fixed seed is increased by the number
        of the variant.
        """
        return ReplyRequest(
            messages=messages,
            sampling=self.sampling,
            seed=None if self.seed is None else seed_of_variant(self.seed, variant),
            max_tokens=self.max_tokens,
            draft=self.draft,
            grammar=self.grammar if tools is None else tools.grammar,
            thinking=self.thinking,
            tools=None if tools is None else tools.text,
            markers=tools is not None,
            draft_memory=True,
        )
