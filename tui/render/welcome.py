"""The first thing on the screen."""

WELCOME = """\
Everything runs on this machine. A small draft model proposes tokens and the target model checks \
them, several at a time: the text is the target's own, only sooner.

Type below and press **Enter**. `/help` lists keys and commands; **Ctrl+T** shows where each token \
came from.
"""
