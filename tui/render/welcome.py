"""The text of an empty chat."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.models.catalog.offers import Best

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
**The demo is a toy of 4 MB.** It does small sums, lists, short Python functions and JSON, and \
copies and searches a text; its other answers are not to be relied on, and it is too small for \
drafting to gain much.

**{race}** shows in half a minute what drafting gains with a model of real size on this machine. \
**{models}** lists real models to download.
"""


def welcome(model: str, race_key: str, models_key: str) -> str:
    """The welcome as Markdown; with the demo pair it names the keys of the race and the models."""
    if model != _DEMO:
        return _WELCOME
    return f"{_WELCOME}\n{_TOY.format(race=race_key, models=models_key)}"


def elsewhere(server: str) -> str:
    """The welcome of a chat with a server elsewhere."""
    return _ELSEWHERE.format(server=server)


def toy(models_key: str, best: Best | None = None) -> str:
    """The line after the toy's first reply; ``best`` is the pair that suits this machine best."""
    line = (
        "that was the demo, a toy of 4 MB: it can do sums, lists, short Python functions and JSON; "
        f"{models_key} lists real models"
    )
    # The toy has learnt one name by heart, whatever machine it runs on.
    return line if best is None else f"{line}. {best.sentence}"
