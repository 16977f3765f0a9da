"""The chat with replies that are written here: a recording of calls, which the toy cannot make.

The interface, the server of tools and its process are real; the engine is the one of the tests, so
the speeds that it shows mean nothing. `scripts/cast.py --keys docs/tools.keys` records it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "tui")]

from fake_engine import INFO, FakeEngine, Script, calling  # noqa: E402

from localspec.core.files import paths  # noqa: E402
from localspec.core.sampling_params import Sampling  # noqa: E402
from tui.app import ChatApp  # noqa: E402
from tui.in_terminal import run_app  # noqa: E402
from tui.session.settings import Settings  # noqa: E402

_SERVER = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("diary", version="1")

@server.tool()
def search(words: str) -> str:
    "Find entries of the diary."
    return "12 March, 10:00  harbour council, town hall\\n12 March, 14:00  Lena: plan of the bridge"

server.run()
"""
_NAME = "scripted-replies"


def main() -> None:
    """Run the chat in this terminal."""
    folder = paths.make(paths.config_dir())
    program = folder / "diary.py"
    program.write_text(_SERVER, encoding="utf-8")
    servers = {"diary": {"command": sys.executable, "args": [str(program)]}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    scripts = [
        Script(calling("diary__search", "I look into the diary.\n", words="Lena bridge")),
        Script("You meet **Lena** on 12 March at 14:00, about the plan of the bridge."),
    ]
    engine = FakeEngine(scripts, pace=0.12)
    engine.info = dataclasses.replace(INFO, name=_NAME, target=f"/{_NAME}.gguf", draft=None)
    sys.exit(run_app(ChatApp(engine, Settings(Sampling()), name=_NAME), _NAME))


if __name__ == "__main__":
    main()
