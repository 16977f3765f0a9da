"""What an empty chat says, and what is said once after the first reply of the embedded pair."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from localspec.core.files.paths import DEMO_DIR
from localspec.core.in_thread import in_thread
from localspec.loading.offers import recommended
from tui.input import keymap
from tui.session.session import Session

if TYPE_CHECKING:
    from localspec.loading.offers import Best

_WELCOME = """\
Everything runs on this machine. A small draft model guesses the next tokens, and your model \
checks all guesses in one pass: the text is what your model would write alone, and it comes \
sooner where that pays on this machine.

Type below and press **Enter**. `/help` lists keys and commands; **Ctrl+T** shows where each token \
came from.
"""
_ELSEWHERE = """\
The replies come from the server at {server}. It drafts, or not, as it was started; the bottom \
line shows what it reports about that.

Type below and press **Enter**. `/help` lists keys and commands; **Ctrl+T** shows where each token \
came from, if the server tells.
"""
_DEMO = "demo"
"""Name of the embedded pair."""
_TOY = """\
**The demo is a toy of 4 MB.** It does small sums, lists and short Python functions, and copies \
and searches a text; its other answers are not to be relied on, and it is too small for drafting \
to gain much.

**{race}** shows in half a minute what drafting gains with a model of real size on this machine. \
**{models}** lists real models to download.
"""


def toy(models_key: str, best: Best | None = None) -> str:
    """The line after the toy's first reply; ``best`` is the pair that suits this machine best."""
    line = (
        "that was the demo, a toy of 4 MB: it can do sums, lists and short Python functions; "
        f"{models_key} lists real models"
    )
    # The toy has learnt one name by heart, whatever machine it runs on.
    return line if best is None else f"{line}. {best.sentence}"


class Greeting:
    """The welcome of a session, and the word about the toy."""

    def __init__(
        self, screen: Screen[Any], session: Session, model_name: str, rebound: Mapping[str, str]
    ) -> None:
        """``rebound`` maps ids of `keymap` to other keys."""
        self._screen, self._session = screen, session
        self._model_name, self._rebound = model_name, rebound
        self._told_of_toy = False

    def text(self) -> str:
        """The welcome as Markdown."""
        if server := self._session.engine.client.server:
            return _ELSEWHERE.format(server=server)
        options = self._session.engine.options
        model = options.model if options is not None else self._model_name
        if model != _DEMO:
            return _WELCOME
        keys = {"race": self._key("chat.compare"), "models": self._key("chat.models")}
        return f"{_WELCOME}\n{_TOY.format(**keys)}"

    def reply_ended(self) -> None:
        """After the first reply of the embedded pair, say once what it is."""
        info = self._session.engine.info
        if not self._told_of_toy and info is not None and Path(info.target).parent == DEMO_DIR:
            self._told_of_toy = True
            self._screen.run_worker(self._tell_of_toy(), group="toy")

    async def _tell_of_toy(self) -> None:
        best = await in_thread(lambda _: recommended())
        self._session.tell(toy(self._key("chat.models"), best))

    def _key(self, name: str) -> str:
        return keymap.key_of(name, self._rebound)
