"""Short texts that say what is being waited for."""

from __future__ import annotations

from tui.render.text import plain
from tui.session.session import Session
from tui.session.session_engine import Phase


def for_text(session: Session) -> str:
    """Placeholder of a reply that has no text yet."""
    reading, encoding = session.chat.meter.reading, session.chat.meter.encoding_seconds
    if encoding is not None:
        return f"encoding the picture · {encoding:.0f} s"
    if reading is not None and reading.total - reading.cached > 1:
        return f"reading {reading.done}/{reading.total}"
    return "…"


def why_not(session: Session) -> str | None:
    """Why the models cannot be asked about a reply now; None where they can."""
    match session.engine.phase:
        case Phase.LOADING:
            return "wait until the model is loaded"
        case Phase.DEAD:
            return "the engine is not running"
        case Phase.REPLYING:
            chats = session.replies.chats
            if chats and session.chat not in chats:  # Esc stops those of the chat that is shown
                return f"wait for the reply in {plain(chats[0].title)} to end, or stop it there"
            return "wait for the reply to end, or stop it with Esc"
    return None


def in_line(session: Session) -> str:
    """Why a queued message is not sent yet."""
    match session.engine.phase:
        case Phase.LOADING:
            return "sent when the model is ready"
        case Phase.DEAD:
            return "sent when the engine runs again"
    waits = {
        "sent after the command": not session.chat.queue,
        "sent when the servers of tools are ready": session.tools.starting,
        "sent after the tools": session.tools.of(session.chat),
    }
    if why := next((text for text, is_so in waits.items() if is_so), ""):
        return why
    chats = session.replies.chats
    if not chats or session.chat in chats:
        return "sent next"
    return f"sent after the reply in {plain(chats[0].title)}"
