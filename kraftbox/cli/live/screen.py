"""The live view on a terminal: drawn four times a second, until q, Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from datetime import datetime

from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live

from kraftbox.cli.live.asking import Asking
from kraftbox.cli.live.drawing import lines
from kraftbox.cli.live.facts import DRAW_MS, Board
from kraftbox.launcher.place import ClusterPlace

_QUIT = (b"q", b"Q", b"\x03", b"\x04")


def show(place: ClusterPlace) -> None:
    """Show the view until the user ends it, then restore the terminal."""
    asyncio.run(_show(place))


def now_ms() -> float:
    """Return the monotonic time in milliseconds."""
    return time.monotonic() * 1000.0


async def _show(place: ClusterPlace) -> None:
    board = Board(now_ms())
    ending = asyncio.Event()
    console = Console()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ending.set)
    asking = asyncio.create_task(Asking(place, board, now_ms).run())
    try:
        with _keys(loop, ending), Live(console=console, screen=True, auto_refresh=False) as live:
            while not ending.is_set():
                now = datetime.now().astimezone()
                seen = board.look(now_ms())
                # Read the size from the terminal for each view: the window may have been resized
                # since the variable COLUMNS was exported.
                size = console.size = ConsoleDimensions(*os.get_terminal_size(sys.stdout.fileno()))
                drawn = lines(seen, str(place.root), now, size.width, size.height)
                live.update(Group(*drawn), refresh=True)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(DRAW_MS / 1000):
                        await ending.wait()
    finally:
        asking.cancel()
        await asyncio.wait([asking])


@contextlib.contextmanager
def _keys(loop: asyncio.AbstractEventLoop, ending: asyncio.Event) -> Iterator[None]:
    """Read single keys without echo in the block; q sets `ending`."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def read() -> None:
        data = os.read(fd, 64)
        if not data or any(key in data for key in _QUIT):
            ending.set()
            loop.remove_reader(fd)

    tty.setcbreak(fd)
    loop.add_reader(fd, read)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
