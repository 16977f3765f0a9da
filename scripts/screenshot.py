r"""Take a picture of the interface: the real app and engine, without a terminal, as an SVG.

python scripts/screenshot.py "Write a function that adds two numbers." --colours
python scripts/screenshot.py --model demo-sees --out docs/pictures.svg \
    "@tests/data/eye/01.png What is in this picture?" "What is on the right?"
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.core.logits import Sampling
from localspec.core.options import Options
from localspec.engine.client import EngineClient
from tui.app import ChatApp
from tui.input.attachments import read
from tui.input.message_draft import Draft, names_files
from tui.session.session_engine import Phase
from tui.session.settings import Settings

if TYPE_CHECKING:
    from textual.pilot import Pilot

ROOT = Path(__file__).resolve().parent.parent
_FONTS = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"


async def until(pilot: Pilot[None], predicate: Callable[[], bool], seconds: float = 120) -> None:
    """Let the app run until a condition is true."""
    end = time.monotonic() + seconds
    while not predicate():
        if time.monotonic() > end:
            sys.exit("screenshot: waited too long")
        await pilot.pause(0.05)


async def take(arguments: argparse.Namespace, log_dir: Path) -> str:
    """Ask the questions and return the picture."""
    options = Options(model=arguments.model, draft=arguments.draft, threads=arguments.threads)
    sampling = Sampling(temperature=arguments.temperature)
    engine = EngineClient(options, log_dir=log_dir)
    settings = Settings(sampling, arguments.max_tokens, arguments.seed)
    app = ChatApp(engine, settings, name=options.model, verifier=options.verifier)
    width, height = (int(part) for part in arguments.size.split("x"))
    async with app.run_test(size=(width, height)) as pilot:
        session = app.session
        await until(pilot, lambda: session.engine.phase is Phase.READY or app.failure is not None)
        if app.failure is not None:
            sys.exit(f"screenshot: {app.failure}")
        if arguments.light:
            app.theme = "localspec-light"
        if arguments.colours:
            await pilot.press("ctrl+t")
        turns = session.chat.conversation.turns
        for question in arguments.questions:
            session.send(read(Draft(question)).message if names_files(question) else question)
        replies = 2 * len(arguments.questions)
        await until(pilot, lambda: len(turns) == replies and bool(turns[-1].end))
        await until(pilot, lambda: session.idle)
        await pilot.pause(0.3)
        picture: str = app.export_screenshot(title=f"localspec chat {Path(options.model).name}")
    return picture


def self_contained(picture: str) -> str:
    """The picture with the viewer's own fonts instead of fonts from the network."""
    picture = re.sub(r"@font-face\s*{[^}]*}", "", picture)
    picture = re.sub(r"font-family: ?(?!arial)[^;]*;", f"font-family: {_FONTS};", picture)
    return "\n".join(line.rstrip() for line in picture.splitlines() if line.strip()) + "\n"


def main() -> None:
    """Read the command line and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("questions", nargs="+")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--draft", default=None, help="by default the one that belongs to it")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "chat.svg")
    parser.add_argument("--size", default="96x30", help="columns x rows")
    parser.add_argument("--colours", action="store_true", help="show the origins of tokens")
    parser.add_argument("--light", action="store_true", help="the light theme")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=None)
    parser.add_argument("--threads", type=int, default=None, help="measured by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as log_dir:
        picture = asyncio.run(take(arguments, Path(log_dir)))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(self_contained(picture), encoding="utf-8")
    print(arguments.out)


if __name__ == "__main__":
    main()
