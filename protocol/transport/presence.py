"""Shell: Cancellation of a request's work when its client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from protocol.transport.dispatch import Connection


@contextmanager
def while_connected(connection: Connection) -> Iterator[None]:
    """Cancel the current task when the connection ends.

    Use it for a request that waits long, if its effect would surprise a client that did not receive
    the response. Other requests are completed without their client.
    """
    task = asyncio.current_task()
    assert task is not None

    def give_up() -> None:
        task.cancel()

    connection.add_close_callback(give_up)
    try:
        yield
    finally:
        connection.remove_close_callback(give_up)
