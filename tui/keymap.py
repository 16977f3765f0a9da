"""Every key of the interface, with an id that a configuration can bind to another key."""

from __future__ import annotations

from textual.binding import Binding, BindingType

CHAT: list[BindingType] = [
    Binding("escape", "stop", "Stop", id="chat.stop", tooltip="Stop the reply and keep it"),
    Binding("ctrl+t", "colours", "Colours", id="chat.colours", tooltip="Show token origins"),
    Binding("f2", "details", "Details", id="chat.details", tooltip="Show where time goes"),
    Binding("f3", "compare", "Compare", id="chat.compare", tooltip="Make it again, plainly"),
    Binding("alt+left", "token(-1)", id="chat.token_left", show=False),
    Binding("alt+right", "token(1)", id="chat.token_right", show=False),
    Binding("ctrl+n", "new", "New", id="chat.new", show=False),
    Binding("ctrl+r", "restart", "Restart", id="chat.restart", tooltip="Start the engine again"),
    Binding("ctrl+o", "older", "Older", id="chat.older", show=False),
    Binding("f1", "help", "Help", id="chat.help", show=False),
    Binding("ctrl+home", "scroll_home", id="chat.top", show=False, priority=True),
    Binding("ctrl+end", "scroll_end", id="chat.bottom", show=False, priority=True),
]

APP: list[BindingType] = [
    Binding("ctrl+q", "quit", "Quit", id="app.quit", priority=True),
    Binding("ctrl+c", "copy_or_quit", id="app.copy_or_quit", show=False, priority=True),
]

COMPOSER: list[BindingType] = [
    Binding("enter", "send", "Send", id="composer.send"),
    Binding("ctrl+j,shift+enter,alt+enter", "newline", id="composer.newline", show=False),
    Binding("pageup", "page_up", id="composer.page_up", show=False),
    Binding("pagedown", "page_down", id="composer.page_down", show=False),
]

COMPARE: list[BindingType] = [
    Binding("escape", "leave", "Close", id="compare.close"),
]

HELP = (
    ("Enter", "send; while the model speaks, the message waits its turn"),
    ("Ctrl+J", "new line (also Shift+Enter where the terminal knows it)"),
    ("Esc", "stop the reply and keep what was said"),
    ("Ctrl+T", "show where each token came from"),
    ("F2", "details: time of a round, acceptance by place and drafter"),
    ("F3", "compare: make the last reply again by plain decoding, side by side"),
    (
        "Alt+← / Alt+→",
        "walk over the tokens of the last reply: p, q and alternatives",
    ),
    ("Ctrl+N", "new chat"),
    ("Ctrl+O", "load older messages"),
    ("Ctrl+R", "start the engine again after it died"),
    ("PgUp / PgDn", "scroll; Ctrl+Home and Ctrl+End jump"),
    ("Ctrl+P", "all commands, themes among them"),
    ("Ctrl+Q", "quit (or Ctrl+C twice)"),
)
"""What /help shows."""
