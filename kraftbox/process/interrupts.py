"""Handling of Ctrl-C while a command starts: end the process at once, without output.

Python would raise KeyboardInterrupt in the middle of an import and print a long traceback. If
SIGINT is ignored, as in a script's background jobs, it stays ignored.
"""

from __future__ import annotations

import signal


def end_silently() -> None:
    """Make SIGINT end the process from now on."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_interrupts() -> None:
    """Make SIGINT raise KeyboardInterrupt from now on, as Python does: there is work to undo."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
