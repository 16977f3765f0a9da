"""Measurements on the parts of a runtime, between its replies."""

from __future__ import annotations

from localspec.core.errors import LocalspecError
from localspec.core.events import Reply
from localspec.core.processes.activity import doing
from localspec.core.reply_request import ReplyRequest
from localspec.loading.loader import LoadedPair
from localspec.loading.policy import OnPass
from localspec.policy.costs import Costs
from localspec.runtime import Runtime


class Lab:
    """Borrows the loaded parts of a runtime, measures their costs and exercises their drafts."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def borrow(self) -> LoadedPair:
        """The loaded parts with an empty KV cache, until the runtime's next reply.

        Raises:
            UsageError: the runtime is closed.
        """
        doing(f"measuring {self.runtime.info.target}")
        self.runtime.forget()
        return self.runtime.pair

    def costs(self) -> Costs | None:
        """Costs of passes and drafts as the policy has measured them; None where it does not."""
        return self.runtime.pair.control.policy.costs

    def measure_costs(self, on_pass: OnPass | None = None) -> Costs | None:
        """Measure the costs of passes again, thoroughly; None where nothing is ever drafted.

        ``on_pass`` is told (tokens, seconds) of each pass, and may raise to end it.
        """
        return self.borrow().control.measure(on_pass)

    def save_costs(self) -> None:
        """Save the measured costs for the next session, as every reply does.

        Raises:
            LocalspecError: they cannot be written.
        """
        try:
            self.runtime.pair.control.save()
        except OSError as error:
            raise LocalspecError(
                f"what was measured cannot be saved: {error.strerror}; free some space, or set "
                "LOCALSPEC_HOME to a writable folder"
            ) from None

    def exercise(self, request: ReplyRequest) -> Reply:
        """Answer with drafts of every length and shape that the policy may choose, whether they
        pay or not: for comparisons with plain decoding. Raises as `Runtime.submit`.
        """
        return self.runtime.answer(request, policy=self.runtime.pair.control.proof)
