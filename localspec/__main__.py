"""``python -m localspec``, and the command ``localspec``."""

from __future__ import annotations

import signal


def main() -> None:
    """Run a command and exit with its code.

    Ctrl-C while modules are imported ends the program as it ends one in C: without a traceback.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from localspec.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
