"""``python -m localspec``, and the command ``localspec``."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run a command and exit with its code.

    Ctrl-C while modules are imported ends the program as it ends one in C: without a traceback.
    Windows gets one sentence, before anything is imported that it does not have.
    """
    if sys.platform == "win32":
        sys.exit(
            "localspec runs on Linux and macOS. On Windows, run it inside WSL2 "
            "(`wsl --install`), where it installs as on Linux."
        )
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from localspec.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
