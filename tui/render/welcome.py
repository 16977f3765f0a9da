"""The text of an empty chat."""

_WELCOME = """\
Everything runs on this machine. A small draft model proposes tokens and the target model checks \
several of them in one pass: the text is exactly what the target would write alone.

Type below and press **Enter**. `/help` lists keys and commands; **Ctrl+T** shows where each token \
came from.
"""
_DEMO = "demo"
"""Name of the embedded pair."""
_TOY = """\
**The demo is a toy of 4 MB**: it shows how the program works, its answers are not to be relied \
on, and it is too small for drafting to gain much. **{key}** lists real models to download.
"""


def welcome(model: str, models_key: str) -> str:
    """The welcome as Markdown; with the demo pair it names the key that lists real models."""
    return f"{_WELCOME}\n{_TOY.format(key=models_key)}" if model == _DEMO else _WELCOME
