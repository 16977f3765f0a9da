"""The interface with an engine on a server."""

from __future__ import annotations

from localspec.chats.saver import Saver
from localspec.chats.values import Chat
from localspec.core.sampling_params import Sampling
from localspec.engine.port import Engine
from tui.app import ChatApp
from tui.in_terminal import configured, run_app
from tui.session.recorder import ChatRecorder
from tui.session.settings import Settings


def run(
    engine: Engine,
    name: str,
    sampling: Sampling,
    max_tokens: int | None = None,
    seed: int | None = None,
    system: str | None = None,
    resume: Chat | None = None,
    *,
    instead: str = "",
) -> int:
    """Run the interface in this terminal; the exit code. ``name`` is shown until ``engine`` is
    connected; ``instead`` ends the error where that fails.

    An unexpected exception is raised after the terminal is restored.
    """
    app = ChatApp(
        engine,
        Settings(sampling, max_tokens, seed),
        name=name,
        verifier="of the server",
        system=system,
        recorder=ChatRecorder(Saver()),
        resume=resume,
        **configured(),
    )
    return run_app(app, name, instead)
