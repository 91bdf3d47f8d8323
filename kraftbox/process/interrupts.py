"""Ctrl-C while a command starts: it ends the process at once and says nothing.

Python would raise KeyboardInterrupt inside half an import, and print pages about it. Where SIGINT
is ignored, as in a script's background jobs, it stays ignored.
"""

from __future__ import annotations

import signal


def end_silently() -> None:
    """From here on SIGINT ends the process."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_interrupts() -> None:
    """From here on SIGINT raises KeyboardInterrupt, as Python does it: there is work to undo."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
