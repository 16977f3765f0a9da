"""What the sequences of the target's KV cache hold: restored, checked and emptied."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.adapter_list import Blend
from localspec.core.errors import AuditError
from localspec.core.target import ServingTarget
from localspec.decode.round import empty
from localspec.drafters.base import Drafter
from localspec.generation.generation import Generation
from localspec.prefix_cache.cache import PrefixCache
from localspec.prefix_cache.states import Restored


class CachedSequences:
    """The sequences of a target, with what its drafter and the prefix cache know of them."""

    def __init__(self, target: ServingTarget, drafter: Drafter, prefix_cache: PrefixCache) -> None:
        self._target = target
        self._drafter = drafter
        self._prefix_cache = prefix_cache
        self.tokens: dict[int, list[int]] = {}
        """Tokens in the target's KV cache, by sequence."""

    def restore(
        self, seq: int, prompt: list[int], owner: str, blend: Blend, *, waited_for: bool = False
    ) -> Restored:
        """Restore the beginning of a prompt that was read before, and forget what else the
        sequence holds; only what is quick while it is ``waited_for``.

        Raises:
            LocalspecError: a pass failed, or the KV cache is not what it is taken for.
        """
        self._audit(seq)
        cached, cached_by = self.tokens.get(seq, []), blend.owner(owner)
        restored = self._prefix_cache.restore(seq, cached, prompt, cached_by, waited_for=waited_for)
        self.tokens[seq] = prompt[: restored.length]
        self._target.adapt(seq, blend)  # what the sequence held before may have been saved
        return restored

    def sync(self, generation: Generation) -> None:
        """Record that the KV cache contains the beginning of the generation's tokens, as long as
        it is.
        """
        seq = generation.seq
        self.tokens[seq] = list(generation.tokens[: self._target.length(seq)])

    def finish(self, generation: Generation) -> None:
        """The generation is over; its sequence rests."""
        self._target.stop_encoding(generation.seq)
        if generation.reads_along:  # that round did not end: nobody else is to compute them
            before = generation.request.prompt - 1 - generation.reads_along
            self._target.truncate(generation.seq, before)
        self.sync(generation)
        self._prefix_cache.finished(generation.seq, self.tokens[generation.seq])

    def check(self, seqs: Sequence[int]) -> None:
        """Forget what a failed pass may have taken from sequences that had no part in it: they may
        have been about to change places.
        """
        for seq in seqs:
            if not self.whole(seq):
                self.reset(seq)

    def whole(self, seq: int) -> bool:
        """Whether the target still has what is believed to be cached."""
        return self._target.length(seq) >= len(self.tokens.get(seq, ()))

    def reset(self, seq: int) -> None:
        """Empty the caches of target and drafter: after a failure they are not trusted."""
        self._target.stop_encoding(seq)
        self.tokens.pop(seq, None)
        self._prefix_cache.lost(seq)
        empty(seq, self._target, self._drafter)

    def forget(self, seq: int) -> None:
        """Empty a sequence, so that others may use it."""
        self.tokens.pop(seq, None)
        self._prefix_cache.lost(seq)
        self._target.truncate(seq, 0)
        self._drafter.close(seq)

    def _audit(self, seq: int) -> None:
        """Refuse a KV cache that is shorter than the tokens believed to be in it.

        Raises:
            AuditError: it is.
        """
        target, believed = self._target, len(self.tokens.get(seq, ()))
        target.audit(seq)
        if target.length(seq) < believed:
            raise AuditError(
                f"target has cached {target.length(seq)} tokens; expected {believed} or more"
            )
