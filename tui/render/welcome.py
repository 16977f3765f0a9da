"""The first thing on the screen."""

WELCOME = """\
Everything runs on this machine. A small draft model proposes tokens and the target model checks \
several of them in one pass: the text is exactly what the target would write alone.

Type below and press **Enter**. `/help` lists keys and commands; **Ctrl+T** shows where each token \
came from.
"""
DEMO = "demo"
"""The name of the embedded pair."""
TOY = """\
**The demo is a toy of 4 MB**: it shows how the program works, its answers are not to be relied \
on, and it is too small for drafting to gain much. **{key}** lists real models to download.
"""
"""Shown below the welcome while the embedded demo pair answers."""
